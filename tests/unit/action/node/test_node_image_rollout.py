# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module gets what node_boot_fleet has read of each node and done with it, in the order of the inventory."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.action import node_image_rollout

OLD, NEW = "a" * 64, "b" * 64
KEPT = {"running": OLD, "holds": False, "tried": True, "spare": False, "mac": "m1", "domains": {}, "power_kw": 0.0}


def test_nodes_keep_their_order_and_what_was_read(make, monkeypatch):
    rows = {"bm01": {**KEPT, "answers": False, "why": "gone"}, "bm02": {**KEPT, "answers": True, "mac": "m2"}}
    action = make(node_image_rollout, target=NEW, nodes=["bm02", "bm01"], rows=rows, stores=[])
    monkeypatch.setattr(action, "_execute_module", lambda module_args, task_vars: module_args)
    arguments = action.run(task_vars={"hostvars": {}})
    assert arguments["nodes"] == [
        {"name": "bm02", "reachable": True, **KEPT, "mac": "m2"},
        {"name": "bm01", "reachable": False, **KEPT},
    ]
    assert "rows" not in arguments
