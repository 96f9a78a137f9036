# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the consoles that a host keeps."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_console_list
short_description: List the consoles that a host keeps for node_consoles
version_added: 0.1.0
description:
  - Makes the list of the C(node_bmc_console) of each node whose C(node_bmc_console_server) is the host.
  - A node with a console whose C(node_bmc_console_server) is not one of the names is an error.
  - The device V(ipmi) stands for the address, user and password of C(node_boot_bmc).
  - The list has passwords. Give it to O(sailloft.fleet.node_consoles#module:consoles) only.
extends_documentation_fragment: [sailloft.fleet.of_nodes]
positional: hostvars, server
options:
  server:
    description: The name of the host.
    type: str
    required: true
"""

EXAMPLES = r"""
consoles: "{{ groups.all | sailloft.fleet.node_console_list(hostvars, inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: The consoles, for O(sailloft.fleet.node_consoles#module:consoles).
  type: list
  elements: dict
"""

import re
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

ACCOUNT = ("username", "password")


def node_console_list(names: list[str], hostvars: Mapping[str, Any], server: str) -> list[dict[str, Any]]:
    """Return the consoles, by the names of their nodes."""
    consoles = []
    for name in sorted(names):
        variables = hostvars[name]
        console, bmc = variables.get("node_bmc_console") or {}, variables.get("node_boot_bmc") or {}
        if not console.get("device"):
            continue
        keeper = variables.get("node_bmc_console_server")
        if keeper not in names:
            raise AnsibleFilterError(
                f"{name}: nobody would keep its console: node_bmc_console_server is {keeper or ''!r}, which the "
                "inventory does not have; name a host of console_servers, or remove node_bmc_console"
            )
        if keeper != server:
            continue
        device = console["device"]
        if device == "ipmi":
            # The port of node_boot_bmc.address is that of Redfish.
            device = f"ipmi:{re.sub(r':[0-9]+$', '', bmc.get('address', ''))}"
        account = {key: (console.get(key) or bmc.get(key) or "") for key in ACCOUNT if device.startswith("ipmi:")}
        consoles.append({"name": name, "device": device, **account})
    return consoles


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_console_list": node_console_list}
