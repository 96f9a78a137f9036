# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The BIOS settings that GPU virtual machines need, as claims about what Linux found. Pure.

The module bios_info makes these claims about all GPUs and NICs of a host; the proof of a virtual machine makes them
about its own devices. The reason of a claim that does not hold says what to turn on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.pci.registers import (
    PCI_CFG_SPACE_EXP_SIZE,
    PCI_CFG_SPACE_SIZE,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

LAYER = "bios"
# The ACPI table by which firmware describes its IOMMU: DMAR (Intel VT-d specification, 8.1), IVRS (AMD I/O
# Virtualization Technology specification, 5.1).
IOMMU_TABLES = ("DMAR", "IVRS")
IOMMU_KINDS = ("intel", "amd")
# (vendor, device): switch ports without the ACS capability, by design.
PORTS_WITHOUT_ACS = {
    (0x104C, 0x8233): "the TI XIO3130 switch, which QEMU emulates, has no ACS capability on its downstream ports",
}
PORTS_WITH_ACS = ("root_port", "switch_downstream")


@dataclass
class Subject:
    """The host that claims are about, and ``host_name``, its name in their sources.

    ``functions``: the devices, virtual functions included; bios_info gives all GPUs and NICs of the host, the proof the
    devices of a virtual machine. ``owners``: the physical functions that must be able to have virtual functions;
    ``why_no_owner`` says why there is none. ``tables``: those of IOMMU_TABLES that exist; None if they were not read.
    """

    host: Host
    host_name: str
    functions: list[Function]
    owners: list[Function]
    why_no_owner: str
    tables: list[str] | None = None


def claims(subject: Subject) -> dict[str, list[Claim]]:
    """Return the claims of each row of ``CLAIMS``, by its name."""
    return {name: make(subject) for name, make in CLAIMS.items()}


def extensions(subject: Subject) -> list[Claim]:
    """Claim that the processor can run virtual machines."""
    seen = subject.host.cpu.virtualization
    remedy = (
        "the processor shows neither vmx nor svm: turn on VT-x (Intel) or SVM (AMD) in the BIOS, and in a virtual "
        "machine turn on nested virtualization in its hypervisor"
    )
    return [
        _claim(
            "the processor's virtualization extensions are on",
            "vmx or svm",
            seen,
            seen in ("vmx", "svm"),
            f"{subject.host_name} /proc/cpuinfo flags",
            remedy,
        )
    ]


def iommu(subject: Subject) -> list[Claim]:
    """Claim that the firmware describes an IOMMU.

    If the kernel runs an IOMMU, the firmware has described it, even if the tables are not visible.
    """
    kind = subject.host.iommu.kind
    seen = kind if kind in IOMMU_KINDS else ", ".join(subject.tables or []) or None
    return [
        _claim(
            "the firmware describes an IOMMU (DMAR or IVRS table)",
            "intel or amd",
            seen,
            seen is not None,
            f"{subject.host_name} /sys/class/iommu and /sys/firmware/acpi/tables",
            "turn on VT-d (Intel) or the IOMMU (AMD) in the BIOS",
        )
    ]


def interrupt_remapping(subject: Subject) -> list[Claim]:
    """Claim that the IOMMU remaps interrupts, which safe passthrough needs.

    This is visible only once the kernel runs the IOMMU.
    """
    seen = subject.host.iommu.interrupt_remapping
    remedy = "turn on interrupt remapping (x2APIC) in the BIOS"
    if subject.host.iommu.kind is None:
        remedy = "the kernel does not use the IOMMU yet: boot with the IOMMU on, and read the host again"
    source = f"{subject.host_name} /sys/kernel/irq/*/chip_name"
    return [_claim("the IOMMU remaps interrupts", True, seen, seen is True, source, remedy)]


def acs(subject: Subject) -> list[Claim]:
    """Claim that each port above the devices has ACS: without it devices share IOMMU groups."""
    ports = ports_above(subject.host, subject.functions)
    if not ports:
        reason = "no GPU or NIC is behind a port"
        source = f"{subject.host_name} config space"
        return [not_applicable(LAYER, "ports have the ACS capability", "present", source, reason)]
    return [_port_acs(port, subject.host_name) for port in ports]


def sriov(subject: Subject) -> list[Claim]:
    """Claim that each owner can have virtual functions."""
    if not subject.owners:
        claim, source = "the NICs have the SR-IOV capability", f"{subject.host_name} config space"
        return [not_applicable(LAYER, claim, "present", source, subject.why_no_owner)]
    return [
        _claim(
            f"NIC {function.address} has the SR-IOV capability",
            "present",
            "present" if function.sriov and function.sriov.total else "absent",
            bool(function.sriov and function.sriov.total),
            f"{subject.host_name} sriov_totalvfs of {function.address}",
            "turn on SR-IOV in the BIOS, and SRIOV_EN and NUM_OF_VFS in the NIC's firmware",
        )
        for function in subject.owners
    ]


# The registry of claims by the names that the role uses (gpu_host_bios_required), in the order of reports.
CLAIMS: dict[str, Callable[[Subject], list[Claim]]] = {
    "extensions": extensions,
    "iommu": iommu,
    "interrupt_remapping": interrupt_remapping,
    "acs": acs,
    "sriov": sriov,
}


def ports_above(host: Host, functions: list[Function]) -> list[Function]:
    """Return the root ports and switch downstream ports on the paths to ``functions``, by address.

    A bridge whose config space could not be read is included, because it may be such a port.
    """
    ports = {
        step.address: step
        for function in functions
        for step in host.path(function.address)[:-1]
        if step.port_type in PORTS_WITH_ACS
        or (step.kind == "bridge" and step.port_type is None and step.config_bytes < PCI_CFG_SPACE_SIZE)
    }
    return [ports[address] for address in sorted(ports)]


def port_name(port: Function) -> str:
    """Return "root port 0000:10:01.0"."""
    return f"{'root' if port.port_type == 'root_port' else 'switch'} port {port.address}"


def _port_acs(port: Function, host_name: str) -> Claim:
    name = f"{port_name(port)} has the ACS capability"
    source = f"{host_name} config space of {port.address}"
    by_design = PORTS_WITHOUT_ACS.get((port.vendor_id, port.device_id))
    if port.acs is None and by_design:
        return not_applicable(LAYER, name, "present", source, by_design)
    if port.acs is None and port.config_bytes < PCI_CFG_SPACE_EXP_SIZE:
        remedy = f"only {port.config_bytes} bytes of its config space were read: read the host as root"
        return _claim(name, "present", None, False, source, remedy)
    seen = "present" if port.acs else "absent"
    return _claim(name, "present", seen, bool(port.acs), source, "turn on ACS in the BIOS")


def _claim(claim: str, wanted: object, seen: object, holds: bool, source: str, remedy: str) -> Claim:
    """Return a claim that says what to turn on if it does not hold; it never holds if nothing was seen."""
    true = holds and seen is not None
    return Claim(LAYER, claim, wanted, seen, true, source, "" if true else remedy)
