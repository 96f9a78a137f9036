#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_gpu_vm
short_description: Define GPU virtual machines on VMware vSphere
version_added: 0.1.0
description:
  - Plans the GPU virtual machines of a cluster, all those of a host together, and brings them into their state. It uses
    the specification and the planner of M(sailloft.fleet.gpu_domain).
  - The cluster is read with one request. The tasks of all virtual machines run in parallel.
  - The configuration in vCenter is compared with the plan, and is read back after a change.
  - Requests that are known to fail, or that the negotiated API would ignore in part, are refused before anything is
    sent.
extends_documentation_fragment:
  - sailloft.fleet.vsphere
  - sailloft.fleet.vsphere.vms
options:
  domains:
    description:
      - The virtual machines, each as in O(sailloft.fleet.gpu_domain#module:domains). The source of an interface is a
        port group. Only C(size_mib) of a disk is used, and a new virtual disk of that size is created.
      - C(vsphere) of each has the settings of vSphere, as text. C(host) is a name. A new virtual machine without it
        gets the host with the fewest free GPUs that has room for it, and stays there. C(datastore) is a name, and may
        be left out where there is one. C(guest_id) is otherLinux64Guest by default, C(hardware_version) the newest of
        the host (an existing virtual machine keeps its own). C(passthrough) is fixed (by address) or dynamic (by
        model). C(device_group) is a vendor's device group, and C(sriov_network) the port group of virtual functions.
        C(latency_sensitivity) is high, with all of its CPU time reserved, or normal.
    type: list
    elements: dict
    required: true
  state:
    description:
      - V(present) creates them. V(running) also starts them. V(stopped) creates them and shuts them down.
      - V(absent) powers them off and deletes them with their disks. V(planned) returns the plan and changes nothing.
    type: str
    choices: [present, running, stopped, absent, planned]
    default: running
  allow_restart:
    description:
      - Power off a running virtual machine whose configuration differs, change it, and start it again.
      - Without it, RV(restart_required) is true, and the virtual machine is not changed.
    type: bool
    default: false
  shutdown_timeout_s:
    description: How long a guest with VMware Tools may take to shut down, in seconds, before it is powered off.
    type: int
    default: 120
  task_timeout_s:
    description: How long the tasks of one step may run in vCenter, in seconds.
    type: int
    default: 900
  progress:
    description: A file to which progress is appended, in lines; the action plugin reads and shows it.
    type: path
attributes:
  check_mode:
    description: Can run in check mode and predict what would change.
    support: full
  diff_mode:
    description: Shows each setting that differs.
    support: full
seealso:
  - module: sailloft.fleet.vsphere_gpu_vm_info
  - module: sailloft.fleet.vsphere_host_passthrough
  - module: sailloft.fleet.gpu_domain
"""

EXAMPLES = r"""
- name: Define a virtual machine with two GPUs and the nearest virtual function to each
  sailloft.fleet.vsphere_gpu_vm:
    hostname: vcenter.example.com
    username: "{{ vault_vsphere_user }}"
    password: "{{ vault_vsphere_password }}"
    cluster: gpu
    domains:
      - name: train-01
        gpus: {count: 2}
        nics: {per_gpu: 1}
        memory_mib: 524288
        disks:
          - {size_mib: 204800}
        interfaces:
          - source: VM Network
        vsphere:
          host: esx01.example.com
          sriov_network: roce
  delegate_to: localhost
"""

RETURN = r"""
restart_required:
  description: Whether a running virtual machine differs from its plan and was not changed.
  returned: success
  type: bool
findings:
  description: As RV(sailloft.fleet.gpu_domain#module:findings).
  returned: success, or when the request was refused
  type: list
  elements: dict
hosts:
  description: As RV(sailloft.fleet.vsphere_gpu_vm_info#module:hosts).
  returned: success
  type: list
  elements: dict
domains:
  description: Each virtual machine, in the order in which they were given.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    host:
      description: Its ESXi host.
      type: str
    state_before:
      description: V(running), V(stopped), V(suspended) or V(absent).
      type: str
    state:
      description: Its state after.
      type: str
    changed:
      description: Whether anything was done to it.
      type: bool
    actions:
      description: The actions, out of power_off, destroy, create, upgrade, reconfigure, power_on.
      type: list
      elements: str
    differences:
      description: The differences, each with path, wanted and have.
      type: list
      elements: dict
    restart_required:
      description: Whether it still runs with RV(domains[].differences).
      type: bool
    ways:
      description: As RV(sailloft.fleet.vsphere_gpu_vm_info#module:domains[].ways); empty until it was started.
      type: dict
    plan:
      description:
        - The plan, with name, host, cells (id, host_node, memory_mib, vcpus), devices (host_address, kind, host_node,
          physical_function, host_path), the wanted configuration, and notes. Null with O(state=absent).
      type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.common.progress import to_file
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import RefusedError, warnings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.converge import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.options import LOGIN, VMS, with_environment


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            **with_environment(LOGIN, env_fallback),
            **VMS,
            "domains": {"type": "list", "elements": "dict", "required": True},
            "state": {
                "type": "str",
                "choices": ["present", "running", "stopped", "absent", "planned"],
                "default": "running",
            },
            "allow_restart": {"type": "bool", "default": False},
            "shutdown_timeout_s": {"type": "int", "default": 120},
            "task_timeout_s": {"type": "int", "default": 900},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )

    def work() -> dict[str, Any]:
        try:
            result = converge(module.params, module.check_mode, to_file(module.params["progress"]))
        except RefusedError as error:
            _warn(module, error.result()["findings"])
            raise
        _warn(module, result["findings"])
        return result

    finish(module, work)


def _warn(module: AnsibleModule, findings: list[dict[str, Any]]) -> None:
    for text in warnings(findings, module.params["hostname"] or "vSphere"):
        module.warn(text)


if __name__ == "__main__":
    main()
