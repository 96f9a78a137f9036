# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of ESXi hosts for their devices, in one call for each cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_host_vsphere
short_description: Gather what the devices of ESXi hosts get, by cluster
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Returns one item for each vCenter, cluster and set of settings, so that hosts of a cluster that want the same are
    one call of M(sailloft.fleet.vsphere_host_passthrough). The items have no password, which a loop would show.
options:
  _input:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts. C(gpu_vm_vsphere) of each is read.
    type: dict
    required: true
  requests:
    description:
      - The variables of the role P(sailloft.fleet.gpu_host#role) by host, C(vfio), C(vfio_released) and C(sriov), and
        C(state).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Gather the settings
  ansible.builtin.debug:
    msg: "{{ ansible_play_batch | sailloft.fleet.gpu_host_vsphere(hostvars, requests) }}"
  vars:
    requests:
      esx01: {state: present, vfio: [gpu], vfio_released: [], sriov: [{devices: [nic], count: 8}]}
"""

RETURN = r"""
_value:
  description:
    - For each call, C(first), the host whose C(gpu_vm_vsphere) has the login, C(name), for messages,
      C(inventory_hosts), C(hosts), which are their names in vCenter, and C(settings).
  type: list
  elements: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.gpu_vm_vsphere import gather

SRIOV = ("devices", "count")


def settings_of(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the ``settings`` of vsphere_host_passthrough. Raises AnsibleFilterError for what vCenter cannot set."""
    present = request["state"] == "present"
    found: list[dict[str, Any]] = []
    if request["vfio"]:
        found.append({"devices": request["vfio"], "passthrough": present})
    if request["vfio_released"]:
        found.append({"devices": request["vfio_released"], "passthrough": False})
    for number, entry in enumerate(request["sriov"]):
        others = sorted(set(entry) - set(SRIOV))
        if others or set(entry) != set(SRIOV):
            raise AnsibleFilterError(
                f"gpu_host_sriov[{number}]: on vSphere an entry has {' and '.join(SRIOV)}, "
                f"and not {', '.join(others) or 'less'}; set the others in vCenter, at the port group"
            )
        count = entry["count"] if present else 0
        found.append({"devices": entry["devices"], "passthrough": False, "virtual_functions": count})
    return found


def calls(hosts: list[str], hostvars: Mapping[str, Any], requests: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one item for each vCenter, cluster and settings, in the order of the hosts; none without settings."""
    found: list[dict[str, Any]] = []
    for cluster in gather(hosts, hostvars):
        mine: list[dict[str, Any]] = []
        for host, name in zip(cluster["inventory_hosts"], cluster["hosts"]):
            settings = settings_of(requests[host])
            if not settings:
                continue
            item = next((item for item in mine if item["settings"] == settings), None)
            if item is None:
                item = {
                    "first": host,
                    "name": cluster["name"],
                    "inventory_hosts": [],
                    "hosts": [],
                    "settings": settings,
                }
                mine.append(item)
            item["inventory_hosts"].append(host)
            item["hosts"].append(name)
        found += mine
    return found


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        """Return the filter."""
        return {"gpu_host_vsphere": calls}
