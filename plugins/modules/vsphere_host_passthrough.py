#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_host_passthrough
short_description: Enable passthrough and SR-IOV on the devices of ESXi hosts
version_added: 0.1.0
description:
  - Sets passthrough (DirectPath I/O) and the number of virtual functions of a set of devices, with one request per
    host. It takes effect immediately if the host supports that.
  - The state of the host afterwards shows whether it needs a reboot. It is rebooted only with O(allow_reboot), in
    maintenance mode, and never while virtual machines run on it.
extends_documentation_fragment:
  - sailloft.fleet.vsphere
  - sailloft.fleet.vsphere.hosts
options:
  settings:
    description: The settings of devices. A later element overrides an earlier one.
    type: list
    elements: dict
    required: true
    suboptions:
      devices:
        description:
          - Kinds (such as V(gpu) or V(nic)), vendor and device (V(10de:2330), V(15b3:*)), or PCI addresses.
          - A kind or a vendor selects the capable devices. The address of a device that is not capable is an error.
        type: list
        elements: str
        required: true
      passthrough:
        description: Whether a virtual machine can get the device. Use false for a NIC with virtual functions.
        type: bool
        default: true
      virtual_functions:
        description: The number of virtual functions of the NIC. V(0) turns SR-IOV off; left out, it is not changed.
        type: int
  allow_reboot:
    description: Reboot hosts that need it.
    type: bool
    default: false
  reboot_timeout_s:
    description: How long maintenance mode and the reboot of a host may take, in seconds.
    type: int
    default: 1800
  progress:
    description: A file to which progress is appended, in lines; the action plugin reads and shows it.
    type: path
attributes:
  check_mode:
    description: Can run in check mode and predict what would change.
    support: full
  diff_mode:
    description: Shows each device that changes.
    support: full
seealso:
  - module: sailloft.fleet.vsphere_host_topology_info
  - module: sailloft.fleet.vsphere_gpu_vm
"""

EXAMPLES = r"""
- name: Give all GPUs to virtual machines, and eight virtual functions to a NIC
  sailloft.fleet.vsphere_host_passthrough:
    hostname: vcenter.example.com
    username: "{{ vault_vsphere_user }}"
    password: "{{ vault_vsphere_password }}"
    cluster: gpu
    hosts: [esx01.example.com]
    settings:
      - devices: [gpu]
      - devices: ["0000:3b:00.0"]
        passthrough: false
        virtual_functions: 8
  delegate_to: localhost
"""

RETURN = r"""
reboot_required:
  description: Whether a host has settings that wait for a reboot.
  returned: success
  type: bool
hosts:
  description: Each host.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    changed:
      description: Whether anything was done to it.
      type: bool
    changes:
      description: The devices that changed, each with address, before and after.
      type: list
      elements: dict
    reboot_required:
      description: Whether it has settings that wait for a reboot.
      type: bool
    rebooted:
      description: Whether it was rebooted.
      type: bool
"""

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.common.progress import to_file
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts.passthrough import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.options import HOSTS, LOGIN, with_environment


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            **with_environment(LOGIN, env_fallback),
            **HOSTS,
            "settings": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "devices": {"type": "list", "elements": "str", "required": True},
                    "passthrough": {"type": "bool", "default": True},
                    "virtual_functions": {"type": "int"},
                },
            },
            "allow_reboot": {"type": "bool", "default": False},
            "reboot_timeout_s": {"type": "int", "default": 1800},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: converge(module.params, module.check_mode, to_file(module.params["progress"])))


if __name__ == "__main__":
    main()
