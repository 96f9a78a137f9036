#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_accept
short_description: Take pending machines into the inventory, as the nodes that a person names
version_added: 0.1.0
description:
  - Matches the machines with the planned nodes by the switch ports that LLDP names, in a blueprint or NetBox. A machine
    that is at the cables of several planned nodes, or of none, needs its MAC address in O(accept).
  - Writes C(host_vars/NAME/accepted.yml) beside the inventory, with C(node_boot_mac) and C(site_machine) (C(vendor),
    C(product), C(serial), C(bmc_address), C(bmc_mac)). No other file is written. With O(netbox_url), NetBox is written
    before.
  - It refuses, before anything is written, names that the inventory does not have, machines that are not pending or
    that several nodes would get, machines in another node's place, and a file that a person wrote.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  accept:
    description: Node -> MAC address; an empty one is that of the machine in the node's planned place.
    type: dict
    default: {}
  pending:
    description: Results of M(sailloft.fleet.nodes_pending_info), one for each boot server.
    type: list
    elements: dict
    required: true
  nodes:
    description: The names of all nodes of the inventory.
    type: list
    elements: str
    required: true
  blueprint:
    description: The file of the blueprint, which has the planned cables.
    type: path
  netbox:
    description: The planned cables as M(sailloft.fleet.netbox_links_info) returned them.
    type: dict
  replace:
    description:
      - Whether nodes that have a machine get another one. Then the node's enrolled key in
        C(node_identity_enrolled_dir) is removed too, as it is that of the old machine's TPM.
    type: bool
    default: false
  netbox_url:
    description:
      - NetBox, to which serial numbers and MAC addresses of the machines, also of their BMCs, are written. It needs
        O(netbox). What NetBox has otherwise is refused, unless O(replace) is true.
    type: str
  netbox_token:
    description: Its token, which may write.
    type: str
  netbox_site:
    description: The slug of the site, if NetBox has several with devices of these names.
    type: str
  validate_certs:
    description: Whether its certificate is verified.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Accept a machine in its planned place, and one that is not planned
  sailloft.fleet.node_accept:
    accept: {gpu01: "", gpu02: "52:54:00:12:34:56"}
    pending: ["{{ pending }}"]
    nodes: "{{ groups.nodes }}"
    blueprint: "{{ site_blueprint }}"
"""

RETURN = r"""
report:
  description: A line for each pending machine, and for each that was accepted.
  returned: success
  type: list
  elements: str
replaced:
  description: The nodes that had another machine before.
  returned: success
  type: list
  elements: str
written:
  description: The files that were written or removed.
  returned: success
  type: list
  elements: str
"""
