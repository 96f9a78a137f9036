#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: netbox_links_info
short_description: Read all cables between interfaces from NetBox
version_added: 0.1.0
description:
  - Reads the interfaces and cables of a site from NetBox's REST API, page by page, and returns which interfaces are
    connected, their speeds and the lengths of their cables.
  - M(sailloft.fleet.cabling_check) compares it with what devices see.
extends_documentation_fragment: [sailloft.fleet.attributes.reads, sailloft.fleet.netbox]
options:
  netbox_site:
    description: The slug of the site. Without it, all sites are read.
    type: str
  switches:
    description: The names of the switches to which RV(roce_variables) belong.
    type: list
    elements: str
    default: []
  hosts:
    description: The names of the hosts to which RV(roce_variables) belong.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read the cables
  sailloft.fleet.netbox_links_info:
    netbox_url: https://netbox.example.com
    netbox_token: "{{ lookup('ansible.builtin.env', 'NETBOX_TOKEN') }}"
    netbox_site: vela
  delegate_to: localhost
"""

RETURN = r"""
links:
  description: >-
    The connections of two interfaces, each with C(ends) (device and interface of both, the end A first),
    C(speed_gbit_s) (0 if it is not known), C(infiniband) and C(length_m) (none if it is not known, or the way leads
    through patch panels).
  returned: success
  type: list
  elements: dict
  sample:
    - {ends: [[gpu01, ens1np0], [leaf1, Ethernet0]], speed_gbit_s: 400, infiniband: false, length_m: 3.0}
interfaces:
  description: By device and name, the interface's C(label) (its name without one) and C(management).
  returned: success
  type: dict
roce_variables:
  description: >-
    The variables that a blueprint gives, for Ethernet links among O(switches) and between these and O(hosts): by
    device, C(roce_switch_ports) of switches and C(roce_host_nics) of hosts.
  returned: success
  type: dict
left_out:
  description: Connections that are not in RV(links), with the cause.
  returned: success
  type: list
  elements: str
  sample: ["leaf1 Ethernet0: its cable has 4 far ends"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.netbox import read_links, roce_variables
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import ARGUMENTS, NetboxApi


def main() -> None:
    """Run the module."""
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "netbox_site": {"type": "str"}, "switches": names, "hosts": names},
        supports_check_mode=True,
    )
    api = NetboxApi(module.params, open_url)
    query = [("site", module.params["netbox_site"])] if module.params["netbox_site"] else []

    def work() -> dict[str, Any]:
        result = read_links(api.read("dcim/interfaces", query), api.read("dcim/cables", query))
        variables = roce_variables(result, set(module.params["switches"]), set(module.params["hosts"]))
        return {**result, "roce_variables": variables}

    finish(module, work)


if __name__ == "__main__":
    main()
