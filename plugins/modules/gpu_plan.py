#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_plan
short_description: Plan GPU virtual machines of a recorded or live host without changes to it
version_added: 0.1.0
description:
  - Plans the virtual machines that M(sailloft.fleet.gpu_domain) would define, from the observed topology of a host. It
    needs no libvirt, no root and no host; it runs on the machine with the recording.
  - Returns each plan with its libvirt XML, and all of them as a readable tree. Writes nothing but the files of O(path).
  - It does not know the host's existing virtual machines. To plan in addition to those, run
    M(sailloft.fleet.gpu_domain) in check mode on the host.
extends_documentation_fragment:
  - sailloft.fleet.gpu_domain.domains
  - sailloft.fleet.gpu_domain.module_ids
options:
  domains:
    description:
      - The virtual machines of this host, planned together.
      - If it is left out or empty, and O(whole_host) too, it is one virtual machine with the whole host,
        C(whole-host). It gets all GPUs, NICs and NVMe drives that the host does not need, the first virtual function
        of a NIC that has some, and memory as O(whole_host).
  topology:
    description: The host as M(sailloft.fleet.host_topology_info) returned it.
    type: dict
  recording:
    description:
      - A recording of the host in any form that O(sailloft.fleet.host_topology_info#module:recording) reads.
      - Without it and without O(topology), the host that the module runs on is read.
    type: path
  host_name:
    description: Name of the host.
    type: str
    default: host
  path:
    description:
      - Directory of the plan, created if it is missing. Without it, nothing is written.
      - The files for each virtual machine are C(NAME.xml), the libvirt XML, C(NAME.svg), the PCIe and NUMA trees of
        host and guest side by side, and C(NAME.nccl.xml), NCCL's topology file for the guest. Each file is written as a
        whole or not at all.
    type: path
  boot_trial:
    description:
      - Boot each plan's PCI tree in an emulating QEMU on the machine that plans, with stand-ins for the devices, and
        compare the devices that the firmware enumerates with the plan.
      - It needs C(qemu-system-x86_64) and the firmware's image, takes seconds to minutes for each virtual machine, and
        fails the task if anything differs from the plan, before any file of O(path) is written.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check mode and predict which files would change.
    support: full
  diff_mode:
    description: Shows how the XML files change.
    support: full
seealso:
  - module: sailloft.fleet.gpu_domain
  - module: sailloft.fleet.host_topology_info
author:
  - The Sailloft maintainers (@sailloft)
"""

EXAMPLES = r"""
- name: Plan one virtual machine with all of a recorded host
  sailloft.fleet.gpu_plan:
    recording: machine.xml
    path: plans/machine
  delegate_to: localhost

- name: Plan the virtual machines of a live host
  sailloft.fleet.gpu_plan:
    topology: "{{ seen.topology }}"
    domains: "{{ gpu_vm_domains }}"
    host_name: "{{ inventory_hostname }}"
  delegate_to: localhost

- name: Plan, and boot each plan under an emulator
  sailloft.fleet.gpu_plan:
    topology: "{{ seen.topology }}"
    domains: "{{ gpu_vm_domains }}"
    boot_trial: true
  delegate_to: localhost
"""

RETURN = r"""
tree:
  description:
    - The plans as lines of text. Each virtual machine is a tree of guest cells, root complexes, switches and devices
      with their addresses in the guest and on the host, followed by its fidelity and notes.
    - The last lines show what remains free, what could not be checked because the recording lacks it, and the result of
      O(boot_trial).
  returned: success
  type: list
  elements: str
findings:
  description:
    - Problems of a virtual machine that are not errors, each as RV(sailloft.fleet.gpu_domain#module:findings) and also
      as a warning of the task. A request for more memory than the host has is refused. Interrupt remapping, the width
      of the IOMMU and virtualization, which M(sailloft.fleet.gpu_domain) refuses, are warnings if the facts have them.
      Its other refusals are not checked.
  returned: success, or when the request was refused
  type: list
  elements: dict
notes:
  description:
    - Parts of the host that were left out or assumed, as
      RV(sailloft.fleet.host_topology_info#module:topology.notes).
  returned: success
  type: list
  elements: str
domains:
  description: Each virtual machine, in the order in which they were given.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    plan:
      description: The plan, as RV(sailloft.fleet.gpu_domain#module:domains[].plan).
      type: dict
    xml:
      description: The libvirt XML.
      type: str
    nccl_topology:
      description:
        - NCCL's topology file for the guest. Null for a virtual machine without a GPU, and if it would exceed NCCL's
          limits.
      type: str
    boot_trial:
      description:
        - The result of the trial, with firmware, as_planned, seconds, findings (each with what, planned, found,
          message) and left_out (what it cannot verify).
      returned: when O(boot_trial) is true
      type: dict
files:
  description: The files of the plan.
  returned: success
  type: list
  elements: str
  sample: [plans/machine/whole-host.svg, plans/machine/whole-host.xml]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.dry_run import planned
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import warnings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import module_of, requests_options


def main() -> None:
    """Run as an Ansible module."""
    module = module_of(
        AnsibleModule,
        ArgumentSpecValidator,
        argument_spec={
            **requests_options(),
            "topology": {"type": "dict"},
            "gpu_module_ids": {"type": "dict", "default": {}},
            "gpu_partitions": {"type": "dict", "default": {}},
            "accelerators": {"type": "dict", "default": {}},
            "recording": {"type": "path"},
            "host_name": {"type": "str", "default": "host"},
            "path": {"type": "path"},
            "boot_trial": {"type": "bool", "default": False},
        },
        mutually_exclusive=[("topology", "recording")],
        supports_check_mode=True,
    )
    host_name = module.params["host_name"]

    def work() -> dict[str, Any]:
        result = planned(module.params, module.check_mode)
        for text in warnings(result["findings"], host_name):
            module.warn(text)
        for note in result["notes"]:
            module.warn(f"{host_name}: {note}")
        return result

    finish(module, work, host_name)


if __name__ == "__main__":
    main()
