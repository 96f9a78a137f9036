# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A layer has the content that its key describes, even if its sources change during the build."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import layers, tree_contents
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_inputs import layer_inputs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, File, Layer, Role, User

ARCHIVE = Archive("http://a/debian", ("bookworm",), ("main",), "/keys.gpg")
BASE = Layer("base", None, "debian", "bookworm", "amd64", (ARCHIVE,))
REQUEST = layers.LayerRequest(BASE, "0" * 64, {}, {}, 0)


@pytest.fixture
def family(monkeypatch):
    """Use a family of distributions that installs a few files, and return the list of the calls to it."""
    asked = []

    def install(root, layer, run, digests, caches):
        asked.append(("install", layer.name, dict(digests)))
        for path in ("etc/machine-id", "boot/vmlinuz-6.1", "lib/modules/6.1/modules.dep", "usr/bin/bash"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(path)

    def packages(root, run):
        asked.append(("packages", run.environment["SOURCE_DATE_EPOCH"]))
        return [{"name": "bash", "version": "5.2", "architecture": "amd64"}]

    made = SimpleNamespace(
        install=install,
        packages=packages,
        caches=lambda *_: {},
        clean=lambda root, run: (root / "etc/passwd-").touch(),
        packaged_files=lambda root, paths, run: {path for path in paths if path.startswith("/usr/share/")},
    )
    monkeypatch.setattr(layers, "family_of", lambda distribution: made)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")  # to restore it after the test: the build changes it
    return asked


def build(place, layer):
    """Build a layer without a parent; return its request, its record in the cache, and the messages."""
    told = []
    inputs = layer_inputs(layer, layers.content_digests(layer))
    request = layers.LayerRequest(layer, "0" * 64, {"a": "1"}, inputs, 1_783_764_997)
    (place / "work").mkdir(parents=True)
    return request, layers.build(place / "cache", place / "work", request, [], told.append), told


def test_a_layer_is_built_into_the_cache(family, tmp_path):
    files = (File("/etc/motd", content="hello", owner="0", group="0"),)
    request, built, told = build(tmp_path, replace(BASE, packages=("bash",), files=files))
    assert family == [("install", "base", {"a": "1"}), ("packages", "1783764997")]
    assert built == layers.find(tmp_path / "cache", request.key)
    squashed = (built.folder / layers.SQUASHFS).read_bytes()
    assert (built.entry.size_bytes, built.entry.sha256) == (len(squashed), hashlib.sha256(squashed).hexdigest())
    assert built.entry.verity.salt == hashlib.sha256(b"sailloft-verity " + b"0" * 64).hexdigest()
    listing = (built.folder / layers.LISTING).read_bytes()
    assert built.entry.listing_sha256 == hashlib.sha256(listing).hexdigest()
    # The kernel is stored beside the layer. Content that would differ between builds or nodes is removed.
    assert sorted(json.loads(listing)) == [
        *("/boot", "/etc", "/etc/machine-id", "/etc/motd", "/lib", "/lib/modules", "/lib/modules/6.1"),
        *("/lib/modules/6.1/modules.dep", "/usr", "/usr/bin", "/usr/bin/bash"),
    ]
    assert json.loads(listing)["/etc/machine-id"]["size_bytes"] == 0
    assert (built.folder / layers.VMLINUZ).read_text() == "boot/vmlinuz-6.1"
    assert (built.kernel.version, built.kernel.size_bytes) == ("6.1", len("boot/vmlinuz-6.1"))
    assert built.packages == ({"name": "bash", "version": "5.2", "architecture": "amd64"},)
    assert built.entry.inputs == {
        **request.inputs, "release_digests": {"a": "1"}, "source_date_epoch": 1_783_764_997
    }  # fmt: skip
    assert told[:3] == [
        "layer base: installing 1 package and dependencies",
        "layer base: users, files, services",
        "layer base: writing the squashfs",
    ]
    assert told[3].startswith("layer base: 0.0 MB, ")


def test_a_layer_is_on_the_disk_before_it_has_its_place_in_the_cache(tmp_path, monkeypatch):
    out, place, synced = tmp_path / "out", tmp_path / "layers" / "key", []
    out.mkdir()
    (out / "layer.squashfs").write_text("whole")
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append((os.readlink(f"/proc/self/fd/{handle}"), place.exists()))
    )
    layers.keep(out, place)
    assert synced == [(str(out / "layer.squashfs"), False), (str(out), False)]
    assert (place / "layer.squashfs").read_text() == "whole"


def test_two_builds_give_the_same_bytes(family, tmp_path):
    digests = [build(tmp_path / name, BASE)[1].entry.sha256 for name in ("one", "two")]
    assert digests[0] == digests[1]


def test_the_progress_of_an_empty_layer_lists_only_its_steps(family, tmp_path):
    assert build(tmp_path, BASE)[2][:-1] == ["layer base: writing the squashfs"]


def test_a_layer_with_two_kernels_is_refused(family, tmp_path):
    files = [File(f"/{name}", content="", owner="0", group="0") for name in ("boot/vmlinuz-6.12", "lib/modules/6.12/x")]
    with raises(ImageError, "base", "2", "6.1", "6.12"):
        build(tmp_path, replace(BASE, files=tuple(files)))
    assert not (tmp_path / "cache/layers").exists()


def test_a_file_that_changes_during_the_build_is_refused(tmp_path):
    source = tmp_path / "limits"
    source.write_text("one")
    archive = Archive("http://a/debian", ("bookworm",), ("main",), "/keys.gpg")
    layer = Layer(
        "base", None, "debian", "bookworm", "amd64", (archive,), files=(File("/etc/limits", source=str(source)),)
    )
    request = layers.LayerRequest(layer, "0" * 64, {}, layer_inputs(layer, layers.content_digests(layer)), 0)
    layers.require_unchanged(request)
    source.write_text("two")
    with raises(ImageError, "base", "/etc/limits", "changed"):
        layers.require_unchanged(request)
    source.unlink()
    with pytest.raises(ImageError, match=rf"layer base: file /etc/limits: cannot read {source}"):
        layers.content_digests(layer)


PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIFJ5\n-----END PRIVATE KEY-----\n"


def test_a_private_key_in_a_layer_is_refused_unless_a_package_or_the_setting_makes_it_public(
    family, tmp_path, monkeypatch
):
    """A package's script makes two keys; a third comes from the package's archive."""

    def contents(root, layer, run):
        for path in ("etc/made/a.key", "etc/made/b.key", "usr/share/doc/example.key"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(PRIVATE_KEY)

    monkeypatch.setattr(tree_contents, "apply", contents)
    with pytest.raises(ImageError) as caught:
        build(tmp_path / "none", BASE)
    assert caught.value.subject == "layer base"
    assert "/etc/made/a.key (private key in PEM), /etc/made/b.key (private key in PEM)" in caught.value.cause
    assert "example.key" not in caught.value.cause
    assert "published_keys" in caught.value.remedy
    assert not (tmp_path / "none/cache/layers").exists()
    with pytest.raises(ImageError, match=r"could read /etc/made/b\.key"):
        build(tmp_path / "one", replace(BASE, published_keys=("/etc/made/a.key",)))
    _request, built, _told = build(tmp_path / "both", replace(BASE, published_keys=("/etc/made",)))
    assert {"/etc/made/a.key", "/usr/share/doc/example.key"} <= set(
        json.loads((built.folder / "listing.json").read_text())
    )


@pytest.mark.parametrize("setting", ["content", "source"])
def test_a_private_key_in_files_is_refused_before_the_build(tmp_path, setting):
    (tmp_path / "key").write_text(PRIVATE_KEY)
    file = File("/etc/a.key", **{setting: PRIVATE_KEY if setting == "content" else str(tmp_path / "key")})
    with raises(ImageError, "base", "/etc/a.key", "PEM", "published_keys"):
        layers.content_digests(replace(BASE, files=(file,)))
    assert layers.content_digests(replace(BASE, files=(file,), published_keys=("/etc/a.key",))) is not None


@pytest.mark.parametrize("dkms", [True, False])
def test_dkms_gets_a_setting_while_a_layer_is_built_of_which_nothing_is_left(family, tmp_path, monkeypatch, dkms):
    seen = []

    def contents(root, layer, run):
        folder = root / "etc/dkms/framework.conf.d"
        (path,) = folder.iterdir()
        seen.append(path.read_text())
        if dkms:
            (folder.parent / "framework.conf").touch()

    monkeypatch.setattr(tree_contents, "apply", contents)
    _request, built, _told = build(tmp_path, BASE)
    left = [path for path in json.loads((built.folder / "listing.json").read_text()) if path.startswith("/etc/dkms")]
    # The package's own directory stays.
    assert left == (["/etc/dkms", "/etc/dkms/framework.conf", "/etc/dkms/framework.conf.d"] if dkms else [])
    (text,) = seen
    for key, tool in (("", "/nonexistent"), ("/etc/site/mok.key", "")):
        script = f"mok_signing_key={key}; {text} echo $sign_file"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == tool


def test_the_digest_of_a_role_depends_on_files_that_its_variables_name(tmp_path):
    """The image has the content of node_identity's public key, and the inventory has only its path."""
    pytest.importorskip("ansible")
    key = tmp_path / "image.pub"

    def digest(variables):
        archive = Archive("http://a/debian", ("bookworm",), ("main",), "/keys.gpg")
        role = Role("sailloft.fleet.node_identity", variables)
        layer = Layer("site", "base", "debian", "bookworm", "amd64", (archive,), roles=(role,))
        return layers.content_digests(layer)[role.name]

    without = digest({"node_identity_public_key": str(key)})
    key.write_text("one")
    one = digest({"node_identity_public_key": str(key)})
    key.write_text("two")
    assert len({without, one, digest({"node_identity_public_key": str(key)})}) == 3
    assert digest({"deep": [{"er": str(key)}]}) == digest({"node_identity_public_key": str(key)})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("layer.squashfs", "shor"),
        ("layer.squashfs", None),
        ("listing.json", None),
        ("layer.json", "{"),
        ("layer.json", ""),
    ],
)
def test_a_damaged_layer_of_the_cache_is_not_used(tmp_path, name, content):
    folder = tmp_path / "layers" / ("0" * 64)
    folder.mkdir(parents=True)
    verity = {"data_bytes": 5, "root_sha256": "0" * 64, "salt": ""}
    digests = dict.fromkeys(("key", "sha256", "listing_sha256"), "0" * 64)
    entry = {"name": "base", **digests, "size_bytes": 5, "verity": verity, "inputs": {}}
    (folder / "layer.json").write_text(json.dumps({"entry": entry, "kernel": None, "packages": []}))
    (folder / "layer.squashfs").write_text("whole")
    (folder / "listing.json").write_text("{}")
    os.utime(folder, (0, 0))
    assert layers.find(tmp_path, "0" * 64).entry.name == "base"
    assert folder.stat().st_mtime > 0
    assert layers.built(tmp_path, REQUEST) == layers.find(tmp_path, "0" * 64)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    assert layers.find(tmp_path, "0" * 64) is None
    with raises(ImageError, "base", folder, "node_image_cache_dir"):
        layers.built(tmp_path, REQUEST)
    out = tmp_path / "out"
    out.mkdir()
    layers.keep(out, folder)
    assert folder.is_dir()
    assert not list(folder.iterdir())


def test_a_user_that_is_missing_from_passwd_is_refused(tmp_path):
    """The useradd of an image may write to another database."""
    user = User("ops", authorized_keys=("ssh-ed25519 AAAA ops",))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bash").touch()
    with raises(ImageError, "base", "no user ops"):
        tree_contents.apply(tmp_path, replace(BASE, users=(user,)), lambda argv: "")


def test_a_file_without_content_and_source_is_refused(tmp_path):
    with raises(ImageError, "base", "/etc/limits", "content", "source"):
        tree_contents.apply(
            tmp_path, replace(BASE, files=(File("/etc/limits", owner="0", group="0"),)), lambda argv: ""
        )
    assert list(tmp_path.iterdir()) == []
