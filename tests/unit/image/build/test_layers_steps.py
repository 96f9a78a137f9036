# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of one layer's build with recorded tools: mounts, roles, cleaning, and the layer's kernel."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from messages import raises
from recorded_tools import Tools

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import layers
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_inputs import layer_inputs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import (
    File,
    Layer,
    Role,
    Services,
    User,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Verity

BASE = Layer("base", None, "debian", "bookworm", "amd64", ())
TOP = replace(BASE, name="top", parent="base")
EPOCH = 1_783_764_997
KEY = "0" * 64
ROOT_HASH = "a" * 64


class Site:
    """A builder in a directory: tools and the family's steps are lines, with paths relative to the directory."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.lines, self.told = folder, [], []
        self.caches = {}
        self.recorded = Tools(progress=self.told.append, answer=self.answer)
        (folder / "work").mkdir()
        family = SimpleNamespace(
            caches=lambda layer, digests: self.caches,
            install=self.install,
            script_failure=lambda root, output: "",
            packages=lambda root, run: [{"name": "bash"}] if self.step("packages", root) else [],
            clean=lambda root, run: self.step("clean", root),
        )
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "")
        monkeypatch.setattr(layers, "family_of", lambda distribution: family)
        monkeypatch.setattr(layers, "Run", self.tools)
        monkeypatch.setattr(layers.role_digest, "content_digest", lambda name: "b" * 64)
        monkeypatch.setattr(
            layers.roles_in,
            "apply",
            lambda root, roles, run, name, script_failure, memory, network: self.step(
                f"role {roles[0].name} of {name} in {memory.name}{' with network' if network else ''}", root
            ),
        )
        prune = layers.forbidden.prune
        monkeypatch.setattr(
            layers.forbidden,
            "prune",
            lambda tree, parent, epoch: (
                self.step(f"prune {self.short(tree)} {epoch} below", parent) and prune(tree, parent, epoch)
            ),
        )
        monkeypatch.setattr(layers.tree_contents, "apply", lambda root, layer, run: self.step("contents", root))

    def tools(self, subject, progress, environment, log):
        self.lines.append(f"{subject} {environment}")
        return replace(self.recorded, subject=subject)

    def install(self, root, layer, run, digests, caches):
        folders = {name: self.short(folder) for name, folder in caches.folders.items()}
        self.step(f"install {layer.name} from {folders} beside {self.short(caches.work)}", root)

    def step(self, name, root):
        self.lines.append(f"{name} {self.short(root)}")
        return True

    def short(self, text):
        return re.sub(r"lent-\w+", "lent", str(text).replace(f"{self.folder}/", ""))

    def answer(self, argv):
        self.lines.append(self.short(" ".join(argv[:2] if argv[0] in ("mksquashfs", "veritysetup") else argv)))
        if argv[0] == "mksquashfs":
            Path(argv[2]).write_bytes(b"s" * 8192)
        return f"Root hash: {ROOT_HASH}\n" if argv[0] == "veritysetup" else ""

    def build(self, layer, below=()):
        inputs = layer_inputs(layer, layers.content_digests(layer))
        request = layers.LayerRequest(layer, KEY, {"a": "1"}, inputs, EPOCH)
        work = self.folder / "work"
        return layers.build(self.folder / "cache", work, request, list(below), self.told.append)


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(tmp_path, monkeypatch)


def below(folder, *names):
    return [SimpleNamespace(folder=folder / name, kernel=None) for name in names]


OFF = "redirect_dir=off,metacopy=off,index=off,xino=off"


def test_an_upper_layer_is_built_on_an_overlay_of_the_layers_below(site):
    top = replace(
        TOP,
        packages=("bash", "nano"),
        users=(User("ops"),),
        roles=(Role("site.x.one"), Role("site.x.two")),
        network=True,
    )
    site.caches = {"var/cache/a": "apt/a"}
    built = site.build(top, below(site.folder, "base", "gpu"))
    squashfs, lower = "mount -t squashfs -o loop,ro,nodev", "lowerdir=work/lower-1:work/lower-0"
    root, upper = "work/root", "upperdir=work/upper,workdir=work/overlay overlay work/root"
    lent = "lowerdir=cache/apt/a,upperdir=work/lent/upper,workdir=work/lent/work overlay work/root/var/cache/a"
    assert site.lines == [
        f"layer top {{'SOURCE_DATE_EPOCH': '{EPOCH}'}}",
        f"{squashfs} base/layer.squashfs work/lower-0",
        f"{squashfs} gpu/layer.squashfs work/lower-1",
        f"mount -t overlay -o {lower},{OFF} overlay work/parent",
        f"mount -t overlay -o {lower},{OFF},{upper}",
        f"install top from {{'var/cache/a': 'cache/apt/a'}} beside work {root}",
        f"contents {root}",
        "mount -t tmpfs -o mode=0700,nosuid,nodev tmpfs work/memory",
        f"mount -t overlay -o {lent}",
        f"role site.x.one of top in memory with network {root}",
        "umount work/root/var/cache/a",
        f"mount -t overlay -o {lent}",
        f"role site.x.two of top in memory with network {root}",
        "umount work/root/var/cache/a",
        f"packages {root}",
        f"clean {root}",
        f"umount {root}",
        f"prune work/upper {EPOCH} below work/parent",
        "umount work/parent",
        "mksquashfs work/upper",
        "veritysetup format",
    ]
    assert site.told == [
        "layer top: installing 2 packages and dependencies",
        "layer top: users, files, services",
        "layer top: role site.x.one",
        "layer top: role site.x.two",
        "layer top: writing the squashfs",
        f"layer top: 0.0 MB, {hashlib.sha256(b's' * 8192).hexdigest()[:12]}",
    ]
    salt = hashlib.sha256(f"sailloft-verity {KEY}".encode()).hexdigest()
    assert built.entry.verity == Verity(8192, ROOT_HASH, salt)
    assert (built.packages, built.kernel) == (({"name": "bash"},), None)
    assert built.folder == site.folder / "cache/layers" / KEY
    assert sorted(os.listdir(built.folder)) == ["layer.json", "layer.squashfs", "listing.json"]
    assert os.environ["SOURCE_DATE_EPOCH"] == str(EPOCH)


def test_the_lowest_layer_is_built_in_its_own_directory(site):
    built = site.build(replace(BASE, services=Services(masked=("a.service",))))
    assert site.lines[1:] == [
        "install base from {} beside work work/root",
        *(f"{name} work/root" for name in ("contents", "packages", "clean", "mksquashfs")),
        "veritysetup format",
    ]
    assert site.told[0] == "layer base: users, files, services"
    root = site.folder / "work/root"
    assert (root.stat().st_mode & 0o777, root.stat().st_mtime) == (0o755, EPOCH)
    assert built.entry.inputs["source_date_epoch"] == EPOCH


def test_a_file_that_changes_while_its_layer_is_built_is_refused(site, monkeypatch):
    source = site.folder / "limits"
    source.write_text("one")
    monkeypatch.setattr(layers.tree_contents, "apply", lambda root, layer, run: source.write_text("two"))
    with raises(ImageError, "base", "/etc/limits", "changed"):
        site.build(replace(BASE, files=(File("/etc/limits", source=str(source)),)))
    assert not (site.folder / "cache/layers").exists()


def test_download_directories_are_unmounted_after_a_failure(site):
    def fail(argv):
        site.answer(argv)
        return (32, "busy") if argv[-1].endswith("/b") and argv[0] == "mount" else ""

    run = Tools(answer=fail)
    with (
        pytest.raises(ImageError),
        Caches({name: site.folder / f"cache/apt/{name}" for name in "ba"}, site.folder).downloading(site.folder, run),
    ):
        pytest.fail("not reached")
    assert site.lines == ["mount --bind cache/apt/a a", "mount --bind cache/apt/b b", "umount a"]


def test_the_use_of_a_download_directory_is_recorded(site):
    folder = site.folder / "cache/apt/a"
    folder.mkdir(parents=True)
    os.utime(folder, (0, 0))
    with Caches({"a": folder}, site.folder).downloading(site.folder, site.recorded):
        assert folder.stat().st_mtime > 0
        assert (site.folder / "a").is_dir()
    assert site.lines[-1] == "umount a"


def kernel_of(root, *files):
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"kernel {name}")
    (root / "out").mkdir()
    return layers.take_kernel(root, root / "out", "layer base")


@pytest.mark.parametrize(
    ("files", "source"),
    [
        (("boot/vmlinuz-6.1", "lib/modules/6.1/modules.dep"), "boot/vmlinuz-6.1"),
        (("lib/modules/6.1/vmlinuz", "lib/modules/6.1/modules.dep"), "lib/modules/6.1/vmlinuz"),
    ],
)
def test_the_kernel_with_modules_is_copied(tmp_path, files, source):
    kernel = kernel_of(tmp_path, *files)
    data = f"kernel {source}".encode()
    assert (kernel.version, kernel.sha256) == ("6.1", hashlib.sha256(data).hexdigest())
    assert kernel.size_bytes == len(data)
    assert (tmp_path / "out/vmlinuz").read_bytes() == data


def test_the_files_of_the_kernel_below_are_in_boot_only_while_a_layer_is_built(site, monkeypatch):
    """The postinst of Ubuntu's signed modules reads /boot/System.map-VERSION, which no published layer has."""
    for name in ("vmlinuz", "System.map"):
        (site.folder / "base").mkdir(exist_ok=True)
        (site.folder / "base" / name).write_text(f"kernel's {name}")
    base = SimpleNamespace(folder=site.folder / "base", kernel=layers.Kernel("6.8.0-1-generic", "0" * 64, 16))
    boot = site.folder / "work/root/boot"
    read = []

    def script(root, layer, run):
        read.extend((path.name, path.read_text()) for path in sorted(boot.iterdir()))
        (boot / "System.map-6.8.0-1-generic").write_text("of another build of this version")

    monkeypatch.setattr(layers.tree_contents, "apply", script)
    built = site.build(TOP, [base])
    assert read == [
        ("System.map-6.8.0-1-generic", "kernel's System.map"),
        ("vmlinuz-6.8.0-1-generic", "kernel's vmlinuz"),
    ]
    # The layer brings no kernel of its own, and a file that a package wrote is normalise's to remove.
    assert built.kernel is None
    assert not (boot / "vmlinuz-6.8.0-1-generic").exists()


def test_the_symbols_of_a_kernel_are_kept_for_the_layers_above(tmp_path):
    kernel_of(tmp_path, "boot/vmlinuz-6.1", "boot/System.map-6.1", "lib/modules/6.1/modules.dep")
    assert (tmp_path / "out" / layers.SYMBOLS).read_text() == "kernel boot/System.map-6.1"


@pytest.mark.parametrize("files", [(), ("boot/vmlinuz-6.1",), ("lib/modules/6.1/modules.dep",)])
def test_a_kernel_without_modules_is_not_copied(tmp_path, files):
    assert kernel_of(tmp_path, *files) is None
    assert os.listdir(tmp_path / "out") == []


def test_texts_of_variables_that_name_files_are_part_of_the_role(tmp_path, monkeypatch):
    monkeypatch.setattr(layers.role_digest, "content_digest", lambda name: "b" * 64)
    path = tmp_path / "key"
    path.write_text("key")
    named = hashlib.sha256(
        layers.canonical_json(["b" * 64, {str(path): hashlib.sha256(b"key").hexdigest()}])
    ).hexdigest()
    for variables in ({"a": str(path)}, {"a": [{"b": (str(path), 7)}]}):
        assert layers.content_digests(replace(BASE, roles=(Role("x", variables),))) == {"x": named}
    monkeypatch.chdir(tmp_path)
    for variables in ({}, {"a": "key"}, {"a": str(tmp_path)}, {str(path): "a"}):
        assert layers.content_digests(replace(BASE, roles=(Role("x", variables),))) == {"x": "b" * 64}


def test_an_error_names_the_log_which_the_next_build_of_the_layer_replaces(site, monkeypatch):
    log = site.folder / "cache/logs/base.log"

    def fail(root, layer, run, digests, caches):
        (root / "make.log").write_text("the compiler's error\n")
        Run(layer.name, print, log=log)(["sh", "-c", "echo Consult /make.log for more information."])
        raise ImageError("failed", "mend it", subject="layer base")

    monkeypatch.setattr(layers.family_of(""), "install", fail)
    with raises(ImageError, "base", "failed", log):
        site.build(BASE)
    assert log.read_text().splitlines()[-2:] == ["/make.log:", "the compiler's error"]
    assert log.stat().st_mode & 0o777 == 0o600
    before = log.stat().st_size
    shutil.rmtree(site.folder / "work/root")
    with pytest.raises(ImageError):
        site.build(BASE)
    assert log.stat().st_size == before
    monkeypatch.setattr(layers.family_of(""), "install", lambda root, layer, run, digests, caches: None)
    shutil.rmtree(site.folder / "work/root")
    site.build(BASE)
    assert not log.exists()
