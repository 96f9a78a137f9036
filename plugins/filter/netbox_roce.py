# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Return the ports of the RoCE policy from NetBox's cables."""

from __future__ import annotations

DOCUMENTATION = r"""
name: netbox_roce
short_description: Return the ports of the RoCE policy from NetBox's cables
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Returns the variables that a blueprint gives, for Ethernet links among switches and between switches and hosts.
options:
  _input:
    description: What M(sailloft.fleet.netbox_links_info) returned.
    type: dict
    required: true
  switches:
    description: The names of the switches.
    type: list
    elements: str
    required: true
  hosts:
    description: The names of the hosts.
    type: list
    elements: str
    required: true
seealso:
  - module: sailloft.fleet.netbox_links_info
"""

EXAMPLES = r"""
variables: "{{ read | sailloft.fleet.netbox_roce(groups.roce_switches, groups.roce_hosts) }}"
"""

RETURN = r"""
_value:
  description: By device, C(roce_switch_ports) of switches and C(roce_host_nics) of hosts.
  type: dict
"""

from typing import Any


def netbox_roce(found: Any, switches: Any, hosts: Any) -> dict[str, Any]:
    """Return the variables by device."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.netbox import roce_variables

    return roce_variables(found, set(switches), set(hosts))


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"netbox_roce": netbox_roce}
