#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# One file because Ansible reads the documentation of a module from its own file.

from __future__ import annotations

DOCUMENTATION = r"""
module: host_topology_info
short_description: Read a whole host's PCIe and NUMA topology in one call
version_added: 0.1.0
description:
  - Reads NUMA nodes, the PCI tree, config space registers, the IOMMU and the devices that the host itself uses, from
    C(/sys) and C(/proc), into one structure. It starts no process and changes nothing.
  - It works in a guest as on a host.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  recording:
    description:
      - Read this recording of a machine instead of the machine that the module runs on.
      - A directory that holds C(sys) and C(proc), a tar of one (plain, gzip, bzip2 or xz), hwloc XML (C(lstopo
        machine.xml), formats 1.x to 3.x), XML of NCCL or RCCL (C(NCCL_TOPO_DUMP_FILE)), or JSON that RV(recording) or
        RV(topology) was written to. The form is detected from the content.
    type: path
  record:
    description: Whether to return RV(recording) as well.
    type: bool
    default: false
notes:
  - Without root, the kernel shows 64 bytes of config space. Values beyond these are then null, and
    RV(topology.functions[].config_bytes) is the number of bytes that could be read.
"""

EXAMPLES = r"""
- name: Read the host
  sailloft.fleet.host_topology_info:
  register: seen

- name: Show its GPUs
  ansible.builtin.debug:
    msg: "{{ seen.topology.functions | selectattr('kind', 'eq', 'gpu') | map(attribute='address') }}"

- name: Read a recording on the controller
  sailloft.fleet.host_topology_info:
    recording: machine.xml
  delegate_to: localhost

- name: Read the host as a recording that can be given to others
  sailloft.fleet.host_topology_info:
    record: true
  register: seen

- name: Keep it on the controller
  ansible.builtin.copy:
    content: "{{ seen.recording }}"
    dest: "recordings/{{ inventory_hostname }}.json"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
recording:
  description:
    - RV(topology) as text for a file that O(recording) reads.
    - It does not identify the machine. Interfaces are renumbered if their name contains more than their place or
      number. It contains only the kernel arguments for IOMMU, PCI, memory, CPUs and drivers. The reasons why the host
      uses a function are given without paths, networks and addresses. Serial numbers, MACs and GUIDs of devices are
      never read.
    - It does not contain the amount of free memory, so that the same host gives the same text.
  returned: when O(record) is true
  type: str
topology:
  description:
    - The topology of the host. Lists are sorted, and the same host gives the same content.
    - Null means that a value is not known or does not exist.
  returned: success
  type: dict
  contains:
    format:
      description: The name and version of this structure.
      type: str
      sample: sailloft-topology/1
    source:
      description: Which reader wrote it, V(sysfs), V(hwloc), V(nccl) or V(vsphere).
      type: str
      sample: sysfs
    notes:
      description:
        - Values that were left out or assumed, because a recording contradicts itself or lacks them. Each is also a
          warning of the task.
      type: list
      elements: str
    kernel_release:
      description: Release of the running kernel.
      type: str
      sample: 6.1.0-18-amd64
    nvidia:
      description: NVIDIA's software as it runs; null without driver and NVSwitches, or if it was not read.
      type: dict
      contains:
        driver:
          description: The version of the loaded driver; null if none is loaded.
          type: str
        programs:
          description: The running programs among C(nv-fabricmanager) and C(nvlsm); null on a host without NVSwitches.
          type: list
          elements: str
    kernel_arguments:
      description: The arguments of the running kernel, from C(/proc/cmdline).
      type: list
      elements: str
      sample: [ro, intel_iommu=on, iommu=pt]
    cpu:
      description: The processors.
      type: dict
      contains:
        architecture:
          description: V(x86_64), V(aarch64) or V(ppc64le).
          type: str
        vendor:
          description: The vendor by its CPUID name, V(GenuineIntel) or V(AuthenticAMD).
          type: str
        model:
          description: The model's name.
          type: str
        virtualization:
          description: The CPU flag of its virtual machine extensions, V(vmx) or V(svm); null if the BIOS disables them.
          type: str
        physical_address_bits:
          description: Width of a physical address, in bits.
          type: int
    iommu:
      description: The IOMMU in the running kernel.
      type: dict
      contains:
        kind:
          description: V(intel), V(amd) or V(other); null where there is none.
          type: str
        default_domain:
          description:
            - Type of the IOMMU groups' default domains.
            - V(identity) is the result of C(iommu=pt); V(mixed) if they differ.
          type: str
        interrupt_remapping:
          description: Whether interrupts are remapped.
          type: bool
        address_bits:
          description: The number of address bits that every IOMMU of the host translates at least.
          type: int
        unsafe_interrupts:
          description: Whether VFIO gives out devices without interrupt remapping (C(allow_unsafe_interrupts)).
          type: bool
    numa_nodes:
      description: NUMA nodes in ascending order. A node may have no CPUs or no memory.
      type: list
      elements: dict
      contains:
        id:
          description: Number of the node.
          type: int
        cpus:
          description: Its online CPUs.
          type: list
          elements: int
        siblings:
          description: The same CPUs, hardware threads of one core together.
          type: list
          elements: list
        memory_bytes:
          description: Its memory.
          type: int
        memory_free_bytes:
          description: The free part of its memory.
          type: int
        huge_pages:
          description: Its huge pages, by size in ascending order.
          type: list
          elements: dict
          contains:
            size_bytes:
              description: Size of one page.
              type: int
            total:
              description: The number of pages.
              type: int
            free:
              description: The number of free pages.
              type: int
        distances:
          description: Distance to each node by its number (ACPI SLIT; 10 is local).
          type: dict
          sample: {"0": 10, "1": 21}
        socket:
          description: The processor package that has all its CPUs.
          type: int
    root_complexes:
      description: PCI host bridges, by domain and bus.
      type: list
      elements: dict
      contains:
        name:
          description: The kernel's name.
          type: str
          sample: pci0000:17
        domain:
          description: PCI domain (segment).
          type: int
        bus:
          description: Number of the root bus.
          type: int
        numa_node:
          description: NUMA node of the functions below it; null if they have none or several.
          type: int
    functions:
      description: PCI functions, by address.
      type: list
      elements: dict
      contains:
        address:
          description: Domain, bus, device and function.
          type: str
          sample: "0000:3b:00.0"
        root_complex:
          description: Name of the root complex that it is below.
          type: str
        parent:
          description: Address of the bridge above it; null on a root bus.
          type: str
        class_code:
          description: Class code, 24 bits.
          type: int
        vendor_id:
          description: Vendor.
          type: int
        device_id:
          description: Device.
          type: int
        subsystem_vendor_id:
          description: Subsystem vendor.
          type: int
        subsystem_device_id:
          description: Subsystem device.
          type: int
        kind:
          description: Its kind, such as V(gpu), V(nic) or V(bridge); V(other) for a device of no known kind.
          type: str
        port_type:
          description:
            - PCI Express device or port type, such as V(endpoint), V(root_port), V(switch_upstream),
              V(switch_downstream).
            - Null for conventional PCI, and where config space could not be read so far.
          type: str
        secondary_bus:
          description: The first bus below a bridge.
          type: int
        subordinate_bus:
          description: The last bus below a bridge.
          type: int
        driver:
          description: The driver that it is bound to.
          type: str
        numa_node:
          description: NUMA node; null if the kernel reports -1.
          type: int
        iommu_group:
          description: IOMMU group.
          type: int
        bars:
          description: Its base address registers.
          type: list
          elements: dict
          contains: &bar
            index:
              description: Number of the register; 6 is the expansion ROM.
              type: int
            size_bytes:
              description: Size of the region.
              type: int
            kind:
              description: V(memory) or V(io).
              type: str
            width_bits:
              description: V(32) or V(64).
              type: int
            prefetchable:
              description: Whether it is prefetchable.
              type: bool
        link:
          description: PCI Express link; null where it has none.
          type: dict
          contains:
            speed_gt_s:
              description: Speed now, in gigatransfers per second.
              type: float
            width:
              description: Lanes now.
              type: int
            max_speed_gt_s:
              description: Highest speed, in gigatransfers per second.
              type: float
            max_width:
              description: Most lanes.
              type: int
        sriov:
          description: SR-IOV of a physical function.
          type: dict
          contains:
            total:
              description: The highest number of VFs.
              type: int
            now:
              description: The present number of VFs.
              type: int
            vfs:
              description: Their addresses, by VF index.
              type: list
              elements: str
            vf_bars:
              description:
                - The registers of each VF, as in RV(topology.functions[].bars).
                - Empty if config space could not be read completely.
              type: list
              elements: dict
              contains: *bar
        physical_function:
          description: The address of a VF's physical function.
          type: str
        acs:
          description: Access Control Services, the registers as in the specification; null where it has none.
          type: dict
          contains:
            capability:
              description:
                - Supported bits.
                - 0 source validation, 1 translation blocking, 2 request redirect, 3 completion redirect,
                  4 upstream forwarding, 5 egress control, 6 direct translated P2P.
              type: int
            control:
              description: Bits that are on.
              type: int
        passthrough:
          description: DirectPath I/O of ESXi; null for other hosts.
          type: dict
          contains:
            capable:
              description: Whether ESXi can give the device to a virtual machine.
              type: bool
            enabled:
              description: Whether passthrough is configured.
              type: bool
            active:
              description: Whether it is in effect.
              type: bool
        ats:
          description: Address Translation Services; null where it has none.
          type: dict
          contains:
            enabled:
              description: Whether it is on.
              type: bool
            smallest_translation_unit:
              description: The unit is 4096 bytes shifted left by this number.
              type: int
        atomic_ops:
          description: PCIe AtomicOps, of DevCap2 and DevCtl2; null where config space was not read.
          type: dict
          contains:
            completes_bits:
              description: The sizes in bits that it completes; V(128) is compare and swap only.
              type: list
              elements: int
            routes:
              description: Whether a port routes them.
              type: bool
            requests:
              description: Whether it may request them (AtomicOp Requester Enable).
              type: bool
            blocks_egress:
              description: Whether a port blocks them (AtomicOp Egress Blocking).
              type: bool
        max_read_request_bytes:
          description: MaxReadReq of DevCtl; null for a VF, which follows its physical function.
          type: int
        max_payload_bytes:
          description: MaxPayload of DevCtl; null for a VF.
          type: int
        relaxed_ordering:
          description: Whether DevCtl allows relaxed ordering; null for a VF.
          type: bool
        manages_nvswitches:
          description:
            - Whether VPD says that it manages NVSwitches of an NVLink 5 board; null if VPD was not read. All functions
              of such a device are of the kind V(nvswitch_management).
            - VPD is read on hosts with GPUs of such boards only.
          type: bool
        unassigned_bars:
          description: The indexes of its memory BARs that have no address.
          type: list
          elements: int
        config_bytes:
          description:
            - The number of bytes of config space that could be read, V(64), V(256) or V(4096).
            - V(0) if the device does not answer.
          type: int
        interfaces:
          description: Its kernel objects, names by class. Classes are C(net), C(block) and C(rdma).
          type: dict
          sample: {"net": ["eno1"]}
        used_by_host:
          description: The reasons why the host itself needs it; empty if it does not.
          type: list
          elements: str
          sample: [carries the default route]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import (
    read_recording,
    write_recording,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host


def main() -> None:
    module = AnsibleModule(
        argument_spec={"recording": {"type": "path"}, "record": {"type": "bool", "default": False}},
        supports_check_mode=True,
    )
    path = module.params["recording"]

    def work() -> dict[str, Any]:
        host = read_recording(path) if path else read_host()
        for note in host.notes:
            module.warn(f"{path}: {note}")
        recording = {"recording": write_recording(host)} if module.params["record"] else {}
        return {"topology": host.to_dict(), **recording}

    finish(module, work)


if __name__ == "__main__":
    main()
