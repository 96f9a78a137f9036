# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Convert hosts' NICs from the inventory to the form of the module roce_switch_config."""

from __future__ import annotations

DOCUMENTATION = r"""
name: roce_hosts
short_description: Convert the variables of hosts for the module roce_switch_config
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Takes C(roce_host_nics) of each host. The module checks it.
options:
  _input:
    description: The names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
seealso:
  - module: sailloft.fleet.roce_switch_config
"""

EXAMPLES = r"""
hosts: "{{ groups.all | sailloft.fleet.roce_hosts(hostvars) }}"
"""

RETURN = r"""
_value:
  description: By host, its NICs; null for a host without the variable.
  type: dict
"""

from typing import Any


def roce_hosts(names: Any, hostvars: Any) -> dict[str, Any]:
    """Return for each host the variable roce_host_nics, or None."""
    return {name: hostvars[name].get("roce_host_nics") for name in names}


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"roce_hosts": roce_hosts}
