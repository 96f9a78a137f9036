# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims about ACS of the ports, ATS and IOMMU groups, which GPUDirect in a virtual machine needs. Pure.

They are computed from the topology of the host and the devices of the virtual machine (topology/gpudirect/acs_plan.py),
whatever the inventory requests: a list that was written by hand is checked like a computed one.
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.pci.registers import (
    PCI_ACS_BITS,
    PCI_CFG_SPACE_EXP_SIZE,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import bios
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan, AcsPort
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import NUMA, VIRTUAL_MACHINES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Acs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name as _name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import Passed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import claim_values
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence

LAYER = "hypervisor"
# Vendors whose functions have the ATS capability unless their firmware hides it (mlxconfig ATS_ENABLED).
ATS_BY_FIRMWARE = {0x15B3: "the firmware of an NVIDIA ConnectX NIC shows the ATS capability when ATS_ENABLED is 1"}
ELSEWHERE = "no GPU of the virtual machine shares a switch with it, so that translated requests could not go straight"


def plan_of(evidence: Evidence) -> AcsPlan:
    """Return the plan for the devices of the virtual machine."""
    passed = [evidence.host.function(device.address) for device in evidence.planned.chosen.all()]
    return AcsPlan(evidence.host, passed, VIRTUAL_MACHINES)


def ports_and_groups(evidence: Evidence) -> list[Claim]:
    """Claim ACSCtl of each port on the paths of the devices, the NICs' ATS capability, and the IOMMU groups."""
    plan = plan_of(evidence)
    ports = [_port(evidence, port) for port in plan.ports if port.has_acs]
    # The claim about each device's ATS (``ats``) covers that a NIC beside a GPU has the capability.
    return ports + [
        replace(claim, source=f"{evidence.host_name} {claim.source}")
        for claim in plan.claims()
        if "has an ATS capability" not in claim.claim
    ]


def _port(evidence: Evidence, port: AcsPort) -> Claim:
    function = evidence.host.function(port.address)
    acs = function.acs or Acs(0, 0)
    claim = f"{bios.port_name(function)}: {port.why} (ACSCtl, {port.topology}, {port.role.replace('_', ' ')})"
    shown = f"{acs.control & PCI_ACS_BITS:07b}"
    source = f"{evidence.host_name} config space of {port.address}, ACSCtl {acs.control:#04x}"
    requested_ports = evidence.host_settings.acs_ports if evidence.host_settings else None
    if requested_ports is not None and port.address not in requested_ports:
        reason = "the inventory leaves ACS as it is on this port"
        return not_applicable(LAYER, claim, port.mask.text, source, reason, shown)
    lacking = port.mask.lacking(acs.capability)
    if lacking:
        reason = (
            f"this port cannot have ACS bits {lacking:#04x}: requests that the IOMMU has translated go to the root "
            "complex and back; give the virtual machine a GPU and a NIC below a switch that has them"
        )
        return not_applicable(LAYER, claim, port.mask.text, source, reason, shown)
    holds = port.mask.holds(acs.control, acs.capability)
    remedy = "run playbooks/gpu_hosts.yml, which sets it by port (gpu_host_acs: auto)"
    return Claim(LAYER, claim, port.mask.text, shown, holds, source, "" if holds else remedy)


def ats(evidence: Evidence, device: Passed) -> Claim:
    """Claim that ATS is on; not applicable without the capability, or if a NIC has no GPU beside it."""
    function, plan = device.function, plan_of(evidence)
    claim = f"ATS is enabled on {_name(function)}"
    source = f"{evidence.host_name} config space of {function.address}, ATSCtl"
    if function.address in plan.nics and {plan.topology(gpu, function.address) for gpu in plan.gpus} == {NUMA}:
        seen = function.ats.enabled if function.ats else None
        return not_applicable(LAYER, claim, True, source, ELSEWHERE, seen)
    reason = "" if function.ats else ATS_BY_FIRMWARE.get(function.vendor_id, "")
    if function.ats is None and not reason:
        if function.config_bytes == PCI_CFG_SPACE_EXP_SIZE:
            reason = f"{claim_values.model(function)} has no ATS capability"
            return not_applicable(LAYER, claim, True, source, reason)
        reason = f"only {function.config_bytes} bytes of its config space were read: read the host as root"
    return compare(LAYER, claim, True, function.ats.enabled if function.ats else None, source, reason)
