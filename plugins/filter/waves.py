# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the waves of a play from the inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: waves
short_description: Read the waves of a play, and the failures that end it, from the inventory
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Reads C(play_serial) and C(play_max_fail_percentage) of the first host. Ansible reads C(serial) of a play before it
    reads the variables of a host.
  - A value that Ansible would misinterpret, such as 0 hosts, which it takes for all hosts, is an error.
options:
  _input:
    description: The names of the hosts of the play's group.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts. Without any, as in the first play of a run, the result is the same as if
      the two variables were not set.
    type: dict
    required: true
  serial:
    description: The size of a wave if C(play_serial) is not set.
    type: raw
    default: 100%
  max_fail_percentage:
    description: The percentage of a wave that may fail if C(play_max_fail_percentage) is not set.
    type: int
    default: 100
"""

EXAMPLES = r"""
serial: "{{ (groups.gpu_hosts | default([]) | sailloft.fleet.waves(hostvars | default({}))).serial }}"
"""

RETURN = r"""
_value:
  description: >-
    C(serial), and C(max_fail_percentage). If the variables are not set, one wave with all hosts, and no limit.
  type: dict
"""

import re
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

SERIAL = re.compile(r"[1-9][0-9]{0,5}|([1-9][0-9]?|100)%")


def waves(
    names: list[str], hostvars: Mapping[str, Any], serial: Any = "100%", max_fail_percentage: int = 100
) -> dict[str, Any]:
    """Return serial and max_fail_percentage of a play. Raises AnsibleFilterError for a value that is not possible."""
    variables: Mapping[str, Any] = hostvars[names[0]] if names and hostvars else {}
    serial = variables.get("play_serial", serial)
    sizes = [str(size) for size in (serial if isinstance(serial, list) else [serial])]
    for size in sizes or [""]:
        if not SERIAL.fullmatch(size):
            raise AnsibleFilterError(
                f"{names[0]}: play_serial is {serial!r}; write a number of hosts from 1, a share like 10%, or a list"
            )
    percentage = str(variables.get("play_max_fail_percentage", max_fail_percentage))
    if not percentage.isdecimal() or int(percentage) > 100:
        raise AnsibleFilterError(
            f"{names[0]}: play_max_fail_percentage is {percentage!r}; write a number from 0 to 100"
        )
    return {"serial": sizes, "max_fail_percentage": int(percentage)}


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"waves": waves}
