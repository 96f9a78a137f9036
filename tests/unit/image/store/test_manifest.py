# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The manifest's bytes, and files that are replaced atomically."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_samples import Sample, sha256
from kills import fail_while_writing, kills

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import files
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest

SAMPLE = Sample("gpu-node", base=b"base", gpu=b"gpu", packages=[("bash", "5.2-1", "amd64", "base")])


def test_the_manifest_has_its_canonical_format():
    raw = json.loads(SAMPLE.bytes)
    assert SAMPLE.bytes == (json.dumps(raw, indent=2, sort_keys=True) + "\n").encode()
    names = "format name distribution suite architecture kernel first_stage kernel_arguments writable_mib layers"
    assert set(raw) == {*names.split(), "packages", "sbom_sha256"}
    assert raw["format"] == "sailloft-image/1"
    names = "name key sha256 size_bytes listing_sha256 verity inputs"
    assert set(raw["layers"][0]) == set(names.split())
    assert SAMPLE.digest == sha256(SAMPLE.bytes)
    assert manifest.load(SAMPLE.bytes, "x") == SAMPLE.manifest


def test_the_blobs_of_a_manifest_are_listed():
    assert SAMPLE.manifest.blobs() == set(SAMPLE.contents)
    assert sum(SAMPLE.manifest.boot_blobs().values()) == len(b"kernel" + b"first stage" + b"base" + b"gpu")


def ways(data, way=()):
    """Yield the path of every value in plain data."""
    if way:
        yield way
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in items:
        yield from ways(value, (*way, step))


WAYS = [way for way in ways(json.loads(SAMPLE.bytes)) if "inputs" not in way[:-1]]
REMOVED, UNKNOWN = object(), object()


def changed(way, value):
    """Return the sample's manifest with the value at a path changed or removed, or with an unknown key beside it."""
    raw = json.loads(SAMPLE.bytes)
    place = raw
    for step in way[:-1]:
        place = place[step]
    if value is REMOVED:
        del place[way[-1]]
    elif value is not UNKNOWN:
        place[way[-1]] = value
    elif isinstance(place, dict):
        place["colour"] = "red"
    return files.canonical_json(raw)


@given(
    st.sampled_from(WAYS),
    st.sampled_from([REMOVED, None, True, -1, 0, 1.5, "", "x", "A" * 64, [], {}, [None], {"x": 1}]),
)
def test_a_changed_manifest_is_refused_or_read(way, value):
    with contextlib.suppress(ImageError):
        loaded = manifest.load(changed(way, value), "x")
        assert manifest.load(manifest.dump(loaded), "x") == loaded


def test_unknown_keys_of_a_later_version_are_ignored():
    for way in WAYS:
        assert manifest.load(changed(way, UNKNOWN), "x") == SAMPLE.manifest, way


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("format", "sailloft-image/2", "use the version of the collection that wrote it"),
        ("format", REMOVED, "sailloft-image/1"),
        ("kernel", [], "kernel"),
        ("first_stage", REMOVED, "first_stage"),
        ("layers", [], "no layers"),
        ("layers.1", "gpu", "layers[1]"),
        ("layers.1.verity", None, "layers[1].verity"),
        ("kernel_arguments", ["quiet", ""], "kernel_arguments"),
        ("suite", REMOVED, "suite"),
        ("suite", "", "suite"),
        *(("kernel.size_bytes", value, "size_bytes") for value in (REMOVED, 0, -1, True, 1.5, "1")),
        ("writable_mib", 0, "writable_mib"),
        ("kernel.sha256", "A" * 64, "sha256"),
        ("first_stage.sha256", "0" * 65, "first_stage"),
        ("sbom_sha256", "x", "sbom_sha256"),
        ("layers.0.listing_sha256", "x", "layers[0]: listing_sha256"),
        ("layers.0.key", "x", "layers[0]: key"),
        ("layers.0.inputs", [], "layers[0].inputs"),
        ("layers.0.verity.root_sha256", "x", "layers[0].verity: root_sha256"),
        *(("layers.0.verity.salt", salt, "layers[0].verity") for salt in (7, "0", "xx", "00" * 257)),
        ("layers.0.verity.data_bytes", 5, "layer base"),
        ("name", "../x", "'../x'"),
        ("layers.1.name", "GPU", "'GPU'"),
        ("layers.1.name", "base", "two layers have the same name"),
        ("packages.0.layer", "site", "package bash"),
    ],
)
def test_an_invalid_value_is_refused_and_named(path, value, named):
    way = [int(step) if step.isdecimal() else step for step in path.split(".")]
    with pytest.raises(ImageError) as caught:
        manifest.load(changed(way, value), "manifest of x")
    assert named in f"{caught.value.cause}; {caught.value.remedy}"
    assert caught.value.subject == "manifest of x"


@pytest.mark.parametrize(
    ("path", "value"),
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
def test_a_value_at_a_limit_is_accepted(path, value):
    data = changed([int(step) if step.isdecimal() else step for step in path.split(".")], value)
    assert manifest.dump(manifest.load(data, "x")) == data


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\xff", b"[" * 100000, b"null\n", SAMPLE.bytes[:-1], SAMPLE.bytes + b"\n"]
)
def test_bytes_that_are_not_a_manifest_are_refused(data):
    with pytest.raises(ImageError, match="x: "):
        manifest.load(data, "x")


def test_an_interrupted_write_leaves_the_old_or_the_new_file(tmp_path):
    path = tmp_path / "file"
    disk.write_atomic(path, b"old")
    points = 0
    for _kill in kills(lambda: disk.write_atomic(path, b"new"), lambda: path.write_bytes(b"old")):
        points += 1
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert points == 4  # the file is opened by the system and as a stream, its mode is set, and it is renamed
    assert os.listdir(tmp_path) == ["file"]
    assert files.sha256_of(path) == sha256(b"new")

    def fail():
        with pytest.raises(OSError, match="too large"):
            disk.write_atomic(path, b"newer" * 1000)

    fail_while_writing(100, fail)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]
    assert Path(disk.temporary_of(path)).name == ".file.new"
