# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write NCCL's topology file for a guest on vSphere."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_vm_vsphere_nccl
short_description: Return NCCL's topology file for a guest on vSphere
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - ESXi gives a guest no PCIe switches, so the file carries those of the host above the guest's addresses. These are
    not known before the virtual machine runs. They are computed from the slot numbers that vCenter has and the guest's
    own PCI tree.
  - Never tried on a real ESXi. A device is accepted at an address only if vendor and model agree.
options:
  _input:
    description: What M(sailloft.fleet.vsphere_gpu_vm_info) returned for the virtual machine, with its plan.
    type: dict
    required: true
  hosts:
    description: RV(sailloft.fleet.vsphere_gpu_vm_info#module:hosts), with the host of the virtual machine.
    type: list
    elements: dict
    required: true
  guest:
    description: The RV(sailloft.fleet.host_topology_info#module:topology) of the guest, read in the guest.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the file
  ansible.builtin.debug:
    msg: "{{ vm | sailloft.fleet.gpu_vm_vsphere_nccl(read.hosts, inside.topology) }}"
"""

RETURN = r"""
_value:
  description:
    - The text of the file. Empty if the guest has no GPU, or if the guest address of a GPU or NIC is not known.
  type: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


def nccl(domain: dict[str, Any], hosts: list[dict[str, Any]], guest: dict[str, Any]) -> str:
    """Return the file's text, or "". Raises AnsibleFilterError where a topology or the plan is incomplete."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
    from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.guest import addresses, nccl_topology
    from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.plan import VspherePlan

    read_of = {row["name"]: row["topology"] for row in hosts}
    if not domain.get("plan") or domain.get("host") not in read_of or not guest:
        return ""
    try:
        host, guest_host, plan = (
            read_saved(read_of[domain["host"]]),
            read_saved(guest),
            VspherePlan.from_dict(domain["plan"]),
        )
        functions = [host.function(device.host_address) for device in plan.devices]
        places = addresses.locate(functions, domain.get("ways") or {}, guest_host)
        return nccl_topology.render(plan, host, guest_host, places) or ""
    except SailloftError as error:
        raise AnsibleFilterError(f"gpu_vm_vsphere_nccl: {error}") from error


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        """Return the filter."""
        return {"gpu_vm_vsphere_nccl": nccl}
