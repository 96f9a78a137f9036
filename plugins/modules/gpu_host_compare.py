#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_compare
short_description: Compare a GPU host with all its settings, in one call
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Says whether M(sailloft.fleet.bios_info), M(sailloft.fleet.kernel_arguments), M(sailloft.fleet.nic_firmware) and
    M(sailloft.fleet.gpu_host_boot) have anything to do or to say on a host. Every setting is read; nothing is changed.
  - The role P(sailloft.fleet.gpu_host#role) calls these modules only where this call finds a difference, so that a run
    without changes is one call of a module.
  - It does not fail because of a setting. What one of these modules would refuse, or could not read, is a difference,
    and the module itself then says why.
options:
  bios_info:
    description: The arguments of M(sailloft.fleet.bios_info).
    type: dict
    required: true
  kernel_arguments:
    description: The arguments of M(sailloft.fleet.kernel_arguments).
    type: dict
    required: true
  nic_firmware:
    description: The arguments of M(sailloft.fleet.nic_firmware).
    type: dict
    required: true
  gpu_host_boot:
    description: The arguments of M(sailloft.fleet.gpu_host_boot).
    type: dict
    required: true
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: none
"""

EXAMPLES = r"""
- name: Compare the host with its settings
  sailloft.fleet.gpu_host_compare:
    bios_info:
      required: [extensions, iommu]
    kernel_arguments:
      iommu: passthrough
    nic_firmware:
      settings: []
    gpu_host_boot:
      vfio_binding:
        devices: [gpu]
  register: compared
"""

RETURN = r"""
held:
  description: Whether the host has every setting, needs no reboot, and there is nothing to say about it.
  returned: success
  type: bool
differences:
  description: Why not, a line each, beginning with the module.
  returned: success
  type: list
  elements: str
  sample: ["gpu_host_boot: hugepages: node 0, 1024 MiB"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.sailloft.fleet.plugins.module_utils.host import compare
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_gpu_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def compared(system: System, given: dict[str, Any]) -> Outcome:
    """Return as facts what ``given`` (arguments by module) finds to be different."""
    found: list[str] = []
    checked: dict[str, dict[str, Any]] = {}
    for name, options in compare.options().items():
        validated = ArgumentSpecValidator(options).validate(given[name])
        found += [f"{name}: {message}" for message in validated.error_messages]
        checked[name] = validated.validated_parameters
    found = found or compare.differences(system, checked)
    return Outcome(facts={"held": not found, "differences": found})


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "bios_info": {"type": "dict", "required": True},
            "kernel_arguments": {"type": "dict", "required": True},
            "nic_firmware": {"type": "dict", "required": True},
            "gpu_host_boot": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    system = System()
    finish_on_gpu_host(module, system, lambda: compared(system, module.params))


if __name__ == "__main__":
    main()
