#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""NIC firmware settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_firmware
short_description: Change settings in the firmware of NVIDIA (Mellanox) NICs
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Sets what differs in the firmware of ConnectX and BlueField NICs, through C(mstconfig), and knows what is in effect
    now and what will be after the next boot.
  - Devices of a kind or vendor that are no such NIC are left out, so that C(devices=[nic]) is right everywhere.
  - Tested against recorded output of the tool, not against a NIC.
options:
  settings:
    description: What which NICs are to have; a later entry wins over an earlier one.
    type: list
    elements: dict
    required: true
    suboptions:
      devices:
        description: >-
          A device is named by its kind (V(gpu), V(nic), V(nvme), V(nvswitch), V(bridge)), by vendor and device
          (V(10de:2330), or V(15b3:*) for all of a vendor), or by address (V(0000:3b:00.0)).
          The first function of a NIC stands for its firmware.
        type: list
        elements: str
        required: true
      values:
        description:
          - Settings by their name in C(mstconfig), with a boolean, a number or a word as C(mstconfig) prints it.
          - C(MAX_ACC_OUT_READ) is visible only with C(ADVANCED_PCI_SETTINGS); both can be given together. Some firmware
            shows it at once, and one boot serves both; other only after a boot, and the run after it sets it.
          - A setting that a NIC does not have fails the call, after all that the NICs do have was set.
        type: dict
        required: true
  by_family:
    description:
      - The settings of the table of families (ConnectX-6, -7, -8, BlueField-3), with ATS as the topology needs it.
      - O(settings) override it. A NIC of another family is left alone; a setting that the firmware of a NIC does not
        know is returned as RV(unknown), and is no failure.
    type: dict
    suboptions:
      devices:
        description: The GPUs and NICs, as O(sailloft.fleet.pci_tuning#module:acs_by_port).
        type: list
        elements: str
        required: true
      purpose:
        description: What for.
        type: str
        choices: [virtual_machines, bare_metal]
        required: true
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
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
  description: By address, what each setting is now (null where the firmware does not say) and after the next boot.
  returned: success
  type: dict
  sample: {"0000:3b:00.0": {"ATS_ENABLED": {"current": "False(0)", "next_boot": "True(1)"}}}
failures:
  description: What could not be set and why, a line each. Where there are any, the call fails with them.
  returned: when the settings are valid
  type: list
  elements: str
unknown:
  description: Settings of the table of families that the firmware of a NIC does not know, a line each.
  returned: when the settings are valid
  type: list
  elements: str
reboot_required:
  description: Whether a setting takes effect only at the next boot.
  returned: success
  type: bool
pending:
  description: What cannot take effect before the next boot, a line each.
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
