# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The builder resolves an image's absolute links within the image, not to the same path on the build host."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorded_tools import Tools

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import layers, tree_contents
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer, User
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import debian, rpm


@pytest.fixture
def host(tmp_path) -> Path:
    """A directory of the build host."""
    folder = tmp_path / "host"
    folder.mkdir()
    return folder


@pytest.fixture
def root(tmp_path) -> Path:
    """The root of the image."""
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def link(root: Path, path: str, host: Path) -> Path:
    """Make ``path`` in the image a link to ``host``, and return the directory that the image has at that path."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(host)
    own = root / str(host).lstrip("/")
    own.mkdir(parents=True)
    return own


nothing = Tools()


def layer(**own) -> Layer:
    archive = Archive("http://a/debian", ("bookworm",), ("main",), "/keys.gpg")
    return Layer("site", "base", "debian", "bookworm", "amd64", (archive,), **own)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to their owner (make image runs as root)")
def test_authorized_keys_are_written_within_the_image(root, host):
    own = link(root, "home/ops/.ssh", host)
    (root / "etc").mkdir()
    (root / "bin").mkdir()
    (root / "bin/bash").touch()
    (root / "etc/passwd").write_text("ops:x:1000:1000::/home/ops:/bin/bash\n")
    tree_contents.apply(root, layer(users=(User("ops", authorized_keys=("ssh-ed25519 AAAA ops",)),)), nothing)
    assert list(host.iterdir()) == []
    assert (own / "authorized_keys").read_text() == "ssh-ed25519 AAAA ops\n"


def test_sources_of_apt_are_written_within_the_image(root, host):
    own = link(root, "etc/apt/sources.list.d", host)
    debian.install(root, layer(), nothing, {}, Caches({}, root.parent))
    assert list(host.iterdir()) == []
    assert (own / "site.list").read_text() == "deb [signed-by=/keys.gpg] http://a/debian bookworm main\n"


def test_leftovers_of_package_managers_are_removed_only_within_the_image(root, host):
    (host / "dnf").mkdir()
    (host / "hashfile.0").touch()
    for path in ("var/cache", "var/lib/ucf"):
        own = link(root, path, host / path)
        for folder in (host / path, own):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "dnf").mkdir()
            (folder / "hashfile.0").touch()
    debian.clean(root, nothing)
    rpm.clean(root, nothing)
    assert (host / "var/cache/dnf").is_dir()
    assert (host / "var/lib/ucf/hashfile.0").exists()
    assert not (root / str(host / "var/cache/dnf").lstrip("/")).exists()
    assert not (root / str(host / "var/lib/ucf/hashfile.0").lstrip("/")).exists()


def test_the_rpm_database_of_the_build_host_is_not_read(root, host):
    (host / rpm.DATABASE_FILE).touch()
    link(root, "var/lib/rpm", host)
    assert rpm.packages(root, nothing) == []


def test_caches_of_the_builder_are_mounted_within_the_image(root, host, tmp_path):
    own = link(root, "var/cache", host)
    mounted = []
    cache = tmp_path / "cache/dnf/state"
    with Caches({"var/cache/dnf": cache}, tmp_path).downloading(root, mounted.append):
        pass
    assert mounted == [["mount", "--bind", cache, own / "dnf"], ["umount", own / "dnf"]]
    assert list(host.iterdir()) == []


@pytest.mark.parametrize("way", ["downloading", "lent"])
def test_a_cache_mounted_at_a_link_is_unmounted_after_a_failure(root, host, tmp_path, way):
    own = link(root, "var/cache/dnf", host)
    mounted = []
    caches = getattr(Caches({"var/cache/dnf": tmp_path / "cache/dnf/state"}, tmp_path), way)(root, mounted.append)
    with pytest.raises(ZeroDivisionError), caches:
        raise ZeroDivisionError
    assert [(command[0], command[-1]) for command in mounted] == [("mount", own), ("umount", own)]
    assert list(host.iterdir()) == []


def test_what_the_builder_lends_replaces_a_link_and_not_its_target(root, host):
    """A package of a layer below may have made the links, to have the builder write its own data elsewhere."""
    for name in ("target", "kernel"):
        (host / name).write_text("the build host's")
    setting = root / layers.DKMS_FILE
    setting.parent.mkdir(parents=True)
    setting.symlink_to(host / "target")
    (root / "boot").mkdir()
    (root / "boot/vmlinuz-6.1").symlink_to(host / "kernel")
    (host / "vmlinuz").write_text("a kernel")
    layers.lend_dkms_setting(root)
    layers.lend_kernel(root, [SimpleNamespace(folder=host, kernel=layers.Kernel("6.1", "0" * 64, 8))])
    assert [(host / name).read_text() for name in ("target", "kernel")] == ["the build host's"] * 2
    assert (setting.read_text(), (root / "boot/vmlinuz-6.1").read_text()) == (layers.DKMS_TEXT, "a kernel")


def test_a_linked_kernel_is_read_within_the_image(root, host, tmp_path):
    (host / "vmlinuz").write_text("the build host's")
    own = link(root, "lib/modules/6.1", host)
    (own / "vmlinuz").write_text("the image's")
    (root / "boot").mkdir()
    (root / "boot/vmlinuz-6.1").symlink_to("/lib/modules/6.1/vmlinuz")
    out = tmp_path / "out"
    out.mkdir()
    assert layers.take_kernel(root, out, "layer site").version == "6.1"
    assert (out / layers.VMLINUZ).read_text() == "the image's"


def test_a_kernel_that_is_only_in_boot_is_found(root, tmp_path):
    (root / "usr/lib/modules/6.1").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "boot").mkdir()
    (root / "boot/vmlinuz-6.1").write_text("kernel")
    out = tmp_path / "out"
    out.mkdir()
    assert layers.take_kernel(root, out, "layer site").size_bytes == 6


@pytest.mark.parametrize("linked", ["boot", "lib/modules", "lib/modules/6.1"])
def test_a_kernel_is_found_below_links(root, tmp_path, linked):
    for path in ("boot", "lib/modules/6.1"):
        (root / path).mkdir(parents=True)
    (root / "boot/vmlinuz-6.1").write_text("kernel")
    (root / linked).rename(root / "elsewhere")
    (root / linked).symlink_to("/elsewhere")
    out = tmp_path / "out"
    out.mkdir()
    assert layers.take_kernel(root, out, "layer site").size_bytes == 6
