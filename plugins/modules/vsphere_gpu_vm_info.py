#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_gpu_vm_info
short_description: Read GPU virtual machines on VMware vSphere
version_added: 0.1.0
description:
  - Reads the virtual machines of a cluster with one request, and compares those in O(domains) with their plan.
extends_documentation_fragment:
  - sailloft.fleet.vsphere
  - sailloft.fleet.vsphere.vms
  - sailloft.fleet.attributes.reads
options:
  domains:
    description: Virtual machines with a spec, as in O(sailloft.fleet.vsphere_gpu_vm#module:domains).
    type: list
    elements: dict
    default: []
  names:
    description: Names of others to read. Without these and without O(domains), all are read.
    type: list
    elements: str
    default: []
seealso:
  - module: sailloft.fleet.vsphere_gpu_vm
"""

EXAMPLES = r"""
- name: Read all virtual machines of a cluster
  sailloft.fleet.vsphere_gpu_vm_info:
    hostname: vcenter.example.com
    username: "{{ vault_vsphere_user }}"
    password: "{{ vault_vsphere_password }}"
    cluster: gpu
  delegate_to: localhost
  register: found
"""

RETURN = r"""
findings:
  description: The findings of the checks for those in O(domains), as RV(sailloft.fleet.gpu_domain#module:findings).
  returned: success
  type: list
  elements: dict
hosts:
  description:
    - The ESXi hosts of those in O(domains), read together with them, each with its name and its topology as
      RV(sailloft.fleet.vsphere_host_topology_info#module:topology).
  returned: success
  type: list
  elements: dict
domains:
  description: Each virtual machine.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    exists:
      description: Whether it exists in vCenter.
      type: bool
    state:
      description: V(running), V(stopped), V(suspended) or V(absent).
      type: str
    host:
      description: Its ESXi host; if it is absent, that of its request or plan, else null.
      type: str
    configuration:
      description: The settings that the collection knows, as in vCenter; null if it is absent.
      type: dict
    ways:
      description:
        - For each passed-through device, by its address on the host, the steps from bus 0 of the guest to it, each as
          device and function. vCenter knows them after it has started the virtual machine.
      type: dict
    differences:
      description: The differences from the plan, each with path, wanted and have; for those in O(domains).
      type: list
      elements: dict
    plan:
      description: As RV(sailloft.fleet.vsphere_gpu_vm#module:domains[].plan); for those in O(domains).
      type: dict
    unplanned:
      description: Why it has no plan; null if it has one; for those in O(domains).
      type: str
"""

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.converge import info
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.options import LOGIN, VMS, with_environment


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            **with_environment(LOGIN, env_fallback),
            **VMS,
            "domains": {"type": "list", "elements": "dict", "default": []},
            "names": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: info(module.params))


if __name__ == "__main__":
    main()
