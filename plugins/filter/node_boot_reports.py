# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Convert the reports of nodes to the form of the module node_image_keep."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_boot_reports
short_description: Collect what nodes run and what the inventory pins for them
version_added: 0.1.0
extends_documentation_fragment: sailloft.fleet.of_nodes
description:
  - Reads the result of M(sailloft.fleet.node_image_info) that the role P(sailloft.fleet.node_boot#role) registered for
    each node, and C(node_boot_image).
"""

EXAMPLES = r"""
nodes: "{{ groups.nodes | sailloft.fleet.node_boot_reports(hostvars) }}"
"""

RETURN = r"""
_value:
  description: The nodes as M(sailloft.fleet.node_image_keep#module) takes them, in the order of the input.
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any


def node_boot_reports(names: Iterable[str], hostvars: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return rows of the module's option ``nodes``."""
    return [_row(name, hostvars[name]) for name in names]


def _row(name: str, variables: Mapping[str, Any]) -> dict[str, str]:
    report = variables.get("__node_boot_before") or {}
    image = variables.get("node_boot_image") or {}
    answered = "boot_id" in report
    return {
        "name": name,
        "running": report.get("image") or "",
        "silence": "" if answered else str(report.get("msg") or "").strip() or "it was not asked",
        "pinned": image.get("digest") or "",
    }


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_boot_reports": node_boot_reports}
