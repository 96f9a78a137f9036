#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The BIOS settings that GPU virtual machines need."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bios_info
short_description: Check whether the BIOS of a host is set for GPU virtual machines
version_added: 0.1.0
description:
  - Reads from Linux whether the features of O(required) are on, and returns the same claims as the proof
    (M(sailloft.fleet.gpu_vm_proof)).
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  required:
    description:
      - The features that must be on. If one is not, the call fails and names the BIOS setting to turn on.
      - With a list, even an empty one, a host that is not x86_64 is refused, because it cannot have GPU virtual
        machines. Without a list, every host can be read.
      - V(sriov) requires at least one NIC with SR-IOV, V(acs) requires ACS on all ports above GPUs and NICs.
        V(interrupt_remapping) is visible only when the kernel runs the IOMMU.
      - A host without ACS works, but each PCIe switch is one IOMMU group. A host without SR-IOV works, but passes
        through whole NICs only.
    type: list
    elements: str
    choices: [extensions, iommu, interrupt_remapping, acs, sriov]
"""

EXAMPLES = r"""
- name: Fail where extensions or IOMMU are off
  sailloft.fleet.bios_info:
    required: [extensions, iommu]
"""

RETURN = r"""
claims:
  description: One claim for each feature, or one for each port or device that it concerns.
  returned: success
  type: list
  elements: dict
  sample: [{"layer": "bios", "claim": "the IOMMU remaps interrupts", "wanted": true, "seen": true, "holds": true}]
missing:
  description: The claims that do not hold, one line each, with the remedy.
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
    finish_on_host(
        module, lambda: bios_settings.observe(system, read_topology(system), module.params["required"]), reads=True
    )


if __name__ == "__main__":
    main()
