# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The state of a rollout's nodes, computed from their readings and from the changes of this run."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.action import node_image_rollout
from ansible_collections.sailloft.fleet.plugins.action.node_image_rollout import progress_row

OLD, NEW = "a" * 64, "b" * 64


def row(**variables):
    found = progress_row("bm01", {"node_boot_mac": "52:54:00:00:00:01", **variables}, NEW)
    return {key: value for key, value in found.items() if key not in ("name", "mac", "spare")}


def seen(image, holds=False):
    return {"state": {"image": image, "boot_id": "1"}, "holds": holds}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"__node_boot_seen": seen(OLD)}, ("reachable", OLD)),
        ({"__node_boot_seen": seen(NEW, holds=True)}, ("reachable holds", NEW)),
        ({"__node_boot_seen": seen(NEW)}, ("reachable", NEW)),
        ({"__node_boot_seen": seen(None)}, ("reachable", "")),
        ({"__node_boot_seen": {"unreachable": True, "msg": "no route"}}, ("", "")),
        ({"__node_boot_seen": {"failed": True, "msg": "systemctl show failed"}}, ("", "")),
        ({}, ("", "")),
        # This run made the node boot: the earlier reading no longer shows whether it holds.
        ({"__node_boot_seen": seen(OLD), "__node_boot_booted": {"proven": False}}, ("reachable tried", OLD)),
        (
            {"__node_boot_seen": seen(NEW, holds=True), "__node_boot_booted": {"proven": False}},
            ("reachable tried", NEW),
        ),
        ({"__node_boot_seen": {}, "__node_boot_booted": {"proven": False}}, ("tried", "")),
        ({"__node_boot_seen": {}, "__node_boot_booted": {"proven": True}}, ("reachable holds tried", NEW)),
    ],
)
def test_the_state_of_a_node_is_computed_from_its_readings(variables, expected):
    found = row(**variables)
    running = found.pop("running")
    assert ({key for key, value in found.items() if value}, running) == (set(expected[0].split()), expected[1])


def test_nodes_keep_their_order_and_their_inventory_variables(make, monkeypatch):
    hostvars = {"bm02": {"node_boot_mac": "m2", "node_boot_spare": True}, "bm01": {}}
    action = make(node_image_rollout, target=NEW, nodes=["bm02", "bm01"], stores=[])
    monkeypatch.setattr(action, "_execute_module", lambda module_args, task_vars: module_args)
    first, second = action.run(task_vars={"hostvars": hostvars})["nodes"]
    assert (first["name"], first["mac"], first["spare"]) == ("bm02", "m2", True)
    assert (second["name"], second["mac"], second["spare"]) == ("bm01", "", False)
