# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Publishing: the store's current image, and the packages of an image by layer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from image_samples import SIGNATURE, Sample, sha256

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import publish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import ImagePackage, dump
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store


def test_a_damaged_listing_of_the_store_counts_as_missing(tmp_path):
    image, store = Sample("gpu-node", base=b"base"), Store(str(tmp_path / "store"))
    image.publish(store, tmp_path / "blobs")
    listing = image.manifest.layers[0].listing_sha256
    (tmp_path / "store/blobs" / listing).write_text("{")
    assert publish.stored_image(store, image.digest) == (None, {})


def test_an_unreadable_image_counts_as_missing(tmp_path):
    store = Store(str(tmp_path / "store"))
    assert publish.stored_image(store, None) == (None, {})
    assert publish.stored_image(store, "0" * 64) == (None, {})


def part(layer, *packages):
    """Return a built layer with the packages (name, version) of it and the layers below it."""
    rows = tuple({"name": name, "version": version, "architecture": "amd64"} for name, version in packages)
    return SimpleNamespace(entry=SimpleNamespace(name=layer), packages=rows)


def test_each_package_has_the_layer_that_installed_its_version():
    parts = [part("base", ("a", "1"), ("b", "1"), ("c", "1")), part("gpu", ("a", "1"), ("b", "2"))]
    assert publish.packages_by_layer(parts) == (
        ImagePackage("a", "1", "amd64", "base"),
        ImagePackage("b", "2", "amd64", "gpu"),
    )
    again = [*parts, part("top", ("a", "1"), ("b", "2"), ("c", "1"))]
    assert publish.packages_by_layer(again)[2] == ImagePackage("c", "1", "amd64", "top")


def test_only_a_complete_image_with_a_valid_signature_is_whole(tmp_path, monkeypatch):
    image, store = Sample("gpu-node", base=b"base"), Store(str(tmp_path / "store"))
    image.publish(store, tmp_path / "blobs")
    valid = [(image.bytes, SIGNATURE, "key")]
    monkeypatch.setattr(publish.sign, "verifies", lambda *given: given in valid)

    def whole(key="key"):
        return publish.is_complete(store, image.digest, image.manifest, image.bytes, key)

    assert whole() is True
    assert whole("other key") is False
    (tmp_path / "store/images" / image.digest / "manifest.json.minisig").unlink()
    assert whole() is False
    image.publish(store, tmp_path / "blobs")
    (tmp_path / "store/blobs" / image.manifest.sbom_sha256).unlink()
    assert whole() is False


def test_the_listings_of_the_current_image_are_read_by_layer(tmp_path):
    image, store = Sample("gpu-node", base=b"base"), Store(str(tmp_path / "store"))
    data = b'{"/x": {"type": "file"}}'
    layer = replace(image.manifest.layers[0], listing_sha256=sha256(data))
    whole = replace(image.manifest, layers=(layer,))
    files = {**image.files(tmp_path / "blobs"), sha256(data): tmp_path / "listing"}
    del files[image.manifest.layers[0].listing_sha256]
    (tmp_path / "listing").write_bytes(data)
    digest = store.publish(dump(whole), SIGNATURE, b"#!ipxe", files)
    assert publish.stored_image(store, digest) == (whole, {"base": {"/x": {"type": "file"}}})
    (tmp_path / "store/blobs" / sha256(data)).unlink()
    assert publish.stored_image(store, digest) == (None, {})
