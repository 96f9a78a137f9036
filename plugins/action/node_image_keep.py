# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide which images stay from what nodes and stores reported to the role node_boot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.named import NamedNodesAction


def report_row(name: str, row: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return which image a node reported, or why it reported none, and the image that the inventory pins."""
    image = variables.get("node_boot_image") or {}
    silence = "" if row.get("answers") else str(row.get("why") or "it was not asked")
    return {"name": name, "running": row.get("running") or "", "silence": silence, "pinned": image.get("digest") or ""}


class ActionModule(NamedNodesAction):
    """Run the module with the reports of nodes."""

    STORE_PARTS = ("images", "missing")
    OWN = ("rows",)

    def rows(self, names: list[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the module's option ``nodes``."""
        return [report_row(name, self.given["rows"].get(name, {}), hostvars[name]) for name in names]
