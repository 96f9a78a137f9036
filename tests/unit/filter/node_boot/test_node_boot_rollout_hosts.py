# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hosts of a rollout's plays: one node for all, those whose hooks are tasks, and the controller."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.filter.node_boot_rollout_hosts import STEPS, node_boot_rollout_hosts

NAMES = [f"bm{at:02}" for at in range(1, 9)]
FOLLOWERS = NAMES[1:]  # bm01 follows another channel
NOBODY = ["all:!all"]


def decided(step, nodes=(), **more):
    return {"step": step, "nodes": list(nodes), "waves": [["bm03"], ["bm04", "bm05"]], "lost": [], **more}


def hosts(step, result, here=None, with_tasks=(), due=()):
    rows = {name: {"tasks": ["node_boot_health"] if name in with_tasks else []} for name in FOLLOWERS}
    seen = {"__node_boot_rollout": result, "__node_boot_rows": rows, "__node_boot_fleet": {"due": list(due)}}
    hostvars = {name: seen if name in FOLLOWERS else {} for name in NAMES}
    if here is not None:
        hostvars["localhost"] = here
    return node_boot_rollout_hosts(NAMES, hostvars, step)


@pytest.mark.parametrize(
    ("step", "result", "takes_part"),
    [
        ("canaries", decided("canary", ["bm02"]), True),
        ("canaries", decided("promote"), False),
        ("canaries", decided("wave", ["bm03"]), False),
        ("promote", decided("canary", ["bm02"]), True),
        ("promote", decided("promote"), True),
        ("promote", decided("wave", ["bm03"]), False),
        ("waves", decided("canary", ["bm02"]), True),
        ("waves", decided("wave", ["bm03"]), True),
        ("waves", decided("rollback", ["bm02"]), False),
        ("waves", decided("done", waves=[]), False),
        ("waves", decided("promote", waves=[]), False),
        ("decide_end", decided("done"), True),
        ("end", decided("done"), True),
    ],
)
def test_one_node_of_the_channel_stands_for_all_if_a_step_has_something_to_do(step, result, takes_part):
    assert hosts(step, result) == (["bm02", "localhost"] if takes_part else NOBODY)


def test_nodes_whose_hooks_are_tasks_take_each_step():
    # A node that is lost in its tasks has no later decision, so those that are left have it.
    for step, result in (
        ("canaries", decided("canary", ["bm02"])),
        ("waves", decided("promote")),
        ("end", decided("done")),
    ):
        assert hosts(step, result, with_tasks=["bm05", "bm02", "bm07"]) == ["bm02", "bm05", "bm07", "localhost"]


def test_nodes_that_failed_take_the_last_step():
    assert hosts("end", decided("rollback", ["bm04"], lost=["bm04", "bm02"])) == ["bm02", "bm04", "localhost"]
    assert hosts("decide_end", decided("rollback", ["bm04"], lost=["bm04"])) == ["bm02", "localhost"]


def test_health_checks_that_are_tasks_come_before_the_first_decision():
    assert hosts("health", {"skipped": True}, with_tasks=["bm04", "bm05"], due=["bm05"]) == [
        "bm02",
        "bm04",
        "bm05",
        "localhost",
    ]
    assert hosts("health", decided("canary"), with_tasks=["bm04"]) == NOBODY


def test_the_last_result_is_read_from_the_controller():
    later = {"__node_boot_rollout": decided("rollback", ["bm02"], lost=["bm03"])}
    assert hosts("waves", decided("canary", ["bm02"]), here=later) == NOBODY
    assert hosts("end", decided("canary", ["bm02"]), here=later) == ["bm02", "bm03", "localhost"]


def test_only_the_rollback_follows_if_all_canaries_are_lost():
    skipped = {"__node_boot_rollout": {"skipped": True, "changed": False}, "__node_boot_step_failed": False}
    assert hosts("waves", decided("canary", ["bm02"]), here=skipped) == NOBODY
    assert hosts("decide_end", decided("canary", ["bm02"]), here=skipped) == ["bm02", "localhost"]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_has_no_hosts_after_a_failed_step_or_without_a_plan(step):
    assert hosts(step, decided("wave", ["bm03"]), here={"__node_boot_step_failed": True}) == NOBODY
    assert hosts(step, None) == NOBODY
    assert node_boot_rollout_hosts([], {}, step) == NOBODY
