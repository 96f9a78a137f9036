#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The BIOS settings that GPU virtual machines need."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bios_info
short_description: Check whether the BIOS of a host is set for GPU virtual machines
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Reads, from what Linux found, whether virtual machine extensions, IOMMU, interrupt remapping, ACS and SR-IOV are
    on, and says it as claims, in the words of the proof (M(sailloft.fleet.gpu_vm_proof)).
options:
  required:
    description:
      - Which of them have to be on; the call fails, naming what to turn on, where one is not.
      - With a list, also an empty one, a host that is not x86_64 is refused, since it can have no GPU virtual machines.
        Without one, every host can be read.
      - V(sriov) asks for one NIC at least that has it, V(acs) for all ports above GPUs and NICs.
        V(interrupt_remapping) can be seen only once the kernel runs the IOMMU.
      - A host without ACS works, with whole switches as one IOMMU group, and one without SR-IOV gives out whole NICs.
    type: list
    elements: str
    choices: [extensions, iommu, interrupt_remapping, acs, sriov]
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: none
"""

EXAMPLES = r"""
- name: Fail where extensions or IOMMU are off
  sailloft.fleet.bios_info:
    required: [extensions, iommu]
"""

RETURN = r"""
claims:
  description: One claim a setting, for ACS one a port, and for SR-IOV one a NIC.
  returned: success
  type: list
  elements: dict
  sample: [{"layer": "bios", "claim": "the IOMMU remaps interrupts", "wanted": true, "seen": true, "holds": true}]
missing:
  description: What is not on, and what to do, a line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host import bios_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.concerns import read_topology


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=bios_settings.options(), supports_check_mode=True)
    system = System()
    finish_on_host(module, lambda: bios_settings.observe(system, read_topology(system), module.params["required"]))


if __name__ == "__main__":
    main()
