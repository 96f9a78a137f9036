# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from image_samples import Sample, sha256, tree
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, garbage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.contents import inventory
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

# All have the same base, and the last two the same name.
IMAGES = [
    Sample("login", base=b"base"),
    Sample("gpu-node", base=b"base", gpu=b"driver 1"),
    Sample("gpu-node", base=b"base", gpu=b"driver 22"),
]
LOGIN, OLD, NEW = IMAGES


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "store"))
    for sample in IMAGES:
        sample.publish(store, tmp_path / "cache")
    return store


def row(sample: Sample, **changes) -> dict:
    """Return the row of an image that is whole."""
    return {
        "digest": sample.digest,
        "name": sample.manifest.name,
        "layers": [layer.name for layer in sample.manifest.layers],
        "kernel": "6.1.0-31-cloud-amd64",
        "size_bytes": sum(len(data) for data in sample.contents.values()),
        "knows": list(sample.manifest.first_stage.knows),
        "signed_kernel": False,
        "problem": None,
        "kept_for": [],
        **changes,
    }


def unread(sample: Sample, problem: str) -> dict:
    """Return the row of an image whose manifest cannot be read."""
    return row(sample, name=None, layers=[], kernel=None, size_bytes=0, knows=[], problem=problem)


def by_digest(*rows: dict) -> list[dict]:
    return sorted(rows, key=lambda item: item["digest"])


def the_row(store: Store, sample: Sample) -> dict:
    (found,) = [item for item in inventory(store, {})["images"] if item["digest"] == sample.digest]
    return found


def test_a_store_is_listed_with_its_images_channels_and_sizes(store):
    for digest in (LOGIN.digest, OLD.digest, NEW.digest):
        channels.promote(store, "stable", digest)
    channels.promote(store, "canary", NEW.digest)
    before = tree(store.path)
    whole = {name: data for sample in IMAGES for name, data in sample.contents.items()}
    assert inventory(store, {NEW.digest: ["channel canary", "channel stable"], OLD.digest: ["keep"]}) == {
        "images": by_digest(
            row(LOGIN), row(OLD, kept_for=["keep"]), row(NEW, kept_for=["channel canary", "channel stable"])
        ),
        "channels": [
            {"name": "canary", "digest": NEW.digest, "history": []},
            {"name": "stable", "digest": NEW.digest, "history": [OLD.digest, LOGIN.digest]},
        ],
        "missing": [],
        "blobs": len(whole),
        # Each shared blob counts once here, and in the size of each image that has it.
        "size_bytes": sum(len(data) for data in whole.values()),
    }
    assert tree(store.path) == before


def test_an_empty_store_has_empty_lists(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "images").mkdir()
    assert inventory(Store(str(tmp_path)), {}) == {
        "images": [], "channels": [], "missing": [], "blobs": 0, "size_bytes": 0,
    }  # fmt: skip


def test_the_signed_kernel_of_an_image_is_listed(store):
    Path(store.place("images", NEW.digest, "boot.efi")).write_bytes(b"signed")
    assert the_row(store, NEW) == row(NEW, signed_kernel=True)
    assert not the_row(store, OLD)["signed_kernel"]


def test_missing_images_are_listed_with_their_reasons_in_the_given_order(store):
    reasons = {"f" * 64: ["channel lab", "node bm01"], NEW.digest: ["keep"], "0" * 64: []}
    assert inventory(store, reasons)["missing"] == [
        {"digest": "f" * 64, "kept_for": ["channel lab", "node bm01"]},
        {"digest": "0" * 64, "kept_for": []},
    ]


def test_garbage_is_left_out_as_if_it_were_removed(store):
    reasons = garbage.reasons(store, [], 0)
    before = tree(store.path)
    predicted = inventory(store, reasons, garbage.garbage(store, [], 0))
    assert tree(store.path) == before
    assert predicted["images"] == by_digest(
        row(LOGIN, kept_for=["last build of login"]), row(NEW, kept_for=["last build of gpu-node"])
    )
    staying = {**LOGIN.contents, **NEW.contents}
    assert predicted["blobs"] == len(staying)
    assert predicted["size_bytes"] == sum(len(data) for data in staying.values())
    garbage.collect(store, [], 0)
    assert inventory(store, reasons) == predicted


def test_garbage_that_is_kept_for_a_reason_is_missing(store):
    gone = garbage.Garbage((f"images/{OLD.digest}",), 0)
    found = inventory(store, {OLD.digest: ["keep"]}, gone)
    assert found["images"] == by_digest(row(LOGIN), row(NEW))
    assert found["missing"] == [{"digest": OLD.digest, "kept_for": ["keep"]}]


def test_an_image_with_a_changed_manifest_has_only_a_problem(store):
    manifest = Path(store.place("images", NEW.digest, "manifest.json"))
    manifest.write_bytes(b"{}")
    problem = (
        f"its manifest was changed, the digest is {sha256(b'{}')}; "
        "remove the image's directory, and publish or copy it again"
    )
    assert inventory(store, {})["images"] == by_digest(row(LOGIN), row(OLD), unread(NEW, problem))
    manifest.unlink()
    assert the_row(store, NEW) == unread(NEW, "has no manifest.json; publish or copy the image again")


def test_the_first_missing_blob_is_reported_and_not_counted(store):
    gone = sorted(NEW.contents.keys() - LOGIN.contents.keys() - OLD.contents.keys())
    assert len(gone) > 1
    for name in gone:
        os.remove(store.place("blobs", name))
    problem = f"blob {gone[0]} is missing or truncated; copy or publish the image again"
    size = sum(len(data) for name, data in NEW.contents.items() if name not in gone)
    assert inventory(store, {})["images"] == by_digest(row(LOGIN), row(OLD), row(NEW, problem=problem, size_bytes=size))


def test_a_truncated_blob_counts_with_the_size_that_it_has(store):
    layer = NEW.manifest.layers[1]
    Path(store.place("blobs", layer.sha256)).write_bytes(b"dri")
    found = the_row(store, NEW)
    assert found["problem"] == f"blob {layer.sha256} is missing or truncated; copy or publish the image again"
    assert found["size_bytes"] == row(NEW)["size_bytes"] - len(b"driver 22") + len(b"dri")


def test_an_image_of_a_channel_that_is_not_in_the_store_is_only_missing(store):
    channels.promote(store, "stable", OLD.digest)
    shutil.rmtree(store.place("images", OLD.digest))
    found = inventory(store, garbage.reasons(store, [], 0))
    assert [item["digest"] for item in found["images"]] == sorted([LOGIN.digest, NEW.digest])
    assert found["channels"] == [{"name": "stable", "digest": OLD.digest, "history": []}]
    assert found["missing"] == [{"digest": OLD.digest, "kept_for": ["channel stable"]}]


def test_a_directory_that_is_no_store_and_a_damaged_channel_are_refused(store, tmp_path):
    with raises(ImageError, tmp_path, "blobs"):
        inventory(Store(str(tmp_path)), {})
    channels.promote(store, "stable", OLD.digest)
    Path(store.place("channels", "stable.ipxe")).write_bytes(b"#!ipxe\n")
    with raises(ImageError, "channel stable", "format"):
        inventory(store, {})
