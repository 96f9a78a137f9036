# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hosts of a rollout's plays: the nodes of the step and the controller, and no hosts after a step that failed."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.filter.node_boot_rollout_hosts import STEPS, node_boot_rollout_hosts

NAMES = [f"bm{at:02}" for at in range(1, 9)]
NOBODY = ["all:!all"]


def decided(step, nodes=(), **more):
    waves = [["bm03"], ["bm04", "bm05"]]
    return {
        "step": step,
        "nodes": list(nodes),
        "canaries": ["bm01", "bm02"],
        "waves": waves,
        "lost": [],
        "replacements": [],
        **more,
    }


def hosts(step, result, here=None):
    hostvars = {name: {"__node_boot_rollout": result} for name in NAMES}
    if here is not None:
        hostvars["localhost"] = here
    return node_boot_rollout_hosts(NAMES, hostvars, step)


@pytest.mark.parametrize(
    ("step", "result", "names"),
    [
        ("canaries", decided("canary", ["bm02"]), ["bm02"]),
        ("canaries", decided("promote"), None),
        ("canaries", decided("wave", ["bm03"]), None),
        ("promote", decided("canary", ["bm02"]), ["bm01", "bm02"]),
        ("promote", decided("promote"), ["bm01", "bm02"]),
        ("promote", decided("wave", ["bm03"]), None),
        ("waves", decided("canary", ["bm02"]), ["bm03", "bm04", "bm05"]),
        ("waves", decided("promote"), ["bm03", "bm04", "bm05"]),
        ("waves", decided("wave", ["bm03"]), ["bm03", "bm04", "bm05"]),
        ("waves", decided("rollback", ["bm01"]), None),
        ("waves", decided("done", waves=[]), None),
        ("decide_end", decided("done"), NAMES),
        ("end", decided("done"), ["bm01", "bm02"]),
        ("end", decided("done", lost=["bm07"], replacements=[{"node": "bm07", "spare": "bm08"}]), None),
        ("end", decided("rollback", ["bm04"], lost=["bm04"]), ["bm01", "bm02", "bm04"]),
        ("end", decided("wave", ["bm06"], canaries=[]), ["bm06"]),
        # One node is enough to release the hold.
        ("end", decided("done", canaries=[]), ["bm01"]),
    ],
)
def test_each_step_has_its_nodes_and_the_controller(step, result, names):
    if step == "end" and result["replacements"]:
        names = ["bm01", "bm02", "bm07", "bm08"]
    assert hosts(step, result) == ([*names, "localhost"] if names else NOBODY)


def test_a_rollout_of_one_node_has_this_node():
    hostvars = {"bm01": {"__node_boot_rollout": decided("canary", ["bm01"])}}
    assert node_boot_rollout_hosts(["bm01"], hostvars, "canaries") == ["bm01", "localhost"]


def test_the_last_result_is_read_from_the_controller():
    later = {"__node_boot_rollout": decided("rollback", ["bm02"], lost=["bm02"])}
    assert hosts("waves", decided("canary", ["bm02"]), here=later) == NOBODY
    assert hosts("end", decided("canary", ["bm02"]), here=later) == ["bm01", "bm02", "localhost"]


def test_only_the_rollback_follows_if_all_canaries_are_lost():
    skipped = {"__node_boot_rollout": {"skipped": True, "changed": False}, "__node_boot_step_failed": False}
    assert hosts("waves", decided("canary", ["bm01"]), here=skipped) == NOBODY
    assert hosts("decide_end", decided("canary", ["bm01"]), here=skipped) == [*NAMES, "localhost"]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_has_no_hosts_after_a_failed_step_or_without_a_plan(step):
    assert hosts(step, decided("wave", ["bm03"]), here={"__node_boot_step_failed": True}) == NOBODY
    assert hosts(step, decided("wave", ["bm03"]), here={"__node_boot_step_failed": False}) != NOBODY or step in (
        "canaries",
        "promote",
    )
    assert hosts(step, None) == NOBODY
    assert node_boot_rollout_hosts([], {}, step) == NOBODY
