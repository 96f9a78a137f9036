# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a boot server, for the templates of the role boot_server."""

from __future__ import annotations

DOCUMENTATION = r"""
name: boot_server_plan
short_description: Plan the networks, boot files and limits of a boot server
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Computes the settings with which the role P(sailloft.fleet.boot_server#role) configures dnsmasq and nginx. All
    limits follow from the number of nodes. P(sailloft.fleet.boot_server_problems#filter) must have checked the input
    before.
options:
  _input:
    description: The nodes, each with C(name), C(mac), C(address), C(architecture), C(nic_driver) and
      C(secure_boot).
    type: list
    elements: dict
    required: true
  address:
    description: The server's address.
    type: str
    required: true
  netmask:
    description: Its network's mask.
    type: str
    required: true
  gateway:
    description: The router of the nodes in that network, or empty.
    type: str
    default: ""
  subnets:
    description: The networks behind DHCP relays, each with C(network) and C(gateway).
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
plan: >-
  {{ [{'name': 'bm01', 'mac': '52:54:00:aa:bb:01', 'address': '10.9.0.11'}]
     | sailloft.fleet.boot_server_plan('10.9.0.1', '255.255.255.0') }}
"""

RETURN = r"""
_value:
  description: >-
    C(networks) (tag, first, netmask, gateway), C(firmwares) that are answered, C(files) that they get (name, cpu),
    C(signing) (the firmwares that may have Secure Boot, if a node has it), and C(capacity), the limits by name.
  type: dict
"""

from typing import Any


def boot_server_plan(nodes: Any, address: Any, netmask: Any, gateway: Any = "", subnets: Any = ()) -> dict[str, Any]:
    """Return the plan."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_plan

    return boot_plan.plan(address, netmask, gateway, tuple(subnets), nodes)


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"boot_server_plan": boot_server_plan}
