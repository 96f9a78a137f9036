# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the BMCs of nodes, to read what they say of the nodes' health."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_health_bmcs
short_description: List the BMCs of nodes for node_health_info
version_added: 0.1.0
description:
  - Makes the list of each node's C(node_boot_bmc) and its limits, C(node_health_checks). A node without the former has
    no part. One whose variables cannot be read has O(sailloft.fleet.node_health_info#module:bmcs[].unread).
  - The list has passwords. Give it to O(sailloft.fleet.node_health_info#module:bmcs) only.
extends_documentation_fragment: [sailloft.fleet.of_nodes]
positional: hostvars
"""

EXAMPLES = r"""
bmcs: "{{ ansible_play_hosts_all | sailloft.fleet.node_health_bmcs(hostvars) }}"
"""

RETURN = r"""
_value:
  description: The BMCs, for O(sailloft.fleet.node_health_info#module:bmcs).
  type: list
  elements: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError

GIVEN = ("type", "address", "username", "password", "verify_tls", "ca", "timeout_s")


def node_health_bmcs(names: list[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the BMC of each node that has one."""
    from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_variables import VariablesOfHosts

    variables = VariablesOfHosts(hostvars)
    bmcs: list[dict[str, Any]] = []
    for name in names:
        try:
            bmc = variables[name].get("node_boot_bmc") or {}
            checks = variables[name].get("node_health_checks") or {} if bmc else {}
        except AnsibleError as error:
            bmcs.append({"host": name, "unread": str(error), **dict.fromkeys(("address", "username", "password"), "")})
            continue
        if bmc.get("address"):
            settings = {key: bmc[key] for key in GIVEN if key in bmc}
            if bmc.get("type") == "ipmi" and "port" in bmc:
                settings["address"] = f"{bmc['address']}:{bmc['port']}"
            bmcs.append({"host": name, **settings, "checks": checks})
    return bmcs


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_health_bmcs": node_health_bmcs}
