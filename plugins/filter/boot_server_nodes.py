# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Collect the nodes that a boot server serves from the inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: boot_server_nodes
short_description: Collect the nodes of a boot server from their variables
version_added: 0.1.0
extends_documentation_fragment: sailloft.fleet.of_nodes
description:
  - Takes the nodes that have C(node_boot_mac), with their address C(ansible_host), C(boot_server_architecture),
    C(boot_server_nic_driver) and C(node_boot_secure_boot).
options:
  architecture:
    description: The architecture of nodes that have none of their own.
    type: str
    required: true
  nic_driver:
    description: The NIC driver of nodes that have none of their own.
    type: str
    default: ipxe
"""

EXAMPLES = r"""
boot_server_nodes: "{{ groups.nodes | sailloft.fleet.boot_server_nodes(hostvars, 'x86_64') }}"
"""

RETURN = r"""
_value:
  description: The nodes, each with C(name), C(mac), C(address), C(architecture), C(nic_driver) and C(secure_boot), in
    the order of the input.
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean


def boot_server_nodes(
    names: Iterable[str], hostvars: Mapping[str, Any], architecture: str, nic_driver: str = "ipxe"
) -> list[dict[str, Any]]:
    """Return the nodes."""
    variables = ((name, hostvars[name]) for name in names)
    return [
        {
            "name": name,
            "mac": host_variables["node_boot_mac"],
            "address": host_variables.get("ansible_host", name),
            "architecture": host_variables.get("boot_server_architecture", architecture),
            "nic_driver": host_variables.get("boot_server_nic_driver", nic_driver),
            "secure_boot": boolean(host_variables.get("node_boot_secure_boot", False)),
        }
        for name, host_variables in variables
        if "node_boot_mac" in host_variables
    ]


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"boot_server_nodes": boot_server_nodes}
