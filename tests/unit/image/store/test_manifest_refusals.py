# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every refusal of a manifest as a whole message, and the values at its limits."""

from __future__ import annotations

import json

import pytest
from image_samples import Sample

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest

SAMPLE = Sample("gpu-node", base=b"base", gpu=b"gpu", packages=[("bash", "5.2-1", "amd64", "base")])
REMOVED = object()


def changed(way, value):
    """Return the sample's manifest with one value changed or removed, such as "layers.0.verity.salt"."""
    raw = json.loads(SAMPLE.bytes)
    *steps, last = [int(step) if step.isdigit() else step for step in way.split(".")]
    place = raw
    for step in steps:
        place = place[step]
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return canonical_json(raw)


def refused(data):
    with pytest.raises(ImageError) as caught:
        manifest.load(data, "image x")
    text, end = str(caught.value), "; build the image again with this version of the collection"
    assert text.startswith("image x: ")
    assert text.endswith(end)
    return text[len("image x: ") : -len(end)]


@pytest.mark.parametrize(
    ("way", "value", "told"),
    [
        ("format", "sailloft-image/2", "not a manifest of format sailloft-image/1, but 'sailloft-image/2'"),
        ("format", REMOVED, "not a manifest of format sailloft-image/1, but None"),
        ("kernel", [], "kernel is not an object"),
        ("first_stage", REMOVED, "first_stage is not an object"),
        ("layers", {}, "layers is not a list"),
        ("layers.1", "gpu", "layers[1] is not an object"),
        ("layers.1.verity", None, "layers[1].verity is not an object"),
        ("packages", None, "packages is not a list"),
        ("packages.0", [], "packages[0] is not an object"),
        ("kernel_arguments", "quiet", "kernel_arguments is not a list"),
        ("kernel_arguments", ["quiet", ""], "kernel_arguments[1] '' is not text"),
        ("kernel_arguments", [7], "kernel_arguments[0] 7 is not text"),
        ("suite", REMOVED, "manifest has no suite"),
        ("suite", "", "manifest: suite '' is not text"),
        ("suite", 7, "manifest: suite 7 is not text"),
        ("colour", "red", "manifest has the unknown key 'colour'"),
        ("kernel.size_bytes", REMOVED, "kernel has no size_bytes"),
        *(
            ("kernel.size_bytes", value, f"kernel: size_bytes {value!r} is not a whole number of at least 1")
            for value in (0, -1, True, 1.5, "1")
        ),
        ("writable_mib", 0, "manifest: writable_mib 0 is not a whole number of at least 1"),
        ("kernel.sha256", "A" * 64, f"kernel: sha256 {'A' * 64!r} is not a sha256"),
        ("first_stage.sha256", "0" * 65, f"first_stage: sha256 {'0' * 65!r} is not a sha256"),
        ("sbom_sha256", "x", "manifest: sbom_sha256 'x' is not a sha256"),
        ("layers.0.listing_sha256", "x", "layers[0]: listing_sha256 'x' is not a sha256"),
        ("layers.0.key", "x", "layers[0]: key 'x' is not a sha256"),
        ("layers.0.inputs", [], "layers[0]: inputs is not an object"),
        ("layers.0.verity.root_sha256", "x", "layers[0].verity: root_sha256 'x' is not a sha256"),
        ("layers.0.verity.salt", 7, "layers[0].verity: salt 7 is not text"),
        *(
            ("layers.0.verity.salt", salt, f"layers[0].verity: salt {salt!r} is not hexadecimal of at most 256 bytes")
            for salt in ("0", "xx", "00" * 257)
        ),
        ("layers.0.verity.data_bytes", 5, "layer base has 5 bytes of data, but a size of 4 bytes"),
        ("layers", [], "it has no layers"),
        ("name", "../x", "'../x' is not a name of an image or a layer"),
        ("layers.1.name", "GPU", "'GPU' is not a name of an image or a layer"),
        ("layers.1.name", "base", "two layers have the same name"),
        ("packages.0.layer", "site", "package bash belongs to layer site, which does not exist"),
    ],
)
def test_an_invalid_value_is_refused(way, value, told):
    assert refused(changed(way, value)) == told


@pytest.mark.parametrize(
    ("way", "value"),
    [
        ("layers.0.verity.salt", ""),
        ("layers.0.verity.salt", "ff" * 256),
        ("layers.0.verity.data_bytes", 4),
        ("layers.0.verity.data_bytes", 1),
        ("writable_mib", 1),
        ("kernel_arguments", []),
        ("packages", []),
        ("layers.0.inputs", {}),
    ],
)
def test_a_value_at_a_limit_is_accepted(way, value):
    data = changed(way, value)
    assert manifest.dump(manifest.load(data, "x")) == data


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[]", "not a manifest of format sailloft-image/1, but None"),
        (b"", "not a manifest: Expecting value: line 1 column 1 (char 0)"),
        (
            SAMPLE.bytes[:-1],
            "the manifest is not in canonical form, so its digest does not identify its content",
        ),
    ],
)
def test_other_bytes_are_refused(data, told):
    assert refused(data) == told
