# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The modules node_image_channel and node_image_store, called as Ansible calls them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from image_samples import Sample, tree

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store
from ansible_collections.sailloft.fleet.plugins.modules import node_image_channel, node_image_store

ONE, TWO, THREE = (Sample("gpu-node", base=b"base", gpu=f"driver {at}".encode()) for at in range(3))


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "store"))
    for sample in (ONE, TWO, THREE):
        sample.publish(store, tmp_path / "cache")
    return store


@pytest.fixture
def run(capsys, store):
    """Return a function that calls a module in check mode and then really, and returns the second result.

    The first result must predict the second.
    """

    def call(module, check=False, **given):
        given = {"store": store.path, **given}

        def once(**more):
            with patch_module_args({**given, **more}), pytest.raises(SystemExit):
                module.main()
            return json.loads(capsys.readouterr().out)

        before = tree(store.path)
        told = once(_ansible_check_mode=True)
        assert tree(store.path) == before
        if check:
            return told
        done = once()
        for result in (told, done):
            result.pop("invocation"), result.pop("now_s", None)
        assert done == told
        assert (tree(store.path) != before) == bool(done.get("changed"))
        assert set(done) <= {
            "changed",
            "diff",
            "failed",
            "msg",
            *(yaml.safe_load(module.RETURN) if "failed" not in done else ()),
        }
        return done

    return call


def test_a_channel_is_promoted_rolled_back_and_removed(run, store):
    first = run(node_image_channel, channel="stable", digest=ONE.digest)
    assert first["changed"]
    assert first["previous"] is None
    assert first["diff"]["before"] == ""
    assert first["diff"]["after_header"] == os.path.join(store.path, "channels", "stable.ipxe")
    assert not run(node_image_channel, channel="stable", digest=ONE.digest)["changed"]
    second = run(node_image_channel, channel="stable", digest=TWO.digest, state="promoted")
    assert (second["digest"], second["history"], second["previous"]) == (TWO.digest, [ONE.digest], ONE.digest)
    assert second["diff"]["before"] == first["diff"]["after"]
    assert second["diff"]["after"] == Path(store.place("channels", "stable.ipxe")).read_text()
    back = run(node_image_channel, channel="stable", digest=TWO.digest, state="rolled_back")
    assert (back["digest"], back["history"], back["previous"]) == (ONE.digest, [], TWO.digest)
    again = run(node_image_channel, channel="stable", digest=TWO.digest, state="rolled_back")
    assert not again["changed"]
    assert again["digest"] == ONE.digest
    gone = run(node_image_channel, channel="stable", state="absent")
    assert (gone["changed"], gone["digest"], gone["history"], gone["previous"]) == (True, None, [], ONE.digest)
    assert gone["diff"]["after"] == ""
    assert not run(node_image_channel, channel="stable", state="absent")["changed"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"digest": "0" * 64}, f"has no image {'0' * 64}; build or copy it"),
        ({"digest": "latest"}, "channel stable: 'latest' is not a digest; give the 64"),
        ({}, "state is promoted but all of the following are missing: digest"),
        ({"channel": "a b", "digest": "0" * 64}, "channel 'a b': not a valid name"),
        ({"channel": "canary", "state": "rolled_back"}, "has no such channel; existing channels: stable"),
        ({"state": "rolled_back"}, "channel stable: has no history"),
        ({"store": "/nowhere", "digest": "0" * 64}, "store /nowhere: not a store"),
    ],
)
def test_an_invalid_change_of_a_channel_is_refused(run, given, told):
    run(node_image_channel, channel="stable", digest=ONE.digest)
    result = run(node_image_channel, **{"channel": "stable", **given})
    assert result["failed"]
    assert told in result["msg"]


def test_the_contents_of_a_store_are_listed(run, store):
    run(node_image_channel, channel="stable", digest=ONE.digest)
    result = run(node_image_store)
    assert not result["changed"]
    assert (result["removed"], result["freed_bytes"]) == ([], 0)
    rows = {row["digest"]: row for row in result["images"]}
    assert list(rows) == sorted(rows)
    assert rows[ONE.digest]["kept_for"] == ["channel stable"]
    assert rows[TWO.digest]["kept_for"] == []
    assert rows[THREE.digest] == {
        "digest": THREE.digest,
        "name": "gpu-node",
        "layers": ["base", "gpu"],
        "kernel": "6.1.0-31-cloud-amd64",
        "size_bytes": sum(len(data) for data in THREE.contents.values()),
        "knows": ["sailloft-statement/1"],
        "signed_kernel": False,
        "kept_for": ["last build of gpu-node"],
        "problem": None,
    }
    assert result["channels"] == [{"name": "stable", "digest": ONE.digest, "history": []}]
    assert result["blobs"] == len({**ONE.contents, **TWO.contents, **THREE.contents})
    assert result["missing"] == []


def test_unreferenced_images_are_removed(run, store):
    run(node_image_channel, channel="stable", digest=ONE.digest)
    result = run(node_image_store, collected=True, history=1, keep=[])
    assert result["changed"]
    assert f"images/{TWO.digest}" in result["removed"]
    assert [row["digest"] for row in result["images"]] == sorted([ONE.digest, THREE.digest])
    assert result["diff"]["before"].splitlines() == sorted([*result["diff"]["after"].splitlines(), *result["removed"]])
    assert store.images() == [row["digest"] for row in result["images"]]
    assert not run(node_image_store, collected=True, history=1)["changed"]


def test_images_that_nodes_run_are_kept(run):
    assert not run(node_image_store, collected=True, keep=[ONE.digest, TWO.digest])["changed"]
    result = run(node_image_store, collected=True, keep=["x"])
    assert "keep: 'x' is not a digest" in result["msg"]
    assert "not a store" in run(node_image_store, store="/nowhere")["msg"]
