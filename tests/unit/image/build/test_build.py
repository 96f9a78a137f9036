# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A build from cached layers is published once. tests/image builds layers."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from ansible.module_utils.urls import open_url
from build_host import make_keys
from image_samples import Sample, sha256
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import build, first_stages
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.fetch import Fetcher
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.setting import BuildEnvironment
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Image, Layer, OciImage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import debian
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci.layout import Layout
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, (*build.TOOLS, *debian.TOOLS))),
    reason="not root, or the builder's tools are not on this machine (bindep.txt)",
)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return (images, setting, requests) of an image with two cached layers; the lower one has the kernel."""
    monkeypatch.setenv("PATH", os.environ["PATH"])  # to restore it after the test: the build changes it
    release = tmp_path / "archive/dists/bookworm/InRelease"
    release.parent.mkdir(parents=True)
    release.write_text("Suite: bookworm\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n")
    (tmp_path / "keyring.gpg").write_bytes(b"keys")
    archive = Archive(f"file://{tmp_path}/archive", ("bookworm",), ("main",), str(tmp_path / "keyring.gpg"))
    base = Layer("base", None, "debian", "bookworm", "amd64", (archive,))
    top = Layer("top", "base", "debian", "bookworm", "amd64", (archive,))
    images = {"node": Image("node", (base, top), ("quiet",), 1024)}
    keys = make_keys(tmp_path / "keys")
    signer = Signer(str(keys / "image.key"), str(keys / "image.pub"))
    setting = BuildEnvironment(tmp_path / "store", tmp_path / "cache", signer, "init", False, open_url)
    requests = build.layer_requests(images, Fetcher(open_url))
    sample = Sample("node", base=b"lower", top=b"upper")
    packages = [{"name": "bash", "version": "5.2", "architecture": "amd64"}]
    for entry, kernel in zip(sample.manifest.layers, (sample.manifest.kernel, None)):
        folder = tmp_path / "cache/layers" / requests[entry.name].key
        folder.mkdir(parents=True)
        folders = (f"/{entry.name}", "/usr/sbin/init")
        listing = json.dumps({name: {"type": "directory", "mode": "0755", "owner": 0, "group": 0} for name in folders})
        entry = replace(entry, key=requests[entry.name].key, listing_sha256=sha256(listing.encode()))
        record = {"entry": asdict(entry), "kernel": kernel and asdict(kernel), "packages": packages}
        (folder / "layer.json").write_text(json.dumps(record))
        (folder / "layer.squashfs").write_bytes(sample.contents[entry.sha256])
        (folder / "listing.json").write_text(listing)
        if kernel:
            (folder / "vmlinuz").write_bytes(sample.contents[kernel.sha256])
    chain = list(requests.values())
    public = (keys / "image.pub").read_text().splitlines()[1]
    stage = first_stages.stage_place(setting, public, chain, chain[0])
    assert not first_stages.has_stage(setting, public, chain)
    stage.parent.mkdir()
    stage.write_bytes(b"first stage")
    assert first_stages.has_stage(setting, public, chain)
    return images, setting, requests


def test_an_image_of_cached_layers_is_published_once(site):
    images, setting, requests = site
    messages = []
    (first,) = build.build(images, setting, messages.append)
    assert (first.name, first.changed, first.built) == ("node", True, ())
    store = Store(str(setting.store))
    assert store.current("node") == first.digest
    there = store.manifest(first.digest)
    assert [(layer.name, layer.key) for layer in there.layers] == [(name, each.key) for name, each in requests.items()]
    assert [(package.name, package.layer) for package in there.packages] == [("bash", "base")]
    assert there.kernel_arguments == ("quiet",)
    assert there.first_stage.size_bytes == len(b"first stage")
    assert not store.missing_blobs(there)
    assert first.size_bytes == sum(there.boot_blobs().values())
    assert messages[-1].startswith(f"image node: published, {first.digest[:12]}, ")
    (again,) = build.build(images, setting, messages.append)
    assert (again.digest, again.changed, again.diff) == (first.digest, False, ())
    assert messages[-1] == f"image node: unchanged, {first.digest[:12]}"


def test_check_mode_publishes_nothing(site):
    images, setting, _requests = site
    (found,) = build.build(images, replace(setting, check=True), lambda _line: None)
    assert found.changed
    assert "  + layer base: none -> 5 B" in found.diff
    assert Store(str(setting.store)).current("node") is None


def test_a_container_image_needs_its_tools(site, monkeypatch):
    images, setting, _requests = site
    monkeypatch.setattr(build.download, "TOOLS", ("nonesuch",))
    base, top = images["node"].layers
    base = replace(base, oci=OciImage(f"sha256:{'0' * 64}", archive="/srv/i.tar"))
    with raises(ImageError, "nonesuch"):
        build.build({"node": replace(images["node"], layers=(base, top))}, setting, lambda _line: None)


def test_the_time_of_a_container_image_counts_for_all_layers_on_it(site):
    images, _setting, requests = site
    newer = requests["base"].epoch + 5
    later = build.layer_requests(images, Fetcher(open_url), {"base": Layout(Path("/layout"), (), newer)})
    assert [later[name].epoch for name in ("base", "top")] == [newer, newer]


def test_an_image_without_init_is_not_published(site):
    images, setting, requests = site
    for request in requests.values():
        (setting.cache / "layers" / request.key / "listing.json").write_text(json.dumps({}))
    with raises(ImageError, "node", "base", "top", "/sbin/init"):
        build.build(images, setting, lambda _line: None)
    removed = json.dumps({"/usr/sbin/init": {"type": "whiteout"}})
    (setting.cache / "layers" / requests["top"].key / "listing.json").write_text(removed)
    with raises(ImageError, "/sbin/init"):
        build.build(images, setting, lambda _line: None)
    assert Store(str(setting.store)).current("node") is None


def test_leftovers_of_a_killed_build_are_removed(site):
    images, setting, _requests = site
    left = setting.cache / "work/layer-0"
    left.mkdir(parents=True)
    build.build(images, setting, lambda _line: None)
    assert not left.parent.exists()


def test_the_path_of_a_first_stage_depends_on_key_init_and_layers(site):
    _images, setting, requests = site
    chain = list(requests.values())
    places = {
        first_stages.stage_place(*each)
        for each in (
            (setting, "key", chain, chain[0]),
            (setting, "other key", chain, chain[0]),
            (replace(setting, init="other"), "key", chain, chain[0]),
            (setting, "key", chain, chain[1]),
            (setting, "key", chain[1:], chain[1]),
            (setting, "key", [chain[0], replace(chain[1], layer=replace(chain[1].layer, drivers=("nfp",)))], chain[0]),
        )
    }
    assert len(places) == 6


def test_the_kernel_of_the_highest_layer_with_a_kernel_is_used(site):
    _images, setting, requests = site
    base, top = requests.values()
    assert first_stages.kernel_of("node", setting.cache, [base, top]).request is base
    with raises(ImageError, "node", "top", "kernel"):
        first_stages.kernel_of("node", setting.cache, [top])
    assert not first_stages.has_stage(setting, "key", [replace(base, key="0" * 64), top])


def test_an_existing_first_stage_is_not_built_again(site, tmp_path):
    _images, setting, requests = site
    chain = list(requests.values())
    public = setting.signer.key
    messages = []
    first_stages.make_stage("node", setting, chain, public, tmp_path, None, messages.append)
    assert messages == []
