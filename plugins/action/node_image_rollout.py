# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide the next step of a rollout from what nodes and stores reported to the role node_boot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_nodes import NamedNodesAction


def progress_row(name: str, variables: Mapping[str, Any], target: str) -> dict[str, Any]:
    """Return what a node runs, by the last proof and the boots of this run, in the rollout of the digest ``target``."""
    seen = variables.get("__node_boot_seen") or {}
    booted = variables.get("__node_boot_booted") or {}
    tried, proven = bool(booted), bool(booted.get("proven"))
    return {
        "name": name,
        "mac": variables.get("node_boot_mac") or "",
        "running": target if proven else (seen.get("state") or {}).get("image") or "",
        "reachable": proven or bool(seen.get("state")),
        "holds": proven if tried else bool(seen.get("holds")),
        "tried": tried,
        "spare": bool(variables.get("node_boot_spare")),
    }


class ActionModule(NamedNodesAction):
    """Run the module with the progress of nodes."""

    STORE_PARTS = ("images", "channels")

    def rows(self, names: list[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the module's option ``nodes``."""
        return [progress_row(name, hostvars[name], self._task.args["target"]) for name in names]
