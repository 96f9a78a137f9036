#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""MaxReadReq, relaxed ordering and ACS."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pci_tuning
short_description: Set MaxReadReq, relaxed ordering and ACS of all PCI devices of a host
version_added: 0.1.0
description:
  - Writes the device control and ACS control registers of all selected devices in one call, and reads them back.
  - A setting that a device does not support is refused if the device is selected by its address; if it is selected by
    kind, the setting is left out and reported. A register that is read-only is reported as C(not_writable).
  - ACS is never weakened as a side effect. If an isolating bit is on and not requested, the call fails unless
    O(settings[].allow_less_isolation=true).
  - The settings last until the next boot; M(sailloft.fleet.gpu_host_boot) makes them at every boot.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  settings:
    description: The settings of devices; a later entry overrides an earlier one.
    type: list
    elements: dict
    required: true
    suboptions:
      devices:
        description: >-
          A device is named by its kind (such as V(gpu), V(nic) or V(nvme)), by vendor and device
          (V(10de:2330), or V(15b3:*) for all of a vendor), or by address (V(0000:3b:00.0)).
        type: list
        elements: str
        required: true
      max_read_request_bytes:
        description: The size of the largest read request of the device (MaxReadReq). VFs follow their PF.
        type: int
        choices: [128, 256, 512, 1024, 2048, 4096]
      relaxed_ordering:
        description: Whether the device's writes may overtake others.
        type: bool
      acs:
        description: >-
          The ACS bits that are on, restricted to what the port has. IBM's scripts for Vela set all except
          V(translation_blocking) and V(egress_control), so that requests go through the IOMMU unless it has translated
          them already.
        type: list
        elements: str
        choices: [source_validation, translation_blocking, request_redirect, completion_redirect, upstream_forwarding,
          egress_control, direct_translated]
      allow_less_isolation:
        description: Whether isolating ACS bits may be turned off. Never do so if two tenants share a switch.
        type: bool
        default: false
  acs_by_port:
    description:
      - ACS by port, computed from the topology; an entry of O(settings) with C(acs) takes precedence at its ports.
      - The ports above the devices get the bits that GPUDirect needs there, by the rules of NVIDIA's C(rdma_topo).
    type: dict
    suboptions:
      devices:
        description: The GPUs and NICs that guests get, or that run on this host; those that the host uses are left out.
        type: list
        elements: str
        required: true
      purpose:
        description:
          - V(virtual_machines) isolates tenants; only requests that the IOMMU has translated take the direct path.
          - V(bare_metal) turns redirection off; it is refused while a device is bound to vfio-pci.
        type: str
        choices: [virtual_machines, bare_metal]
        required: true
"""

EXAMPLES = r"""
- name: Set MaxReadReq, and ACS by port
  sailloft.fleet.pci_tuning:
    settings:
      - devices: [gpu, nic, nvme]
        max_read_request_bytes: 4096
    acs_by_port: {devices: [gpu, nic], purpose: virtual_machines}

- name: Set the published settings of the Vela cluster, the same on every port
  sailloft.fleet.pci_tuning:
    settings:
      - devices: [gpu, nic, nvme]
        max_read_request_bytes: 4096
      - devices: [bridge]
        acs: [source_validation, request_redirect, completion_redirect, upstream_forwarding, direct_translated]
"""

RETURN = r"""
devices:
  description:
    - By address, the value of each setting now (in check mode, the predicted value), C(not_writable) for registers
      that are read-only, and under C(not_applicable) the settings that it cannot have, with the reason.
  returned: success
  type: dict
  sample: {"0000:10:00.0": {"acs": ["source_validation"]}}
acs_by_port:
  description: The ports with topology, role and mask, and under C(unmet) what is expected of ATS and IOMMU groups.
  returned: with O(acs_by_port)
  type: dict
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
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import acs_bits, pci_tuning
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.writes import READ_REQUEST_BYTES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import PURPOSES


def main() -> None:
    """Run as an Ansible module."""
    setting = {
        "devices": {"type": "list", "elements": "str", "required": True},
        "max_read_request_bytes": {"type": "int", "choices": list(READ_REQUEST_BYTES)},
        "relaxed_ordering": {"type": "bool"},
        "acs": {"type": "list", "elements": "str", "choices": list(acs_bits.BITS)},
        "allow_less_isolation": {"type": "bool", "default": False},
    }
    by_port = {
        "devices": {"type": "list", "elements": "str", "required": True},
        "purpose": {"type": "str", "choices": list(PURPOSES), "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "list", "elements": "dict", "required": True, "options": setting},
            "acs_by_port": {"type": "dict", "options": by_port},
        },
        supports_check_mode=True,
    )
    system = System()
    finish_on_gpu_host(
        module, system, lambda: pci_tuning.ensure(system, read_topology(system), module.params, module.check_mode)
    )


if __name__ == "__main__":
    main()
