# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Texts of holds, files beside them, their durability, and the refusal of paths that are no store."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from image_samples import Sample, refused
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, garbage, holds
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.holds import Hold, Holder, Scope
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

DIGEST = "a" * 64
BOB = Holder("bob", "ctl2", "", 17, "reimage.yml", "2026-11-22T12:05:00Z")
FIRST = Hold("hold-0000000a", BOB, Scope(("bm01",)))
SECOND = Hold("hold-0000000b", BOB, Scope(("bm02",), "stable"))


@pytest.fixture
def store(tmp_path):
    found = Store(str(tmp_path / "store"))
    Sample("gpu-node", base=b"base").publish(found, tmp_path / "cache")
    return found


@pytest.mark.parametrize(
    "act",
    [
        lambda store: holds.take(store, FIRST),
        lambda store: holds.release(store, FIRST.name),
        lambda store: channels.promote(store, "stable", DIGEST),
        lambda store: channels.rollback(store, "stable"),
        lambda store: channels.remove(store, "stable"),
        lambda store: garbage.collect(store, [], 0),
        lambda store: node_scripts.ensure(store, [], False),
        lambda store: store.images(),
        lambda store: store.blobs(),
        lambda store: store.read(DIGEST, "manifest.json"),
    ],
    ids=["take", "release", "promote", "rollback", "remove", "collect", "ensure", "images", "blobs", "read"],
)
@pytest.mark.parametrize(("there", "lacking"), [((), "blobs"), (("blobs",), "images")])
def test_a_path_that_is_not_a_store_is_refused_by_every_operation(tmp_path, act, there, lacking):
    for name in there:
        (tmp_path / name).mkdir()
    assert refused(lambda: act(Store(str(tmp_path)))) == Mentions(tmp_path, lacking)
    assert sorted(os.listdir(tmp_path)) == [*there]


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (Scope(), "images are copied"),
        (Scope(("bm01",)), "node bm01"),
        (Scope(("bm01", "bm02")), "2 nodes (bm01, bm02)"),
        (Scope((), "stable"), "channel stable"),
        (Scope(("bm01",), "stable", True), "the whole store and channel stable and node bm01"),
    ],
)
def test_a_hold_is_described_with_its_scope(scope, text):
    assert holds.described(Hold("hold-0000000a", BOB, scope)) == (
        f"held by bob on ctl2 since 2026-11-22T12:05:00Z (reimage.yml, process 17: {text}; hold-0000000a)"
    )


def test_a_refusal_by_two_holds_names_both():
    scope = Scope(("bm01", "bm02"))
    assert str(holds.refusal(scope, [FIRST, SECOND])) == Mentions(
        "bm01", holds.described(FIRST), holds.described(SECOND), "node_boot_take_over=hold-0000000a,hold-0000000b"
    )


def test_the_scope_of_a_user_has_each_node_once_in_order():
    assert holds.scope_of(["bm02", "bm01", "bm02"], "stable", True) == Scope(("bm01", "bm02"), "stable", True)
    assert holds.scope_of([], "", False) == Scope((), "", False)
    assert refused(lambda: holds.scope_of(["BM1"], "", False)).startswith("node 'BM1': not a valid host name")
    assert refused(lambda: holds.scope_of([], "x/y", False)).startswith("channel 'x/y': not a valid name")


def test_other_files_beside_the_holds_are_not_read(store):
    holds.take(store, SECOND)
    holds.take(store, FIRST)
    for name in (".hold-0000000c.json", ".hold-0000000d.json.new", "README"):
        Path(store.place("holds", name)).write_text("{}")
    assert holds.read_all(store) == [FIRST, SECOND]


def test_a_run_replaces_its_own_hold(store):
    holds.take(store, FIRST)
    wider = replace(FIRST, scope=Scope(("bm01", "bm03")))
    assert holds.take(store, wider) == []
    assert holds.read_all(store) == [wider]


def test_a_hold_is_on_the_disk_when_it_is_taken_or_released(store, disk_calls):
    folder = store.place("holds")
    holds.take(store, FIRST)
    path, temporary = f"{folder}/hold-0000000a.json", f"{folder}/.hold-0000000a.json.new"
    assert disk_calls == [
        ("fsync", temporary, holds.render(FIRST)),
        ("replace", temporary, path),
        ("fsync", folder, None),
        ("fsync", folder, None),
    ]
    holds.take(store, SECOND)
    del disk_calls[:]
    assert holds.release(store, "hold-0000000a") is True
    assert disk_calls == [("fsync", folder, None)]
    assert os.listdir(folder) == ["hold-0000000b.json"]
    del disk_calls[:]
    assert holds.release(store, "hold-0000000a") is False
    assert disk_calls == []


def test_a_run_with_an_invalid_hold_name_is_refused(store):
    for name in ("mine", "hold-1", "../nodes", "hold-0000000A"):
        assert refused(lambda name=name: holds.take(store, replace(FIRST, name=name))) == Mentions(repr(name))
        assert refused(lambda name=name: holds.permit(store, name, Scope())) == Mentions(repr(name))
    for name in ("mine", "hold-1", "../nodes", "hold-0000000A", None):
        assert refused(lambda name=name: holds.take(store, FIRST, [name])) == Mentions(repr(name), "hold-0123abcd")
        assert refused(lambda name=name: holds.release(store, name)) == Mentions(repr(name), "hold-0123abcd")
    assert holds.read_all(store) == []


def test_a_run_without_or_with_its_own_hold_is_permitted(store):
    holds.permit(store, "", Scope(whole=True))
    holds.take(store, FIRST)
    holds.permit(store, "", Scope(("bm02",)))
    holds.permit(store, FIRST.name, Scope(("bm01",)))
    assert refused(lambda: holds.permit(store, "", Scope(("bm01",)))) == str(holds.refusal(FIRST.scope, [FIRST]))
    assert refused(lambda: holds.permit(store, SECOND.name, Scope(("bm02",)))) == Mentions(
        "hold-0000000b", store.path, "another run"
    )
