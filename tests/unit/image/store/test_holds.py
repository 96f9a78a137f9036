# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Holds: the runs that exclude each other, the messages, and the state after a kill."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args
from image_samples import Sample, tree
from kills import kills
from messages import Mentions, raises
from playing import ansible_playbook

from ansible_collections.sailloft.fleet.plugins.action import node_boot_hold as action
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, garbage, holds
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.holds import Hold, Holder, Scope
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store
from ansible_collections.sailloft.fleet.plugins.modules import node_boot_hold

IMAGE = Sample("gpu-node", base=b"base")
ANNE = Holder("anne", "ctl1", "", 4711, "rollout.yml", "2026-11-22T12:00:00Z")
BOB = Holder("bob", "ctl2", "", 17, "reimage.yml", "2026-11-22T12:05:00Z")
ROLLOUT = Hold("hold-0000000a", ANNE, Scope(("bm01", "bm02"), "stable"))


def hold(name, *nodes, channel="", whole=False):
    return Hold(f"hold-0000000{name}", BOB, Scope(nodes, channel, whole))


@pytest.fixture
def store(tmp_path):
    found = Store(str(tmp_path / "store"))
    IMAGE.publish(found, tmp_path / "cache")
    channels.promote(found, "stable", IMAGE.digest)
    return found


def names(store):
    return [found.name for found in holds.read_all(store)]


@pytest.mark.parametrize(
    ("scope", "what"),
    [
        (Scope(("bm02", "bm03")), "node bm02"),
        (Scope(("bm01", "bm02")), "nodes bm01, bm02"),
        (Scope(("bm03",)), ""),
        (Scope(("bm03",), "stable"), "channel stable"),
        (Scope(("bm03",), "lab"), ""),
        (Scope(), ""),
        (Scope(whole=True), "the whole store"),
    ],
)
def test_runs_with_a_common_node_channel_or_store_exclude_each_other(scope, what):
    assert holds.shared(scope, ROLLOUT.scope) == what
    assert holds.shared(ROLLOUT.scope, scope) == what


def test_a_run_that_only_copies_is_excluded_only_by_a_hold_of_the_store():
    assert holds.shared(Scope(), Scope()) == ""
    assert holds.shared(Scope(), Scope(whole=True)) == "the whole store"


def test_the_second_run_is_refused_with_holder_scope_and_start_time(store):
    assert holds.take(store, ROLLOUT) == []
    second = hold("b", "bm02")
    assert holds.take(store, second) == [ROLLOUT]
    assert names(store) == ["hold-0000000a"]
    assert str(holds.refusal(second.scope, [ROLLOUT])) == Mentions(
        *("node bm02", "anne on ctl1", "2026-11-22T12:00:00Z", "rollout.yml", "process 4711", "channel stable"),
        *("2 nodes (bm01, bm02)", "node_boot_take_over=hold-0000000a"),
    )


def test_runs_for_different_nodes_do_not_exclude_each_other(store):
    before = tree(store.path)
    assert holds.take(store, ROLLOUT) == []
    assert holds.take(store, hold("b", "bm03")) == []
    assert holds.release(store, "hold-0000000a") is True
    assert holds.release(store, "hold-0000000a") is False
    assert names(store) == ["hold-0000000b"]
    assert holds.take(store, hold("c", "bm01", "bm03")) == [hold("b", "bm03")]
    assert holds.release(store, "hold-0000000b") is True
    assert tree(store.path) == before


def test_only_the_named_hold_is_taken_over(store):
    holds.take(store, ROLLOUT)
    holds.take(store, hold("b", "bm03"))
    both = hold("c", "bm01", "bm03")
    assert holds.take(store, both, ["hold-0000000a"]) == [hold("b", "bm03")]
    assert names(store) == ["hold-0000000a", "hold-0000000b"]
    assert holds.take(store, both, ["hold-0000000a", "hold-0000000b", "hold-0000000f"]) == []
    assert names(store) == ["hold-0000000c"]


def test_check_mode_reports_conflicts_and_takes_no_hold(store, tmp_path):
    holds.take(store, ROLLOUT)
    before = tree(store.path)
    assert holds.take(store, hold("b", "bm01"), [], check=True) == [ROLLOUT]
    assert holds.take(store, hold("b", "bm03"), ["hold-0000000a"], check=True) == []
    assert tree(store.path) == before
    assert holds.take(Store(str(tmp_path / "none")), ROLLOUT, [], check=True) == []


def test_only_the_owner_can_read_the_holds(store):
    holds.take(store, ROLLOUT)
    assert stat.S_IMODE(os.stat(store.place("holds")).st_mode) == 0o700


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", holds.render(hold("b")), holds.render(ROLLOUT)[:-3]])
def test_a_damaged_hold_is_refused(store, data):
    holds.take(store, ROLLOUT)
    Path(store.place("holds", "hold-0000000a.json")).write_bytes(data)
    with raises(ImageError, "holds/hold-0000000a.json", "hold-0000000a"):
        holds.take(store, hold("b", "bm03"))


def refused(act, text):
    with pytest.raises(ImageError) as caught:
        act()
    assert text in str(caught.value)


def test_changes_of_nodes_and_channels_held_by_another_run_are_refused(store):
    digest = IMAGE.digest
    row = {"name": "bm01", "mac": "52:54:00:00:00:01", "channel": "stable", "servers": ["http://10.9.0.1"]}
    holds.take(store, ROLLOUT)
    before = tree(store.path)
    by_anne = "held by anne on ctl1 since 2026-11-22T12:00:00Z"
    refused(lambda: node_scripts.ensure(store, [row], False), f"node bm01: {by_anne}")
    refused(lambda: node_scripts.ensure(store, [], False, removed=["bm02"]), f"node bm02: {by_anne}")
    refused(lambda: channels.promote(store, "stable", digest), f"channel stable: {by_anne}")
    refused(lambda: channels.rollback(store, "stable"), f"channel stable: {by_anne}")
    refused(lambda: channels.remove(store, "stable"), f"channel stable: {by_anne}")
    refused(lambda: garbage.collect(store, [], 0), f"the whole store: {by_anne}")
    assert tree(store.path) == before
    # Changes to another channel, to another node, and by the holder are allowed.
    channels.promote(store, "lab", digest)
    other = {**row, "name": "bm03", "mac": "52:54:00:00:00:03"}
    node_scripts.ensure(store, [other], False)
    node_scripts.ensure(store, [row], False, hold="hold-0000000a")
    channels.promote(store, "stable", digest, hold="hold-0000000a")
    # Check mode is allowed.
    node_scripts.ensure(store, [row], True)
    channels.promote(store, "stable", digest, check=True)


def test_a_run_whose_hold_was_taken_over_is_refused(store):
    holds.take(store, ROLLOUT)
    holds.take(store, hold("b", "bm01"), ["hold-0000000a"])
    row = {"name": "bm02", "mac": "52:54:00:00:00:02", "channel": "stable", "servers": ["http://10.9.0.1"]}
    gone = f"hold hold-0000000a: it is no longer in store {store.path}: another run has taken it over"
    refused(lambda: node_scripts.ensure(store, [row], False, hold="hold-0000000a"), gone)
    refused(lambda: channels.promote(store, "stable", IMAGE.digest, hold="hold-0000000a"), gone)
    assert channels.node_scripts(store) == {}


def test_holds_of_a_run_killed_at_any_point_are_taken_over_by_the_next_run(store, tmp_path):
    holds.take(store, ROLLOUT)
    start = tmp_path / "start"
    shutil.copytree(store.path, start)
    new = hold("b", "bm01")

    def again():
        shutil.rmtree(store.path)
        shutil.copytree(start, store.path)

    points = 0
    for _kill in kills(lambda: holds.take(store, new, ["hold-0000000a"]), again):
        points += 1
        there = names(store)
        assert there in (["hold-0000000a"], ["hold-0000000a", "hold-0000000b"])
        third = hold("c", "bm01")
        assert [found.name for found in holds.take(store, third)] == there
        assert holds.take(store, third, there) == []
        assert names(store) == ["hold-0000000c"]
    # The temporary file is opened, made readable and renamed, and the other hold is removed.
    assert points == 5


def test_only_one_of_many_concurrent_runs_gets_the_hold(store):
    got = []

    def run(number):
        if not holds.take(store, hold(format(number, "x"), "bm01")):
            got.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert names(store) == [f"hold-0000000{got[0]:x}"]


def call(capsys, check=False, **options):
    arguments = {"holder": vars(BOB), "name": "hold-0000000b", "_ansible_check_mode": check, **options}
    with patch_module_args(json.loads(json.dumps(arguments))), pytest.raises(SystemExit):
        node_boot_hold.main()
    return json.loads(capsys.readouterr().out)


def test_the_module_takes_and_releases_holds_and_reports_conflicts(store, capsys):
    holds.take(store, ROLLOUT)
    found = call(capsys, store=store.path, nodes=["bm02"])
    assert found["failed"] is True
    assert found["msg"] == Mentions("node bm02", "anne on ctl1")
    assert [conflict["name"] for conflict in found["conflicts"]] == ["hold-0000000a"]
    told = call(capsys, check=True, store=store.path, nodes=["bm02"])
    assert "failed" not in told
    (warning,) = told["warnings"]
    assert json.dumps(warning) == Mentions("refused", "node bm02", "anne on ctl1")
    assert call(capsys, store=store.path, nodes=["bm03"])["changed"] is False
    assert names(store) == ["hold-0000000a", "hold-0000000b"]
    assert call(capsys, check=True, store=store.path, state="released")["changed"] is False
    assert names(store) == ["hold-0000000a", "hold-0000000b"]
    assert call(capsys, store=store.path, state="released")["changed"] is False
    assert names(store) == ["hold-0000000a"]
    assert call(capsys, store=store.path, channel="../x")["msg"] == Mentions("'../x'", "name")
    assert call(capsys, store=store.path, nodes=["BM 1"])["msg"] == Mentions("node 'BM 1'", "host name")


def ended_process():
    done = subprocess.Popen(["true"])
    done.wait()
    return done.pid


def test_only_a_missing_process_of_this_machine_has_ended():
    here = action.this_run()["machine"]
    assert here
    gone = ended_process()
    assert action.has_ended({"machine": here, "process": gone}) is True
    assert action.has_ended({"machine": here, "process": os.getpid()}) is False
    # Process 1 exists, and usually belongs to another user.
    assert action.has_ended({"machine": here, "process": 1}) is False
    assert action.has_ended({"machine": "another", "process": gone}) is False
    assert action.has_ended({"machine": "", "process": gone}) is False


@pytest.mark.fleet
def test_a_play_records_its_holder_and_takes_over_holds_of_ended_runs(store, tmp_path):
    ended = Hold(
        "hold-0000000a",
        Holder("anne", "ctl1", action.this_run()["machine"], ended_process(), "x.yml", "then"),
        Scope(("bm01",)),
    )
    holds.take(store, ended)
    tasks = [{"sailloft.fleet.node_boot_hold": {"store": store.path, "name": "hold-0000000b", "nodes": ["bm01"]}}]
    playbook = tmp_path / "take.yml"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    local = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    status, output = ansible_playbook(*local, str(playbook), "--check")
    assert status == 0, output
    assert "the hold would be taken over" in " ".join(output.split())
    assert names(store) == ["hold-0000000a"]
    status, output = ansible_playbook(*local, str(playbook))
    assert status == 0, output
    assert "the process of this hold has ended; the hold is taken over" in " ".join(output.split())
    (found,) = holds.read_all(store)
    assert found.name == "hold-0000000b"
    holder = found.holder
    assert (holder.user, holder.host, holder.playbook) == (getpass.getuser(), socket.gethostname(), "take.yml")
    assert action.has_ended({"machine": holder.machine, "process": holder.process}) is True
