# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A layer's container image is named by its digest; what would be another image tomorrow is refused."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_inputs import layer_inputs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_keys import layer_key
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import OciImage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images

DIGEST = f"sha256:{'1f' * 32}"
IMAGE = {"image": "registry.example:5000/hpc/rocky9", "digest": DIGEST}
BASE = {"distribution": "rocky", "suite": "9", "architecture": "x86_64"}


def layer_of(oci: object, **more: object):
    (layer,) = read_images({"node": {"layer": "base"}}, {"base": {**BASE, "oci": oci, **more}})["node"].layers
    return layer


@pytest.mark.parametrize(
    ("oci", "image"),
    [
        (IMAGE, OciImage(DIGEST, IMAGE["image"])),
        ({**IMAGE, "image": "localhost/a", "verify_tls": False}, OciImage(DIGEST, "localhost/a", verify_tls=False)),
        ({**IMAGE, "auth_file": "/root/a.json"}, OciImage(DIGEST, IMAGE["image"], auth_file="/root/a.json")),
        ({"archive": "/srv/i.tar", "digest": DIGEST}, OciImage(DIGEST, archive="/srv/i.tar")),
    ],
)
def test_a_layer_with_an_image_needs_no_archives_and_packages(oci, image):
    layer = layer_of(oci)
    assert (layer.oci, layer.archives, layer.packages) == (image, (), ())


@pytest.mark.parametrize(
    "oci",
    [
        {"image": IMAGE["image"]},
        {"archive": "/srv/i.tar"},
        {**IMAGE, "image": "registry.example/rocky9:9.4"},
        {**IMAGE, "image": f"registry.example/rocky9@{DIGEST}"},
        {**IMAGE, "image": "rocky9"},
        {**IMAGE, "image": "library/rocky9"},
        {**IMAGE, "image": "registry.example"},
        {**IMAGE, "image": "docker://registry.example/rocky9"},
        {**IMAGE, "image": "user:word@registry.example/rocky9"},
        {**IMAGE, "image": "registry.example/a/../b"},
        {**IMAGE, "digest": "9.4"},
        {**IMAGE, "digest": "1f" * 32},
        {**IMAGE, "digest": DIGEST.upper()},
        {**IMAGE, "archive": "/srv/i.tar"},
        {"digest": DIGEST},
        {"archive": "i.tar", "digest": DIGEST},
        {"archive": "/srv/i.tar", "digest": DIGEST, "auth_file": "/root/a.json"},
        {"archive": "/srv/i.tar", "digest": DIGEST, "verify_tls": False},
        {**IMAGE, "auth_file": "a.json"},
        {**IMAGE, "verify_tls": "no"},
        {**IMAGE, "tag": "9"},
        "registry.example/rocky9",
    ],
)
def test_what_is_no_image_by_digest_is_refused(oci):
    with pytest.raises(ImageError) as caught:
        layer_of(oci)
    assert caught.value.subject.startswith("node_image_layers.base")


@pytest.mark.parametrize(
    ("given", "source"), [("image", "docker://registry.example:5000/hpc/rocky9"), ("archive", "oci-archive:/srv/i.tar")]
)
def test_without_a_digest_the_error_has_the_command_that_prints_it(given, source):
    place = {"image": IMAGE["image"], "archive": "/srv/i.tar"}[given]
    with pytest.raises(ImageError) as caught:
        layer_of({given: place})
    assert f"skopeo inspect --format '{{{{.Digest}}}}' {source}" in caught.value.remedy


def test_a_layer_with_a_parent_has_its_image():
    with pytest.raises(ImageError) as caught:
        read_images({}, {"base": {**BASE, "oci": IMAGE}, "top": {"parent": "base", "oci": IMAGE}})
    assert "oci" in caught.value.cause
    base, top = read_images(
        {"node": {"layer": "top"}}, {"base": {**BASE, "oci": IMAGE}, "top": {"parent": "base", "packages": ["less"]}}
    )["node"].layers
    assert (base.oci is None, top.oci) == (False, None)


def test_the_key_has_the_digest_and_not_where_the_image_comes_from():
    layer = layer_of(IMAGE)
    assert DIGEST in str(layer_inputs(layer, {}))
    assert "registry.example" not in str(layer_inputs(layer_of({**IMAGE, "auth_file": "/root/a.json"}), {}))
    keys = {
        layer_key(layer_of(oci), None, {}, {})
        for oci in (
            IMAGE,
            {**IMAGE, "image": "mirror.example/rocky9"},
            {**IMAGE, "auth_file": "/root/a.json", "verify_tls": False},
            {"archive": "/srv/i.tar", "digest": DIGEST},
        )
    }
    assert len(keys) == 1
    assert layer_key(layer_of({**IMAGE, "digest": f"sha256:{'2e' * 32}"}), None, {}, {}) not in keys
