# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List nodes with their BMCs and baselines."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_firmware_nodes
short_description: List nodes with their BMCs and baselines for node_firmware
version_added: 0.1.0
description:
  - Makes the list of each node's C(node_boot_bmc) and C(node_boot_baselines).
  - The list has passwords. Give it to O(sailloft.fleet.node_firmware#module:nodes) only.
extends_documentation_fragment: [sailloft.fleet.of_nodes]
positional: hostvars
"""

EXAMPLES = r"""
nodes: "{{ ansible_play_hosts_all | sailloft.fleet.node_firmware_nodes(hostvars) }}"
"""

RETURN = r"""
_value:
  description: The nodes, for O(sailloft.fleet.node_firmware#module:nodes).
  type: list
  elements: dict
"""

from collections.abc import Mapping
from typing import Any

OF_BMC = ("type", "address", "username", "password", "verify_tls", "ca", "system", "timeout_s")


def node_firmware_nodes(names: list[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes; one without a BMC has none in the list, either."""
    nodes = []
    for name in names:
        variables = hostvars[name]
        bmc = variables.get("node_boot_bmc") or {}
        given = {key: bmc[key] for key in OF_BMC if key in bmc}
        nodes.append({"name": name, "bmc": given or None, "baselines": variables.get("node_boot_baselines") or {}})
    return nodes


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_firmware_nodes": node_firmware_nodes}
