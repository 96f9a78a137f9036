# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Convert switches from the inventory to the form of the module roce_switch_config."""

from __future__ import annotations

DOCUMENTATION = r"""
name: roce_switches
short_description: Convert the variables of switches for the module roce_switch_config
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Takes C(roce_switch_system), C(roce_switch_asic), C(roce_switch_ports), C(roce_switch_headroom) and
    C(roce_switch_queue_buffer_bytes) of each switch. The module checks them.
options:
  _input:
    description: The names of the switches.
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
switches: "{{ groups.roce_switches | sailloft.fleet.roce_switches(hostvars) }}"
"""

RETURN = r"""
_value:
  description: By switch, a dictionary of those that it has.
  type: dict
"""

from typing import Any

from ansible.errors import AnsibleFilterError

SETTINGS = ("system", "asic", "ports", "headroom", "queue_buffer_bytes")


def roce_switches(names: Any, hostvars: Any) -> dict[str, dict[str, Any]]:
    """Return for each switch the settings in its variables. Raises AnsibleFilterError for a switch that is missing."""
    switches = {}
    for name in names:
        if name not in hostvars:
            raise AnsibleFilterError(f"switch {name}: not in the inventory; correct the group")
        variables = hostvars[name]
        given = {setting: variables.get(f"roce_switch_{setting}") for setting in SETTINGS}
        switches[name] = {setting: value for setting, value in given.items() if value is not None}
    return switches


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"roce_switches": roce_switches}
