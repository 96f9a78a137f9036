# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checked plan of a boot server, for the tasks and templates of the role boot_server."""

from __future__ import annotations

DOCUMENTATION = r"""
name: boot_server_plan
short_description: Check the nodes and the settings of a boot server, and plan its networks, boot files and limits
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Checks the variables of the role P(sailloft.fleet.boot_server#role). It reports together all invalid host names and
    MAC addresses, addresses outside of the networks, overlapping networks, values that two nodes share, and settings
    that dnsmasq or nginx would misread.
  - If there are none, it computes the settings with which the role configures dnsmasq and nginx. All limits follow from
    the number of nodes.
options:
  _input:
    description: The nodes, each with C(name), C(mac), C(address), C(architecture), C(nic_driver) and C(secure_boot).
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
  servers:
    description: The URLs of all boot servers.
    type: list
    elements: str
    required: true
  gateway:
    description: The nodes' router, or empty.
    type: str
    default: ""
  name_servers:
    description: The nodes' name servers.
    type: list
    elements: str
    default: []
  dhcp:
    description: V(full) if the server assigns the addresses, or V(proxy).
    type: str
    default: full
  subnets:
    description: The networks behind DHCP relays, each with C(network) and C(gateway).
    type: list
    elements: dict
    default: []
  discovery:
    description: C(boot_server_discovery) of the role.
    type: dict
    default: {}
  interface:
    description: The interface to the nodes' network.
    type: str
    default: eth0
  http_port:
    description: The port of nginx.
    type: int
    default: 80
  store_dir:
    description: The directory of the store.
    type: str
    default: /srv/sailloft
  tftp_dir:
    description: The directory that TFTP serves.
    type: str
    default: /srv/tftp
"""

EXAMPLES = r"""
plan: >-
  {{ [{'name': 'bm01', 'mac': '52:54:00:aa:bb:01', 'address': '10.9.0.11'}]
     | sailloft.fleet.boot_server_plan('10.9.0.1', '255.255.255.0', ['http://10.9.0.1']) }}
"""

RETURN = r"""
_value:
  description: >-
    C(problems), a sentence for each; and without any C(networks) (tag, first, netmask, gateway), C(firmwares) that are
    answered, C(files) that they get (name, cpu), C(signing) (the firmwares that may have Secure Boot, if a node has
    it), and C(capacity), the limits by name.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def boot_server_plan(
    nodes: Any,
    address: Any,
    netmask: Any,
    servers: Any,
    gateway: Any = "",
    name_servers: Any = (),
    dhcp: Any = "full",
    subnets: Any = (),
    discovery: Any = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return the problems or the plan. Raises AnsibleFilterError if the nodes are no list of dictionaries."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_plan, boot_server

    if not isinstance(nodes, list) or not all(isinstance(node, Mapping) for node in nodes):
        raise AnsibleFilterError(
            "boot_server_plan: the nodes are not a list of dictionaries with name, mac and address"
        )
    server = boot_server.Server(
        address=address,
        netmask=netmask,
        gateway=gateway,
        name_servers=tuple(name_servers),
        urls=tuple(servers),
        gives=dhcp == "full",
        subnets=tuple(subnets),
        discovery=discovery,
        **settings,
    )
    problems = boot_server.problems(server, nodes)
    plan = {} if problems else boot_plan.plan(address, netmask, gateway, server.subnets, nodes, discovery)
    return {"problems": problems, **plan}


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"boot_server_plan": boot_server_plan}
