# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Channels: each is one file that is replaced atomically."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_samples import Sample, refuses, tree
from kills import kills

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.channels import Channel
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

ONE, TWO, THREE = (Sample("gpu-node", base=b"base", gpu=f"driver {at}".encode()) for at in range(3))
DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "store"))
    for sample in (ONE, TWO, THREE):
        sample.publish(store, tmp_path / "cache")
    return store


def test_a_channel_is_promoted_and_rolled_back(store):
    assert channels.promote(store, "stable", ONE.digest) == (None, Channel("stable", ONE.digest))
    channels.promote(store, "stable", TWO.digest)
    old, new = channels.promote(store, "stable", THREE.digest)
    assert old.digest == TWO.digest
    assert new == Channel("stable", THREE.digest, (TWO.digest, ONE.digest)) == channels.read(store, "stable")
    assert channels.promote(store, "stable", THREE.digest) == (new, new)
    assert channels.rollback(store, "stable")[1] == Channel("stable", TWO.digest, (ONE.digest,))
    assert channels.rollback(store, "stable")[1] == Channel("stable", ONE.digest)
    refuses(lambda: channels.rollback(store, "stable"), "channel stable: has no history")


def test_the_file_of_a_channel_is_an_ipxe_script(store):
    channels.promote(store, "stable", ONE.digest)
    channels.promote(store, "stable", TWO.digest)
    text = Path(store.place("channels", "stable.ipxe")).read_text()
    first, second, third = text.splitlines()
    assert first == "#!ipxe"
    assert json.loads(second.removeprefix("# sailloft-channel ")) == {
        "channel": "stable",
        "digest": TWO.digest,
        "history": [ONE.digest],
    }
    assert third == f"chain ../images/{TWO.digest}/boot.ipxe"


def test_rolling_back_from_a_given_image_happens_only_once(store):
    for sample in (ONE, TWO, THREE):
        channels.promote(store, "stable", sample.digest)
    assert channels.rollback(store, "stable", THREE.digest)[1].digest == TWO.digest
    old, new = channels.rollback(store, "stable", THREE.digest)
    assert old == new == Channel("stable", TWO.digest, (ONE.digest,))


def test_a_refused_change_leaves_the_channels_unchanged(store):
    channels.promote(store, "stable", ONE.digest)
    channels.promote(store, "stable", TWO.digest)
    shutil.rmtree(store.place("images", ONE.digest))
    before = tree(store.path)
    refuses(lambda: channels.promote(store, "stable", "0" * 64), "has no image " + "0" * 64)
    refuses(lambda: channels.promote(store, "stable", "latest"), "'latest' is not a digest")
    refuses(lambda: channels.promote(store, "stable", TWO.digest.upper()), "is not a digest")
    refuses(lambda: channels.promote(store, "../stable", TWO.digest), "not a valid name")
    refuses(lambda: channels.rollback(store, "canary"), "channel canary", "no such channel; existing channels: stable")
    refuses(lambda: channels.rollback(store, "stable"), "has no image " + ONE.digest)
    refuses(lambda: channels.rollback(store, "stable", "x"), "is not a digest")
    refuses(lambda: channels.promote(Store(store.path + "x"), "stable", TWO.digest), "not a store")
    assert tree(store.path) == before
    # A copy that is still in progress may lack a file.
    os.remove(store.place("images", TWO.digest, "boot.ipxe"))
    refuses(lambda: channels.promote(store, "canary", TWO.digest), "has no boot.ipxe")
    os.remove(store.place("blobs", THREE.manifest.layers[1].sha256))
    refuses(lambda: channels.promote(store, "stable", THREE.digest), "is not complete", THREE.manifest.layers[1].sha256)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-5],
        lambda text: text.replace("chain", "exit"),
        lambda text: text.replace(ONE.digest, TWO.digest, 1),
        lambda text: text.replace('"history": []', '"history": ["x"]'),
        lambda text: "",
        lambda text: "#!ipxe\n# sailloft-channel 7\n",
    ],
)
def test_a_file_that_was_changed_by_hand_is_refused(store, spoil):
    channels.promote(store, "stable", ONE.digest)
    path = Path(store.place("channels", "stable.ipxe"))
    path.write_text(spoil(path.read_text()))
    before = tree(store.path)
    refuses(lambda: channels.promote(store, "stable", TWO.digest), "channel stable", "not in the format of a channel")
    refuses(lambda: channels.rollback(store, "stable"), "not in the format of a channel")
    assert tree(store.path) == before


def test_a_channel_under_another_name_is_refused(store):
    channels.promote(store, "stable", ONE.digest)
    shutil.copy(store.place("channels", "stable.ipxe"), store.place("channels", "canary.ipxe"))
    refuses(lambda: channels.read(store, "canary"), "its file is that of channel stable")


def test_check_mode_returns_the_change_and_writes_nothing(store):
    assert channels.promote(store, "stable", ONE.digest, check=True) == (None, Channel("stable", ONE.digest))
    assert channels.read(store, "stable") is None
    channels.promote(store, "stable", ONE.digest)
    channels.promote(store, "stable", TWO.digest)
    before = tree(store.path)
    assert channels.promote(store, "stable", THREE.digest, check=True)[1].digest == THREE.digest
    assert channels.rollback(store, "stable", check=True)[1] == Channel("stable", ONE.digest)
    assert channels.remove(store, "stable", check=True).digest == TWO.digest
    assert tree(store.path) == before


def test_a_channel_that_a_node_follows_is_not_removed(store):
    channels.promote(store, "stable", ONE.digest)
    channels.promote(store, "stable2", ONE.digest)
    node = Path(store.place("nodes", "52-54-00-12-34-56.ipxe"))
    node.parent.mkdir()
    node.write_text("#!ipxe\nset node bm01\nchain ../channels/stable.ipxe\n")
    before = tree(store.path)
    refuses(lambda: channels.remove(store, "stable"), "channel stable", "52-54-00-12-34-56")
    assert tree(store.path) == before
    assert channels.remove(store, "stable2") == Channel("stable2", ONE.digest)
    assert channels.remove(store, "stable2") is None
    assert set(before) - set(tree(store.path)) == {"channels/stable2.ipxe"}


@pytest.mark.parametrize("change", ["promote", "rollback", "first"])
def test_a_kill_at_any_point_leaves_the_old_or_the_new_channel(store, tmp_path, change):
    def act():
        if change == "rollback":
            channels.rollback(store, "stable", TWO.digest)
        else:
            channels.promote(store, "stable", THREE.digest)

    if change != "first":
        channels.promote(store, "stable", ONE.digest)
        channels.promote(store, "stable", TWO.digest)
    shutil.copytree(store.path, tmp_path / "start")

    def again():
        shutil.rmtree(store.path)
        shutil.copytree(tmp_path / "start", store.path)

    old = channels.read(store, "stable")
    act()
    new, whole = channels.read(store, "stable"), tree(store.path)
    points = 0
    for _kill in kills(act, again):
        points += 1
        assert channels.read(store, "stable") in (old, new)
        act()
        assert tree(store.path) == whole
    assert points >= 2


def test_the_history_of_a_channel_has_at_most_ten_images():
    channel = None
    for at in range(14):
        channel = channels.promoted(channel, "stable", f"{at:064x}")
    assert [int(digest, 16) for digest in channel.history] == [12, 11, 10, 9, 8, 7, 6, 5, 4, 3]


@given(st.lists(st.one_of(st.none(), st.integers(0, 14)), max_size=40))
def test_history_is_a_stack_of_the_last_ten(steps):
    channel, stack = None, []
    for step in steps:
        if step is not None:
            digest = f"{step:064x}"
            channel = channels.promoted(channel, "stable", digest)
            if not stack or stack[-1] != digest:
                stack = [*stack, digest][-11:]
        elif len(stack) > 1:
            channel = channels.rolled_back(channel)
            stack.pop()
        elif channel:
            refuses(lambda channel=channel: channels.rolled_back(channel), "has no history")
        if channel:
            assert [channel.digest, *channel.history] == stack[::-1]


@given(DIGESTS, st.lists(DIGESTS, max_size=10))
def test_a_rendered_channel_is_read_back(digest, history):
    channel = Channel("stable", digest, tuple(history))
    assert channels.parse(channels.render(channel), "x") == channel
