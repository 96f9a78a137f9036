# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The manifest's bytes, and files that are replaced atomically."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_samples import Sample, sha256
from kills import fail_while_writing, kills

from ansible_collections.sailloft.fleet.plugins.module_utils.given import disk
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


@given(
    st.sampled_from(WAYS),
    st.sampled_from(["remove", "add", None, True, -1, 0, 1.5, "", "x", "A" * 64, [], {}, [None], {"x": 1}]),
)
def test_a_changed_manifest_is_refused_or_is_read_back_unchanged(way, value):
    raw = json.loads(SAMPLE.bytes)
    place = raw
    for step in way[:-1]:
        place = place[step]
    if value == "remove":
        del place[way[-1]]
    elif value == "add":
        if isinstance(place, dict):
            place["colour"] = "red"
    else:
        place[way[-1]] = value
    data = files.canonical_json(raw)
    try:
        loaded = manifest.load(data, "manifest of x")
    except ImageError as error:
        told = str(error)
        assert told.startswith("manifest of x: ")
    else:
        assert manifest.dump(loaded) == data


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda raw: raw.update(format="sailloft-image/2"),
            "not a manifest of format sailloft-image/1, but 'sail",
        ),
        (lambda raw: raw.pop("suite"), "manifest has no suite"),
        (lambda raw: raw.update(colour="red"), "unknown key 'colour'"),
        (lambda raw: raw.update(layers=[]), "it has no layers"),
        (lambda raw: raw.update(name="../x"), "'../x' is not a name"),
        (lambda raw: raw["kernel"].update(size_bytes=True), "kernel: size_bytes True is not a whole number"),
        (lambda raw: raw["kernel"].update(sha256="0" * 63), "is not a sha256"),
        (lambda raw: raw["layers"][0].update(name="gpu"), "two layers have the same name"),
        (lambda raw: raw["layers"][0]["verity"].update(salt="xyz"), "salt 'xyz' is not hexadecimal"),
        (
            lambda raw: raw["layers"][0]["verity"].update(data_bytes=9),
            "layer base has 9 bytes of data, but a size of 4 bytes",
        ),
        (lambda raw: raw["packages"][0].update(layer="site"), "package bash belongs to layer site"),
    ],
)
def test_an_invalid_manifest_is_refused_with_the_reason(change, told):
    raw = copy.deepcopy(json.loads(SAMPLE.bytes))
    change(raw)
    with pytest.raises(ImageError) as caught:
        manifest.load(files.canonical_json(raw), "manifest of x")
    assert told in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100000, b"null\n", SAMPLE.bytes[:-1], SAMPLE.bytes + b"\n"])
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
