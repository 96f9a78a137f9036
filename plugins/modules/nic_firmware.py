#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""NIC firmware settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_firmware
short_description: Change settings in the firmware of NVIDIA (Mellanox) NICs
version_added: 0.1.0
description:
  - Changes settings in the firmware of ConnectX and BlueField NICs with C(mstconfig), if they differ, and returns the
    values in effect now and after the next boot.
  - Devices that are selected by kind or vendor and are not such a NIC are skipped, so that C(devices=[nic]) works on
    every host.
  - Tested against recorded output of the tool, not against a NIC.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  settings:
    description: The settings of NICs; a later entry overrides an earlier one.
    type: list
    elements: dict
    required: true
    suboptions:
      devices:
        description: >-
          A device is named by its kind (such as V(gpu), V(nic) or V(nvme)), by vendor and device
          (V(10de:2330), or V(15b3:*) for all of a vendor), or by address (V(0000:3b:00.0)).
          A NIC's firmware is addressed by the first function of the NIC.
        type: list
        elements: str
        required: true
      values:
        description:
          - Settings by their name in C(mstconfig), with a boolean, a number or a word as C(mstconfig) prints it.
          - C(MAX_ACC_OUT_READ) is visible only with C(ADVANCED_PCI_SETTINGS); both can be given together. Some firmware
            shows it immediately, so that one boot is enough for both; other firmware shows it only after a boot, and
            the next run sets it.
          - A setting that a NIC does not have fails the call, after all other settings are made.
        type: dict
        required: true
  by_family:
    description:
      - The settings of the table of families (ConnectX-6, -7, -8, BlueField-3), with ATS as the topology needs it.
      - O(settings) override it. A NIC of another family is not changed. A setting that the firmware of a NIC does not
        know is returned in RV(unknown) and is not a failure.
    type: dict
    suboptions:
      devices:
        description: The GPUs and NICs, as O(sailloft.fleet.pci_tuning#module:acs_by_port).
        type: list
        elements: str
        required: true
      purpose:
        description: The purpose, which determines ATS.
        type: str
        choices: [virtual_machines, bare_metal]
        required: true
"""

EXAMPLES = r"""
- name: Apply the paper's settings
  sailloft.fleet.nic_firmware:
    settings:
      - devices: ["15b3:*"]
        values:
          ADVANCED_PCI_SETTINGS: true
          MAX_ACC_OUT_READ: 44
          PCI_WR_ORDERING: per_mkey
          RDMA_SELECTIVE_REPEAT_EN: true
          ATS_ENABLED: true
          SRIOV_EN: true
          NUM_OF_VFS: 8
  register: firmware
"""

RETURN = r"""
devices:
  description: >-
    By address, the value of each setting now (null if the firmware does not show it) and after the next boot.
  returned: success
  type: dict
  sample: {"0000:3b:00.0": {"ATS_ENABLED": {"current": "False(0)", "next_boot": "True(1)"}}}
failures:
  description: Settings that could not be made, with the cause, one line each. The call fails if there are any.
  returned: when the settings are valid
  type: list
  elements: str
unknown:
  description: Settings of the table of families that the firmware of a NIC does not know, one line each.
  returned: when the settings are valid
  type: list
  elements: str
reboot_required:
  description: Whether a setting takes effect only at the next boot.
  returned: success
  type: bool
pending:
  description: Changes that take effect at the next boot only, one line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_gpu_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.concerns import read_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo.record import Remembering


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=nic_firmware.options(), supports_check_mode=True)
    system = Remembering(System())
    finish_on_gpu_host(
        module, system, lambda: nic_firmware.ensure(system, read_topology(system), module.params, module.check_mode)
    )


if __name__ == "__main__":
    main()
