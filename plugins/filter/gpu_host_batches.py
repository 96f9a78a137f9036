# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Choose the size of the batches in which hosts are rebooted: the smallest that any of the hosts allows."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_host_batches
short_description: Return the batches in which hosts are rebooted
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - A play has one C(serial) for all of its hosts, and each host has its own C(gpu_host_serial) and
    C(gpu_host_max_fail_percentage). The smallest values count, so that no host is rebooted together with more hosts
    than its own variables allow.
options:
  _input:
    description: The names of the hosts that are rebooted.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts. C(gpu_host_reboot) of each is read, a result of the role.
    type: dict
    required: true
"""

EXAMPLES = r"""
serial: "{{ (names | sailloft.fleet.gpu_host_batches(hostvars | default({}))).serial }}"
"""

RETURN = r"""
_value:
  description: C(serial) as a number of hosts, and C(max_fail_percentage); 1 and 0 without a host.
  type: dict
"""

from collections.abc import Mapping
from typing import Any


def batches(names: list[str], hostvars: Mapping[str, Any]) -> dict[str, int]:
    """Return the smallest serial, in hosts, and the smallest max_fail_percentage of the hosts."""
    reboots = [hostvars[name]["gpu_host_reboot"] for name in names]
    return {
        "serial": min((_hosts(str(reboot["serial"]), len(names)) for reboot in reboots), default=1),
        "max_fail_percentage": min((int(reboot["max_fail_percentage"]) for reboot in reboots), default=0),
    }


def _hosts(serial: str, count: int) -> int:
    """Return a serial as a number of hosts; a percentage is rounded like ansible.utils.helpers.pct_to_int."""
    return max(1, int(serial[:-1]) * count // 100) if serial.endswith("%") else int(serial)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        """Return the filter."""
        return {"gpu_host_batches": batches}
