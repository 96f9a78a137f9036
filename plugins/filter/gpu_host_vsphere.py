# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Convert the variables of servers with KVM to the device settings of an ESXi host."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_host_vsphere
short_description: Return the passthrough settings of an ESXi host's devices
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Converts the variables of the role P(sailloft.fleet.gpu_host#role) to
    O(sailloft.fleet.vsphere_host_passthrough#module:settings).
options:
  _input:
    description: C(state), C(vfio), C(vfio_released) and C(sriov), the variables of the role without C(gpu_host_).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the settings
  ansible.builtin.debug:
    msg: "{{ wanted | sailloft.fleet.gpu_host_vsphere }}"
  vars:
    wanted: {state: present, vfio: [gpu], vfio_released: [], sriov: [{devices: [nic], count: 8}]}
"""

RETURN = r"""
_value:
  description: The settings. A later one overrides an earlier one.
  type: list
  elements: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

SRIOV = ("devices", "count")


def settings_of(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return ``settings`` for vsphere_host_passthrough. Raises AnsibleFilterError for what vCenter cannot set."""
    present = request["state"] == "present"
    settings: list[dict[str, Any]] = []
    if request["vfio"]:
        settings.append({"devices": request["vfio"], "passthrough": present})
    if request["vfio_released"]:
        settings.append({"devices": request["vfio_released"], "passthrough": False})
    for number, entry in enumerate(request["sriov"]):
        unsupported = sorted(str(name) for name in set(entry) - set(SRIOV))
        if unsupported or set(entry) != set(SRIOV):
            raise AnsibleFilterError(
                f"gpu_host_sriov[{number}]: on vSphere an entry must have {' and '.join(SRIOV)}, "
                f"not {', '.join(unsupported) or 'fewer'}; set other settings in vCenter, at the port group"
            )
        count = entry["count"] if present else 0
        settings.append({"devices": entry["devices"], "passthrough": False, "virtual_functions": count})
    return settings


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        """Return the filter."""
        return {"gpu_host_vsphere": settings_of}
