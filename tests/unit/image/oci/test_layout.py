# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Manifests, lists and times of container images; tests/image/test_oci.py has real registries and archives."""

from __future__ import annotations

import json

import pytest
from messages import raises
from oci_images import LAYER, OciLayout, tar

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer, OciImage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci import layout

BASE = Layer("base", None, "rocky", "9", "x86_64", (), oci=OciImage(f"sha256:{'0' * 64}", archive="/srv/i.tar"))


@pytest.fixture
def images(tmp_path) -> OciLayout:
    return OciLayout(tmp_path / "layout")


@pytest.mark.parametrize(
    ("created", "seconds"),
    [
        ("2026-01-02T03:04:05.678901234Z", 1767323045),
        ("2026-01-02T04:04:05+01:00", 1767323045),
        ("1970-01-01T00:00:00Z", 0),
        ("0001-01-01T00:00:00Z", 0),
        (None, 0),
    ],
)
def test_an_image_has_its_layers_in_order_and_its_time(images, created, seconds):
    lower, upper = tar(("a", "")), tar(("b", ""))
    images.name(images.image(lower, upper, created=created), "base")
    image = layout.read(images.folder, BASE)
    assert [path.read_bytes() for path in image.layers] == [lower, upper]
    assert image.created_s == seconds


@pytest.mark.parametrize("created", ["2026-01-02", "2026-13-02T03:04:05Z", 7, "2199-01-01T00:00:00Z"])
def test_an_image_of_no_time_or_of_the_future_is_refused(images, created):
    images.name(images.image(tar(("a", "")), created=created), "base")
    with pytest.raises(ImageError) as caught:
        layout.read(images.folder, BASE)
    assert BASE.oci.digest in caught.value.subject


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"manifests": []}', b'{"manifests": [{"digest": "../x"}]}'])
def test_what_is_no_layout_is_refused(images, text):
    (images.folder / "index.json").write_bytes(text)
    with pytest.raises(ImageError):
        layout.read(images.folder, BASE)


@pytest.mark.parametrize("digest", ["../../etc/passwd", "sha512:" + "0" * 128, 7])
def test_a_digest_is_no_path(images, digest):
    config = images.blob(json.dumps({"os": "linux", "architecture": "amd64"}).encode(), layout.CONFIG)
    document = {"config": config, "layers": [{"mediaType": LAYER, "digest": digest}]}
    images.name(images.blob(json.dumps(document).encode(), layout.MANIFEST), "base")
    with pytest.raises(ImageError):
        layout.read(images.folder, BASE)


@pytest.mark.parametrize("part", ["manifest", "config"])
def test_an_image_in_dockers_form_is_refused(images, part):
    docker = "application/vnd.docker.distribution.manifest.v2+json"
    kinds = {"manifest": layout.MANIFEST, "config": layout.CONFIG, part: docker}
    config = images.blob(json.dumps({"os": "linux", "architecture": "amd64"}).encode(), kinds["config"])
    document = {"mediaType": kinds["manifest"], "config": config, "layers": []}
    images.name(images.blob(json.dumps(document).encode(), kinds["manifest"]), "base")
    with raises(ImageError, docker):
        layout.read(images.folder, BASE)


def test_a_list_gives_the_manifest_of_the_architecture(images):
    ours, other = images.image(tar(("a", ""))), images.image(tar(("b", "")), architecture="arm64")
    attested = {**images.image(tar(("c", ""))), "platform": {"os": "unknown", "architecture": "unknown"}}
    listed = images.index(attested, other, ours)

    def blob(digest: str) -> bytes:
        return (images.blobs / digest[7:]).read_bytes()

    assert layout.manifest_of(listed["digest"], "x86_64", blob) == ours["digest"]
    assert layout.manifest_of(listed["digest"], "aarch64", blob) == other["digest"]
    assert layout.manifest_of(ours["digest"], "x86_64", blob) == ours["digest"]
    with pytest.raises(LookupError):
        layout.manifest_of(images.index(other)["digest"], "x86_64", blob)
