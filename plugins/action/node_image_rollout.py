# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide the next step of a rollout from what nodes and stores reported to the role node_boot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.named import NamedNodesAction

KEPT = ("mac", "running", "holds", "tried", "spare", "domains", "power_kw")


def progress_row(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's row of a node from its row of node_boot_fleet."""
    return {"name": name, "reachable": row["answers"], **{key: row[key] for key in KEPT}}


class ActionModule(NamedNodesAction):
    """Run the module with the progress of nodes."""

    STORE_PARTS = ("images", "channels")
    OWN = ("rows",)

    def rows(self, names: list[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the module's option ``nodes``, in the order of the inventory."""
        return [progress_row(name, self.given["rows"][name]) for name in names]
