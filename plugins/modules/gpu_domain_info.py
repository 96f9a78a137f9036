#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_domain_info
short_description: Read GPU virtual machines from libvirt and the kernel
version_added: 0.1.0
description:
  - Reads libvirt's definitions of the virtual machines of a host, the real command lines of their QEMU processes and
    the real location of their memory. For O(domains), it also computes the plan and lists every difference from it.
  - Describes drift in words, with its consequence (RV(domains[].drift)).
extends_documentation_fragment:
  - sailloft.fleet.gpu_domain
  - sailloft.fleet.gpu_domain.domains
  - sailloft.fleet.gpu_domain.module_ids
  - sailloft.fleet.attributes.reads
options:
  names:
    description: Further virtual machines to read. Without this and without O(domains), all that libvirt knows.
    type: list
    elements: str
  keep_host_off_pinned_cpus:
    description: As O(sailloft.fleet.gpu_domain#module:keep_host_off_pinned_cpus), for RV(host_cpus).
    type: bool
    default: true
seealso:
  - module: sailloft.fleet.gpu_domain
"""

EXAMPLES = r"""
- name: Compare the virtual machines with their plan
  sailloft.fleet.gpu_domain_info:
    domains: "{{ gpu_vm_domains }}"
  register: gpu_vms
"""

RETURN = r"""
host_cpus:
  description:
    - As RV(sailloft.fleet.gpu_domain#module:host_cpus), and C(guests), the pinned CPUs on which running virtual
      machines may run without being pinned to one of them, by name.
  returned: always
  type: dict
domains:
  description: Those of O(domains) first, in their order, then those of O(names).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      returned: always
      type: str
    exists:
      description: True if libvirt has it.
      returned: always
      type: bool
    state:
      description: Its state by libvirt's name, or V(absent).
      returned: always
      type: str
    autostart:
      description: True if it starts with the host.
      returned: always
      type: bool
    uuid:
      description: Its uuid.
      returned: always
      type: str
    inactive_xml:
      description: Its definition.
      returned: always
      type: str
    live_xml:
      description: The running domain; null if it does not run.
      returned: always
      type: str
    fabric_manager:
      description:
        - The Fabric Manager of the host, for a virtual machine that shares the NVSwitches of its board; null for any
          other.
      returned: if the virtual machine is requested
      type: dict
      contains:
        version:
          description: Its version; null if it is not known.
          type: str
        partitions:
          description: By id, whether a partition is active and the physical ids of its GPUs; null if not read.
          type: dict
        cause:
          description: The reason why something was not read.
          type: str
    process:
      description: Its QEMU process; null if it does not run.
      returned: always
      type: dict
      contains:
        pid:
          description: Process id.
          type: int
        arguments:
          description: Its real command line, from /proc.
          type: list
          elements: str
        accelerated:
          description: True if it uses KVM.
          type: bool
        memory:
          description: Huge-page mappings from numa_maps, summed; each with page_bytes, policy, pages_by_node (node
            as text to pages).
          type: list
          elements: dict
        locked_bytes:
          description: Locked memory, without huge pages, which are never swapped.
          type: int
        pinning:
          description: Host CPUs that each vCPU's thread may run on, by vCPU as text.
          type: dict
        emulator_cpus:
          description: Host CPUs that the main thread may run on.
          type: list
          elements: int
    addresses:
      description: Interfaces, each with mac, addresses and source (lease or agent).
      returned: always
      type: list
      elements: dict
    plan:
      description: As RV(sailloft.fleet.gpu_domain#module:domains[].plan).
      returned: where it is of O(domains) and can be planned on the host as it is now
      type: dict
    nccl_topology:
      description:
        - The topology file that NCCL in the guest needs, with the guest's PCI tree and the host's link speeds; the role
          C(gpu_guest) writes it. Null for a virtual machine without a GPU, and if it would exceed NCCL's limits.
      returned: where it is of O(domains)
      type: str
    xml:
      description: The planned libvirt XML.
      returned: where it is of O(domains)
      type: str
    differences:
      description: Differences of the definition from the plan; each with path, wanted, have, unknown.
      returned: where it is of O(domains)
      type: list
      elements: dict
    live_differences:
      description: Differences of the running domain from the plan.
      returned: where it is of O(domains)
      type: list
      elements: dict
    drift:
      description:
        - Drift, in words. The definition and the running domain are compared with the host as it is now, with the host
          at the time of the plan (stored in the domain's metadata), and, for O(domains), with the plan.
        - Items about the host come first. Empty if there is no drift.
      returned: always
      type: list
      elements: dict
      contains:
        what:
          description: The difference.
          type: str
        where:
          description: The sides that differ, out of V(defined), V(running) and V(host).
          type: list
          elements: str
        consequence:
          description: The consequence for the guest.
          type: str
        remedy:
          description: The next step.
          type: str
        paths:
          description: >-
            The paths in RV(domains[].differences) and RV(domains[].live_differences) that this item describes.
          type: list
          elements: str
      sample:
        - what: "GPU 0000:4b:00.0 now shares no switch with NIC 0000:4c:00.0: GPUDirect falls from PIX to NODE"
          where: [host]
          consequence: the guest still sees PIX, so NCCL considers them nearer than they are
          remedy: "run playbooks/gpu_vms.yml with gpu_vm_allow_restart: true, or restart it yourself"
          paths: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common import respawn
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import pinned_cpus
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.converge import info
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.client import URI, run_with_binding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import module_of, requests_options


def main() -> None:
    """Run as an Ansible module."""
    module = module_of(
        AnsibleModule,
        ArgumentSpecValidator,
        argument_spec={
            **requests_options(),
            "names": {"type": "list", "elements": "str"},
            "topology": {"type": "dict"},
            "gpu_module_ids": {"type": "dict", "default": {}},
            "gpu_partitions": {"type": "dict", "default": {}},
            "accelerators": {"type": "dict", "default": {}},
            "keep_host_off_pinned_cpus": {"type": "bool", "default": True},
            "uri": {"type": "str", "default": URI},
        },
        supports_check_mode=True,
    )
    run_with_binding(respawn)

    def work() -> dict[str, Any]:
        result = info(module.params)
        guests = result.pop("unpinned_guests")
        limits = pinned_cpus.of_options(System(), module.params, result.pop("pinned_cpus"), check=True)
        return {**result, "host_cpus": {**limits.facts, "guests": guests}}

    finish(module, work)


if __name__ == "__main__":
    main()
