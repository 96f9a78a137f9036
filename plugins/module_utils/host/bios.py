# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the BIOS has to turn on for GPU virtual machines, read from what Linux found, as claims."""

from __future__ import annotations

from typing import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.host.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import Host

TABLES = "/sys/firmware/acpi/tables"
# The ACPI table by which firmware describes its IOMMU: DMAR (Intel VT-d specification, 8.1), IVRS (AMD I/O
# Virtualization Technology specification, 5.1), IORT (Arm IO Remapping Table).
IOMMU_TABLES = ("DMAR", "IVRS", "IORT")
LAYER = "bios"


def observe(system: System, host: Host, required: list[str]) -> Outcome:
    """All claims as facts. Raises HostError where one of ``required`` (names of CLAIMS) does not hold."""
    claims = {name: claim(system, host) for name, claim in CLAIMS.items()}
    missing = {name: _next_step(claim) for name, claim in claims.items() if claim.holds is False}
    lacking = [line for name, line in missing.items() if name in required]
    if lacking:
        raise HostError("; ".join(lacking))
    return Outcome(facts={"claims": [claim.to_dict() for claim in claims.values()], "missing": list(missing.values())})


def _next_step(claim: Claim) -> str:
    return f"{claim.claim}: wanted {claim.wanted}, found {claim.seen} in {claim.source}; turn it on in the BIOS"


def _extensions(_system: System, host: Host) -> Claim:
    name, source = "the CPU's virtual machine extensions are on", "/proc/cpuinfo"
    if host.cpu.architecture not in (None, "x86_64"):
        return not_applicable(LAYER, name, "vmx or svm", source, f"an {host.cpu.architecture} CPU has no such switch")
    return Claim(LAYER, name, "vmx or svm", host.cpu.virtualization, host.cpu.virtualization is not None, source)


def _iommu(system: System, host: Host) -> Claim:
    found = [table for table in IOMMU_TABLES if system.exists(f"{TABLES}/{table}")]
    name, wanted = "the IOMMU is on", "one of " + ", ".join(IOMMU_TABLES)
    # A kernel that drives an IOMMU was told of it, whether or not the tables are shown.
    holds = bool(found) or host.iommu.kind is not None
    return Claim(LAYER, name, wanted, found or host.iommu.kind, holds, TABLES)


def _acs(_system: System, host: Host) -> Claim:
    """Of the ports above GPUs and NICs, how many have ACS: without it devices share IOMMU groups."""
    name, source = "ports above GPUs and NICs have ACS", "the ACS capability in config space"
    by_address = host.by_address()
    ports = {
        function.parent
        for function in host.functions
        if function.kind in ("gpu", "nic") and function.port_type and function.parent in by_address
    }
    if not ports:
        return not_applicable(LAYER, name, "an ACS capability", source, "no GPU and no NIC is behind a port")
    without = sorted(port for port in ports if port and by_address[port].acs is None)
    seen = "all have it" if not without else f"{', '.join(without)} without it"
    return Claim(LAYER, name, "an ACS capability", seen, not without, source)


def _sriov(_system: System, host: Host) -> Claim:
    name, source = "a NIC has SR-IOV", "sriov_totalvfs of each physical function"
    nics = [function for function in host.functions if function.kind == "nic" and function.physical_function is None]
    if not nics:
        return not_applicable(LAYER, name, "at least one VF", source, "this host has no NIC on PCI")
    able = {function.address: function.sriov.total for function in nics if function.sriov and function.sriov.total}
    return Claim(LAYER, name, "at least one VF", able or "none", bool(able), source)


CLAIMS: dict[str, Callable[[System, Host], Claim]] = {
    "extensions": _extensions,
    "iommu": _iommu,
    "acs": _acs,
    "sriov": _sriov,
}
