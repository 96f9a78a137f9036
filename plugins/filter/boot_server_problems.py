# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What keeps a boot server from serving its nodes, for the role boot_server to say before it touches anything."""

from __future__ import annotations

DOCUMENTATION = r"""
name: boot_server_problems
short_description: What is wrong with the nodes and addresses of a boot server
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Holds the nodes of the role P(sailloft.fleet.boot_server#role) against its addresses. Names that are no host's, MAC
    addresses that are none, addresses outside of the network, and what two nodes share are said, all at once.
options:
  _input:
    description: The nodes, each with C(name), C(mac) and C(address).
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
    description: V(full) where the server gives the addresses, or V(proxy).
    type: str
    default: full
"""

EXAMPLES = r"""
problems: >-
  {{ [{'name': 'bm01', 'mac': '52:54:00:aa:bb:01', 'address': '10.9.0.11'}]
     | sailloft.fleet.boot_server_problems('10.9.0.1', '255.255.255.0', ['http://10.9.0.1']) }}
"""

RETURN = r"""
_value:
  description: A sentence for each problem; empty where there is none.
  type: list
  elements: str
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.module_utils.image import boot_server


def boot_server_problems(
    nodes: Any, address: Any, netmask: Any, servers: Any, gateway: Any = "", name_servers: Any = (), dhcp: Any = "full"
) -> list[str]:
    """The problems, as sentences. Raises AnsibleFilterError where the nodes are no list of dictionaries."""
    if not isinstance(nodes, list) or not all(isinstance(node, Mapping) for node in nodes):
        raise AnsibleFilterError("boot_server_problems: the nodes are no list of dictionaries of name, mac and address")
    server = boot_server.Server(
        address=address,
        netmask=netmask,
        gateway=gateway,
        name_servers=tuple(name_servers),
        urls=tuple(servers),
        gives=dhcp == "full",
    )
    return boot_server.problems(server, nodes)


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """By name."""
        return {"boot_server_problems": boot_server_problems}
