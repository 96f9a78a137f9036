# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rollouts of several operators, and the holds of runs that ended elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from fleet_machines import boot, kernel_of, read_statement, stated_image
from fleet_site import NEW, ROOT, needs_root

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, holds

pytestmark = [needs_root, pytest.mark.fleet]


@pytest.mark.long
@pytest.mark.parametrize("fleet", [3], indirect=True)
def test_a_rollout_of_a_killed_controller_is_completed_by_the_next_run(fleet):
    arguments = fleet.command("rollout.yml", node_boot_rollout_image="gpu-node", node_boot_rollout_waves=["1", "2"])
    with (fleet.folder / "first.log").open("w") as log:
        first = subprocess.Popen(
            arguments, cwd=ROOT, env=fleet.environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    until = time.monotonic() + 240
    while len(fleet.boots()) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert fleet.channel() == "new"
    # Its hold is taken over, because the process ran on this machine.
    (left,) = holds.read_all(fleet.store)
    assert (left.holder.process, left.scope.channel, left.scope.nodes) == (first.pid, "stable", tuple(fleet.nodes))
    status, output = fleet.roll_out()
    assert status == 0, output
    assert f"{left.name}): the process of this hold has ended; the hold is taken over" in " ".join(output.split())
    assert set(fleet.runs().values()) == {"new"}
    assert len(fleet.boots()) == 3


@pytest.mark.long
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_a_node_that_boots_when_a_run_was_killed_gets_kernel_and_image_of_one_image(fleet):
    """Each run is killed when it has changed one of two boot servers, and the next one completes the step.

    The first change of a run is predicted, in check mode. Then the canary's statement and script follow, the channel's
    statement, the channel, and the scripts of its nodes.
    """
    second = fleet.add_server("boot02")
    for change in (2, 3, 4, 3, 4):
        (fleet.folder / "boot02" / "calls").unlink(missing_ok=True)
        with (fleet.folder / "killed.log").open("w") as log:
            command = fleet.command("rollout.yml", node_boot_rollout_image="gpu-node")
            environment = {**fleet.environment(), "FLEET_KILL": str(change)}
            run = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        assert run.wait(3600) == -signal.SIGKILL, (fleet.folder / "killed.log").read_text()
        latest = max(map(read_statement, (fleet.store, second)), key=lambda each: each.sequence)
        for store in (fleet.store, second):
            for node in fleet.nodes:
                assert stated_image(latest, node, kernel_of(store, node)) == kernel_of(store, node)
    assert fleet.boots() == ["bm01 new pin"]
    assert (fleet.channel(), channels.known(second, "stable").digest) == ("new", NEW.digest)
    status, output = fleet.roll_out()
    assert status == 0, output
    assert fleet.boots() == ["bm01 new pin", "bm02 new channel"]
    assert read_statement(second) == read_statement(fleet.store)


def start(fleet, playbook, *arguments, **variables):
    """Start a playbook as another operator; return the process, whose output goes to the file other.log."""
    with (fleet.folder / "other.log").open("w") as log:
        command = fleet.command(playbook, *arguments, **variables)
        return subprocess.Popen(command, cwd=ROOT, env=fleet.environment(), stdout=log, stderr=subprocess.STDOUT)


def waiting_drain(fleet):
    """Return a drain that creates the file NODE/draining when it begins, and waits for the file "go"."""
    begun = str(fleet.folder / "{{ inventory_hostname }}" / "draining")
    return {"command": ["sh", "-c", f"touch {begun}; until [ -e {fleet.folder}/go ]; do sleep 0.2; done"]}


def until_draining(fleet, node, process):
    until = time.monotonic() + 300
    while not (fleet.folder / node / "draining").exists():
        assert process.poll() is None, (fleet.folder / "other.log").read_text()
        assert time.monotonic() < until
        time.sleep(0.2)


REFUSED = {  # by playbook: its limit, and the part that it needs and the rollout holds
    "reimage.yml": (["-l", "bm02"], "node bm02"),
    "rollout.yml": ([], "nodes bm01, bm02"),
    "collect_images.yml": ([], "the whole store"),
}


@pytest.mark.long
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_a_second_operator_cannot_change_nodes_that_another_rollout_holds(fleet):
    variables = {"node_boot_rollout_image": "gpu-node", "node_boot_rollout_waves": ["100%"]}
    first = start(fleet, "rollout.yml", node_boot_drain=waiting_drain(fleet), **variables)
    try:
        until_draining(fleet, "bm01", first)
        (held,) = holds.read_all(fleet.store)
        scripts = channels.node_scripts(fleet.store)
        for playbook, (arguments, what) in REFUSED.items():
            status, output = fleet.play(playbook, *arguments, node_boot_rollout_image=NEW.digest)
            assert status == 2, output
            holder = held.holder
            who = f"{what}: held by {holder.user} on {holder.host} since {holder.since} (rollout.yml, process"
            text = " ".join(output.split())
            assert f"boot01: {who} {first.pid}: channel stable and 2 nodes (bm01, bm02); {held.name})" in text
            assert f"take over its hold with -e node_boot_take_over={held.name}" in text
        assert holds.read_all(fleet.store) == [held]
        assert channels.node_scripts(fleet.store) == scripts
        assert fleet.boots() == []
        (fleet.folder / "go").touch()
        assert first.wait(600) == 0, (fleet.folder / "other.log").read_text()
    finally:
        first.kill()
        first.wait()
    assert set(fleet.runs().values()) == {"new"}


@pytest.mark.long
def test_a_second_operator_can_reimage_other_nodes(fleet):
    first = start(fleet, "reimage.yml", "-l", "bm01", node_boot_drain=waiting_drain(fleet))
    try:
        until_draining(fleet, "bm01", first)
        status, output = fleet.play("reimage.yml", "-l", "bm02")
        assert status == 0, output
        assert fleet.boots() == ["bm02 old channel"]
        (fleet.folder / "go").touch()
        assert first.wait(600) == 0, (fleet.folder / "other.log").read_text()
    finally:
        first.kill()
        first.wait()
    assert fleet.boots() == ["bm02 old channel", "bm01 old channel"]


@pytest.mark.long
def test_a_hold_of_a_run_that_ended_elsewhere_is_taken_over_by_name(fleet):
    second = fleet.add_server("boot02")
    holder = holds.Holder("anne", "ctl9", "", 4711, "rollout.yml", "2026-11-22T12:00:00Z")
    left = holds.Hold("hold-0000000a", holder, holds.Scope(("bm02",), "stable"))
    # Only the second server has this hold: the hold that the run took on the first server is released.
    holds.take(second, left)
    status, output = fleet.play("reimage.yml", "-l", "bm02")
    assert status == 2, output
    text = " ".join(output.split())
    assert "boot02: node bm02: held by anne on ctl9 since 2026-11-22T12:00:00Z (rollout.yml, process 4711:" in text
    assert holds.read_all(fleet.store) == []
    status, output = fleet.play("reimage.yml", "-l", "bm02", "--check")
    assert status == 0, output
    assert "this run would be refused: node bm02: held by anne on ctl9" in " ".join(output.split())
    assert holds.read_all(second) == [left]
    assert fleet.boots() == []
    status, output = fleet.play("reimage.yml", "-l", "bm02", node_boot_take_over=["hold-0000000a"])
    assert status == 0, output
    assert fleet.boots() == ["bm02 old channel"]
    assert holds.read_all(second) == []


@pytest.mark.long
def test_a_rollout_after_an_interrupted_one_rolls_back_a_node_that_cannot_report(fleet):
    fleet.fate({("bm01", NEW): "mute"})
    channels.promote(fleet.store, "stable", NEW.digest)
    boot(fleet.folder, "bm01")
    status, output = fleet.roll_out()
    assert status != 0
    assert fleet.boots()[1:] == ["bm01 old channel"]
    assert set(fleet.runs().values()) == {"old"}
    assert "bm01 failed in the rollout" in output
