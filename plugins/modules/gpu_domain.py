#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_domain
short_description: Define GPU virtual machines with the topology of the host
version_added: 0.1.0
description:
  - Plans all GPU virtual machines of one host together and brings them into their state through libvirt.
  - The guest gets the NUMA nodes, CPUs, huge pages and PCI tree of the host, level by level, for the part that belongs
    to its devices.
  - Requests that are known to fail are refused before anything is changed.
  - The definition in libvirt is compared by meaning. Elements that libvirt adds itself are not a change.
extends_documentation_fragment:
  - sailloft.fleet.gpu_domain
  - sailloft.fleet.gpu_domain.domains
  - sailloft.fleet.gpu_domain.module_ids
options:
  state:
    description:
      - V(present) defines them. V(running) also starts them. V(stopped) defines them and shuts them down.
      - V(absent) shuts them down and undefines them; their disks stay unless O(remove_disks).
    type: str
    choices: [present, running, stopped, absent]
    default: running
  allow_restart:
    description:
      - Restart a running virtual machine that differs from its request.
      - Without it, RV(restart_required) is true, and the change takes effect at the next start of the virtual machine.
    type: bool
    default: false
  keep_host_off_pinned_cpus:
    description:
      - Keep the host's processes and interrupts off the CPUs that are pinned to virtual CPUs, of these and of all other
        domains, by drop-ins of systemd (AllowedCPUs) and of irqbalance. V(false) removes them, and so does the end of
        the last such virtual machine.
      - Without systemd or cgroup version 2, and with O(topology) or the O(uri) of another host, nothing is changed.
    type: bool
    default: true
  remove_disks:
    description:
      - With O(state=absent), also remove the disks that were made from a base.
      - A disk stays, with a warning, if it is not an overlay of its base, is itself a base, or is used by another
        domain.
    type: bool
    default: false
  shutdown_timeout_s:
    description: Seconds for a guest to shut down before it is ended.
    type: int
    default: 120
attributes:
  check_mode:
    description: Can run in check mode and predict what would change.
    support: full
  diff_mode:
    description: Shows the XML of a new virtual machine, and the differences of an existing one.
    support: full
seealso:
  - module: sailloft.fleet.gpu_domain_info
  - module: sailloft.fleet.gpu_plan
  - module: sailloft.fleet.host_topology_info
"""

EXAMPLES = r"""
- name: Define a virtual machine with two GPUs and the nearest virtual function to each
  sailloft.fleet.gpu_domain:
    domains:
      - name: train-01
        gpus: {count: 2}
        nics: {per_gpu: 1}
        memory_mib: 524288
        disks:
          - path: /var/lib/libvirt/images/train-01.qcow2
        interfaces:
          - source: default
"""

RETURN = r"""
restart_required:
  description: True if a virtual machine still runs that differs from its request.
  returned: always
  type: bool
findings:
  description:
    - Findings of the checks before any change. If one of them refuses the request, the module fails with all of them,
      in check mode as well. A finding that only warns is also a warning of the task.
  returned: always
  type: list
  elements: dict
  contains:
    domain:
      description: Name of the virtual machine.
      type: str
    what:
      description: The problem.
      type: str
    why:
      description: The cause or the consequence.
      type: str
    remedy:
      description: The next step.
      type: str
    severity:
      description: V(refuse) or V(warn).
      type: str
  sample:
    - domain: train-01
      what: no hugetlbfs is mounted for pages of 1024 MiB
      why: QEMU takes its memory from there
      remedy: mount one (mount -t hugetlbfs -o pagesize=1024M none /dev/hugepages-1024M) and restart libvirt
      severity: refuse
host_cpus:
  description:
    - The CPUs that are pinned (C(pinned)), the CPUs that are left for the host (C(allowed)), the CPUs that each unit of
      systemd may use (C(units)), and the list of irqbalance; or C(not_applicable), the reason.
  returned: always
  type: dict
domains:
  description: Each virtual machine, in the order in which they were given.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      returned: always
      type: str
    state_before:
      description: Its state before, by libvirt's name, or V(absent).
      returned: always
      type: str
    state:
      description: Its state after.
      returned: always
      type: str
    changed:
      description: True if anything was done to it.
      returned: always
      type: bool
    actions:
      description:
        - The actions, out of stop, undefine, remove_disks, make_disks, define, autostart, no_autostart, start and
          resume.
      returned: always
      type: list
      elements: str
    boot_stall_s:
      description:
        - About how many seconds the boot of the guest takes longer because this host maps large BARs slowly.
        - 0 with a kernel and QEMU that map them fast.
      returned: always
      type: int
    differences:
      description:
        - Differences between libvirt's definition before the change and the plan, each with path, wanted, have,
          unknown.
        - An unknown one is reported and not changed. It was not requested, and is not known to be added by libvirt.
      returned: always
      type: list
      elements: dict
    live_differences:
      description: The same for the running domain.
      returned: always
      type: list
      elements: dict
    restart_required:
      description: True if it still runs with RV(domains[].live_differences).
      returned: always
      type: bool
    xml:
      description: The planned libvirt XML.
      returned: unless state is absent
      type: str
    nccl_topology:
      description:
        - The topology file that NCCL in the guest needs, with the guest's PCI tree and the host's link speeds; the role
          C(gpu_guest) writes it. Null for a virtual machine without a GPU, and if it would exceed NCCL's limits.
      returned: unless state is absent
      type: str
    plan:
      description: The plan. Addresses are DDDD:BB:DD.F; guest addresses are those that the guest will see.
      returned: unless state is absent
      type: dict
      contains:
        cells:
          description: >-
            Guest NUMA cells, each with id, host_node, memory_mib, huge_pages, vcpus, cpus (host CPUs, one for each
            vCPU), distances, strict.
          type: list
          elements: dict
        devices:
          description:
            - Passed-through functions, each with host_address, guest_address, setting (the option that requested it),
              kind, cell, host_node, host_path, guest_path, host_root_complex, physical_function, iommu_group,
              vendor_id, device_id, libvirt_address.
          type: list
          elements: dict
        root_complexes:
          description: Expander buses, each with host, guest, cell, first_bus, buses_needed, buses_capacity.
          type: list
          elements: dict
        virtio:
          description: QEMU's own devices, each with role, key, guest_address.
          type: list
          elements: dict
        vcpus:
          description: Number of virtual CPUs.
          type: int
        share:
          description:
            - Its share of the host. The hardware threads of the host (threads) are divided into its pinned vCPUs
              (vcpus), the threads reserved for the host on its nodes (kept), those of other virtual machines there
              (taken), the unused ones there (free) and those of nodes without a cell (elsewhere).
            - The highest possible number of vCPUs (vcpu_limit), nodes without a cell that could have one
              (nodes_without_cell), and the memory of the host (memory_mib).
          type: dict
        sockets:
          description: Sockets of the guest, all with the same number of cores.
          type: int
        threads_per_core:
          description: Hardware threads that a core of the guest has.
          type: int
        memory_mib:
          description: Memory.
          type: int
        huge_page_mib:
          description: Size of its huge pages; 0 for ordinary memory.
          type: int
        memory_locked:
          description: True if QEMU's memory is locked.
          type: bool
        emulator_cpus:
          description: Host CPUs of QEMU's emulator threads.
          type: list
          elements: int
        iothreads:
          description: I/O threads, each with id and cpus.
          type: list
          elements: dict
        physical_address_bits:
          description: How the guest gets its address width (mode), and the width (bits).
          type: dict
        mmio:
          description: Bytes that the devices need below and above 4 GiB (low_bytes, high_bytes) and the guest's
            window (window_bytes).
          type: dict
        ats:
          description: True if it is requested (wanted), and if the virtio devices have it (on_virtio).
          type: dict
        gpudirect_cliques:
          description: >-
            GPUs that may reach each other by PCIe in the guest, one list per clique. The number of a clique is its
            place in the list.
          type: list
          elements: list
        guest_iommu:
          description: True if the guest has an IOMMU.
          type: bool
        machine:
          description: Its version of q35, or V(q35) if libvirt was not asked.
          type: str
        accelerator:
          description: kvm or qemu.
          type: str
        firmware:
          description: efi or bios.
          type: str
        name:
          description: Its name.
          type: str
        uuid:
          description: Its uuid.
          type: str
        console_log:
          description: The file of its serial console.
          type: str
        request:
          description: The element of O(domains) with all defaults.
          type: dict
        pci_tree:
          description:
            - The guest's PCI tree from its root bus, each port with model, host (what it mirrors), cell, slot,
              function, index (libvirt's), bus, last_bus, ports and endpoints.
          type: dict
        fidelity:
          description: Pairs of its GPUs, NICs and NVMe drives that have the same distance in the guest as on the host.
          type: dict
          contains:
            total:
              description: Number of pairs.
              type: int
            equal:
              description: The number with the same path class (PIX, PXB, PHB, NODE, SYS) on both sides.
              type: int
            share:
              description: Their share, 0 to 1; 1 if there is no pair.
              type: float
            differences:
              description: The others, each with pair (two host addresses with their kind), host and guest (classes).
                RV(domains[].plan.notes) says why.
              type: list
              elements: dict
        notes:
          description: Differences from the host and settings without effect, with the reason.
          type: list
          elements: str
"""

import platform
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common import respawn
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import pinned_cpus
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.converge import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.client import URI, run_with_binding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import RefusedError, warnings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import gpu_domain_options, module_of


def main() -> None:
    """Run as an Ansible module."""
    module = module_of(
        AnsibleModule,
        ArgumentSpecValidator,
        argument_spec=gpu_domain_options(URI),
        supports_check_mode=True,
    )
    run_with_binding(respawn)

    def work() -> dict[str, Any]:
        try:
            result = converge(module.params, module.check_mode)
        except RefusedError as error:
            _warn(module, error.result()["findings"])
            raise
        _warn(module, result["findings"])
        limits = pinned_cpus.of_options(System(), module.params, result.pop("pinned_cpus"), module.check_mode)
        result["host_cpus"] = limits.facts
        if limits.changed:
            texts = {"before": f"{limits.before}\n", "after": f"{limits.after}\n"}
            result["diff"].append({"before_header": "host", "after_header": "host", **texts})
            result["changed"] = True
        return result

    finish(module, work)


def _warn(module: AnsibleModule, findings: list[dict[str, Any]]) -> None:
    # Ansible shows a module's warnings without the name of the host.
    for text in warnings(findings, platform.node()):
        module.warn(text)


if __name__ == "__main__":
    main()
