#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The proof of a GPU virtual machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_vm_proof
short_description: Compare a GPU virtual machine with its plan, claim by claim
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.proof]
description:
  - Compares the values that were read back (the hypervisor's config space, the running QEMU process, the guest's own
    C(/sys)) with the plan, with one claim for each optimisation that arXiv 2407.05467 names for GPU virtual machines.
  - Writes the proof as JSON and as one HTML page, with the PCIe and NUMA trees of host and guest side by side.
  - A claim without an observation does not hold. A claim that this machine cannot meet is listed as not applicable,
    with the reason, and never counted as passed.
  - Runs on the controller with the results of other modules; it contacts no host.
options:
  name:
    description: Name of the virtual machine, and of the two files.
    type: str
    required: true
  host_name:
    description: Name of the hypervisor.
    type: str
    required: true
  host_topology:
    description: The RV(sailloft.fleet.host_topology_info#module:topology) of the hypervisor, read while the guest runs.
    type: dict
    required: true
  backend:
    description:
      - The hypervisor. V(vsphere) takes O(domain) of M(sailloft.fleet.vsphere_gpu_vm_info), and O(host_topology) of its
        RV(sailloft.fleet.vsphere_gpu_vm_info#module:hosts). O(host_settings), O(nic_firmware) and O(nccl_topology) are
        not used. Claims about settings that vSphere cannot show or set are not applicable, with the reason and the
        cost.
    type: str
    choices: [libvirt, vsphere]
    default: libvirt
  domain:
    description:
      - The virtual machine's item in RV(sailloft.fleet.gpu_domain_info#module:domains), read with
        O(sailloft.fleet.gpu_domain_info#module:domains) so that it contains the plan; or in
        RV(sailloft.fleet.vsphere_gpu_vm_info#module:domains).
    type: dict
    required: true
  host_settings:
    description: The result of M(sailloft.fleet.gpu_host_boot) in check mode on the hypervisor.
    type: dict
  host_cpus:
    description: The RV(sailloft.fleet.gpu_domain_info#module:host_cpus) of the hypervisor.
    type: dict
  nic_firmware:
    description: The result of M(sailloft.fleet.nic_firmware) in check mode on the hypervisor.
    type: dict
  guest_topology:
    description: The RV(sailloft.fleet.host_topology_info#module:topology) of the guest, read in the guest.
    type: dict
  guest_settings:
    description: The result of M(sailloft.fleet.gpu_host_boot) in check mode in the guest.
    type: dict
  guest_files:
    description: >-
      By path, the contents of C(node_guid) and C(ports/1/gids/0) of the guest's devices in C(/sys/class/infiniband),
      for VFs to which the hypervisor gave GUIDs. Other files are not looked at.
    type: dict
    default: {}
  nccl_conf:
    description: Content of the guest's C(/etc/nccl.conf).
    type: str
  nccl:
    description: Settings that C(/etc/nccl.conf) must have; an empty mapping claims nothing.
    type: dict
    default: {}
  nccl_topology:
    description: Content that the guest's NCCL topology file must have, from the guest's plan; empty claims nothing.
    type: str
    default: ""
  nccl_topology_asked:
    description: With O(backend=vsphere), whether the guest must have NCCL's topology file, which is computed here.
    type: bool
    default: false
  nccl_topology_file:
    description: Content of the guest's C(/etc/nccl-topology.xml).
    type: str
notes:
  - If an option is left out, the claims that need it fail; no claim is omitted.
"""

EXAMPLES = r"""
- name: Prove vm1
  sailloft.fleet.gpu_vm_proof:
    path: proofs
    name: vm1
    host_name: hv01
    host_topology: "{{ hostvars.hv01.seen.topology }}"
    domain: "{{ hostvars.hv01.domains.domains | selectattr('name', 'eq', 'vm1') | first }}"
    guest_topology: "{{ seen.topology }}"
  delegate_to: localhost
"""

RETURN = r"""
holds:
  description: True if there are claims and every applicable claim holds.
  returned: always
  type: bool
counts:
  description: Number of claims that hold, fail, and do not apply.
  returned: always
  type: dict
  sample: {"held": 61, "failed": 0, "not_applicable": 19}
table:
  description: The proof as a short table, in lines, with the counts by layer and the first claims that fail.
  returned: always
  type: list
  elements: str
files:
  description: The files of the proof.
  returned: always
  type: list
  elements: str
  sample: [proofs/vm1.json, proofs/vm1.html, proofs/vm1.txt]
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.claims import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    BootCheck,
    Evidence,
    Running,
    differences_of_domain,
    fabric_manager_of,
    firmware_of_result,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.report import report
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere import claims as vsphere_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere import evidence as vsphere_evidence


def evidence(params: Mapping[str, Any]) -> Evidence:
    """Return the module's arguments as evidence. Raises ProofError and TopologyError."""
    domain = params["domain"]
    if not domain.get("plan") and domain.get("drift"):
        raise ProofError(f"it has no plan to compare it with: {domain['drift'][0]['what']}")
    return Evidence(
        host_name=params["host_name"],
        planned=DomainPlan.from_dict(domain.get("plan"), read_saved(params["host_topology"])),
        running=Running.of_process(domain.get("process")),
        domain_differences=differences_of_domain(domain),
        host_settings=BootCheck.of_result(params["host_settings"]),
        host_cpus=params["host_cpus"],
        nic_firmware=firmware_of_result(params["nic_firmware"]),
        nccl_topology=params["nccl_topology"],
        fabric_manager=fabric_manager_of(domain),
        guest_files=params["guest_files"],
        **in_guest(params),
    )


def in_guest(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the evidence that was read in the guest, and the settings for the guest."""
    return {
        "guest": read_saved(params["guest_topology"]) if params["guest_topology"] else None,
        "guest_settings": BootCheck.of_result(params["guest_settings"]),
        "nccl_settings": params["nccl_conf"],
        "nccl": {name: str(value) for name, value in params["nccl"].items()},
        "nccl_topology_file": params["nccl_topology_file"],
    }


def of_libvirt(params: Mapping[str, Any]) -> tuple[Proof, str]:
    """Return the proof of a libvirt domain, and its page."""
    read = evidence(params)
    devices = read.planned.guest_addresses()
    return report(params["name"], read.host_name, prove(read), read.host, read.guest, devices)


def of_vsphere(params: Mapping[str, Any]) -> tuple[Proof, str]:
    """Return the proof of a virtual machine on vSphere, and its page."""
    arguments = {"nccl_topology_asked": params["nccl_topology_asked"], **in_guest(params)}
    read = vsphere_evidence.VsphereEvidence.of_domain(
        params["host_name"], params["host_topology"], params["domain"], **arguments
    )
    return report(params["name"], read.host_name, vsphere_claims.prove(read), read.host, read.guest, read.places())


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "host_name": {"type": "str", "required": True},
            "host_topology": {"type": "dict", "required": True},
            "backend": {"type": "str", "choices": ["libvirt", "vsphere"], "default": "libvirt"},
            "domain": {"type": "dict", "required": True},
            "host_settings": {"type": "dict"},
            "host_cpus": {"type": "dict"},
            "nic_firmware": {"type": "dict"},
            "guest_topology": {"type": "dict"},
            "guest_settings": {"type": "dict"},
            "guest_files": {"type": "dict", "default": {}},
            "nccl_conf": {"type": "str"},
            "nccl": {"type": "dict", "default": {}},
            "nccl_topology": {"type": "str", "default": ""},
            "nccl_topology_asked": {"type": "bool", "default": False},
            "nccl_topology_file": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params

    def work() -> dict[str, Any]:
        result = of_vsphere(params) if params["backend"] == "vsphere" else of_libvirt(params)
        return written(*result, params["path"], module.check_mode)

    finish(module, work, params["name"])


if __name__ == "__main__":
    main()
