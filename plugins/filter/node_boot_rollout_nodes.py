# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Collect the progress of nodes in a rollout, for the module node_image_rollout."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_boot_rollout_nodes
short_description: Collect what the nodes of a rollout run and whether they were booted
version_added: 0.1.0
extends_documentation_fragment: sailloft.fleet.of_nodes
description:
  - Reads C(node_boot_mac), C(node_boot_spare), and what the role P(sailloft.fleet.node_boot#role) recorded for each
    node, the result of M(sailloft.fleet.node_image_proof) and whether this run has booted it.
options:
  target:
    description: Digest of the image that is rolled out.
    type: str
    required: true
"""

EXAMPLES = r"""
nodes: "{{ followers | sailloft.fleet.node_boot_rollout_nodes(hostvars, target) }}"
"""

RETURN = r"""
_value:
  description: The nodes as M(sailloft.fleet.node_image_rollout#module) takes them, in the order of the input.
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any


def node_boot_rollout_nodes(names: Iterable[str], hostvars: Mapping[str, Any], target: str) -> list[dict[str, Any]]:
    """Return rows of the module's option ``nodes``."""
    return [_row(name, hostvars[name], target) for name in names]


def _row(name: str, variables: Mapping[str, Any], target: str) -> dict[str, Any]:
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


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_boot_rollout_nodes": node_boot_rollout_nodes}
