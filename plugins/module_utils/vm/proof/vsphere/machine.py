# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of layer guest XML, which on vSphere is the configuration in vCenter, and the machine that the guest sees.

A setting is read back from vCenter, and from inside the guest where the guest shows it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import claim_values
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row, of_each, once
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import VsphereEvidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.not_expressed import not_expressed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import bars, wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.plan import PlannedCell

LAYER = "guest_xml"
NO_GPU = "the virtual machine has no GPU"
ONE_DEVICE = "the virtual machine has fewer than two devices"
TOO_OLD = "the API, ESXi or the virtual hardware is older than vSphere 8 (vmx-20)"


def _setting(claim: str, key: str, place: str, unset: str) -> Row[VsphereEvidence]:
    """Return the row of the claim that vCenter has the planned value of one setting of wanted.py.

    ``key`` is below ``extra`` for a setting of extraConfig; ``unset`` is the reason if the plan does not set it.
    """

    def value(configuration: dict[str, Any]) -> Any:
        return configuration["extra"].get(key) if key in wanted.OWNED else configuration[key]

    def row(evidence: VsphereEvidence) -> Claim:
        planned = value(evidence.plan.configuration)
        seen = value(evidence.configuration) if evidence.configuration else None
        source = f"vCenter VirtualMachine.config.{place}"
        # One thread per core means no virtual hyperthreads.
        if planned in (None, "", 0, False, "normal") or (key == "threads_per_core" and planned == 1):
            return not_applicable(LAYER, claim, "set", source, unset, seen)
        return compare(LAYER, claim, planned, seen, source)

    return once(row)


SETTINGS = (
    _setting("the firmware is EFI, which maps BARs above 4 GiB", "firmware", "firmware", "not requested"),
    _setting("BARs are mapped above 4 GiB", wanted.USE_64BIT, f"extraConfig {wanted.USE_64BIT}", NO_GPU),
    _setting("the space for BARs above 4 GiB, in GiB", wanted.MMIO_SIZE, f"extraConfig {wanted.MMIO_SIZE}", NO_GPU),
    _setting("devices may reach each other", wanted.ALLOW_P2P, f"extraConfig {wanted.ALLOW_P2P}", ONE_DEVICE),
    _setting("ACS is relaxed between devices", wanted.RELAX_ACS, f"extraConfig {wanted.RELAX_ACS}", ONE_DEVICE),
    _setting(
        "all memory is reserved, in MiB",
        "memory_reservation_mib",
        "memoryAllocation.reservation",
        "the plan reserves none (no devices, and lock_memory: false)",
    ),
    _setting(
        "the reservation follows the memory",
        "memory_locked",
        "memoryReservationLockedToMax",
        "the plan locks no memory (lock_memory: false)",
    ),
    _setting(
        "memory may be in pages of 1 GiB",
        wanted.LARGE_PAGES,
        f"extraConfig {wanted.LARGE_PAGES}",
        "not requested (huge_page_mib)",
    ),
    _setting(
        "memory and CPUs are on the planned host nodes",
        wanted.NODE_AFFINITY,
        f"extraConfig {wanted.NODE_AFFINITY}",
        "the plan binds no memory (strict_memory: false)",
    ),
    _setting(
        "latency sensitivity gives exclusive CPUs",
        "latency_sensitivity",
        "latencySensitivity.level",
        "not requested (vsphere.latency_sensitivity, pin_cpus)",
    ),
    _setting(
        "all CPU time is reserved, in MHz",
        "cpu_reservation_mhz",
        "cpuAllocation.reservation",
        "not requested (vsphere.latency_sensitivity, pin_cpus)",
    ),
    _setting(
        "virtual CPUs are hardware threads of shared cores",
        "threads_per_core",
        "hardware.simultaneousThreads",
        f"the plan has one thread a core, or {TOO_OLD}; cost: the guest's scheduler takes two threads for two cores",
    ),
    _setting(
        "virtual NUMA nodes have their cores",
        "cores_per_numa_node",
        "numaInfo.coresPerNumaNode",
        f"{TOO_OLD}; cost: ESXi chooses the virtual nodes",
    ),
    _setting("the guest has an IOMMU", "iommu", "flags.vvtdEnabled", "the plan has none (guest_iommu)"),
    _setting("the devices are a device group", "device_group", "deviceGroups", "not requested (vsphere.device_group)"),
)
NOT_EXPRESSED = (
    not_expressed(
        LAYER,
        "each virtual CPU runs on its own host CPU",
        "pinned",
        "ESXi chooses the CPUs; latency sensitivity high makes them exclusive",
        "none known",
    ),
    not_expressed(
        LAYER,
        "memory is in the planned nodes and pages",
        "all of it",
        "the API reports the affinity (above), but not where pages are",
        "not known; esxtop shows it on the host (memory view, NUMA statistics)",
    ),
    not_expressed(
        LAYER,
        "the guest has the host's physical address bits",
        "the host's",
        "ESXi sets them",
        "none known: the space for BARs (above) is computed separately",
    ),
)


def as_planned(evidence: VsphereEvidence) -> Claim:
    """Claim that vCenter has the virtual machine as it is planned, and that it runs."""
    return compare(
        LAYER,
        "vCenter has the virtual machine as it is planned, and it runs",
        claim_values.SAME,
        claim_values.differences(evidence.differences),
        "vCenter VirtualMachine.config and runtime.powerState",
    )


def devices(evidence: VsphereEvidence) -> Iterator[Claim]:
    """Claim each passed-through device of the configuration; dynamic ones by their model and number."""
    planned = evidence.plan.configuration["devices"]
    seen = evidence.configuration["devices"] if evidence.configuration else []
    source = "vCenter VirtualMachine.config.hardware.device"
    for kind, of_id in sorted({(row["type"], row["id"]) for row in planned}):
        rows, read_nodes = (
            [row["numa_node"] for row in every if (row["type"], row["id"]) == (kind, of_id)]
            for every in (planned, seen)
        )
        claim = f"the virtual machine has {kind} device {of_id}, with its virtual NUMA node"
        yield compare(LAYER, claim, rows, read_nodes or None, source)


def in_guest(evidence: VsphereEvidence, function: Function) -> Claim:
    """Claim that a device is in the guest, at an address that is known."""
    guest_function = evidence.in_guest(function.address)
    claim = f"{name(function)} is in the guest"
    if guest_function is None:
        source = "guest /sys/bus/pci/devices, vCenter extraConfig pciSlotNumber"
        reason = "the guest was not read"
        if evidence.guest:
            reason = "no device of the guest is at its slot, and more than one, or none, has its vendor and model"
        return Claim(LAYER, claim, claim_values.model(function), None, False, source, reason)
    source = f"guest /sys/bus/pci/devices/{guest_function.address}/vendor and device"
    return compare(LAYER, claim, claim_values.model(function), claim_values.model(guest_function), source)


def numa_node(evidence: VsphereEvidence, function: Function) -> Claim:
    """Claim the guest's NUMA node of a device."""
    guest_function, plan = evidence.in_guest(function.address), evidence.plan
    device = next(item for item in plan.devices if item.host_address == function.address)
    cell = next((cell.id for cell in plan.cells if cell.host_node == device.host_node), None)
    claim = f"{name(function)} is on guest NUMA node {cell}"
    source = f"guest /sys/bus/pci/devices/{guest_function.address if guest_function else '?'}/numa_node"
    seen = guest_function.numa_node if guest_function else None
    if not plan.configuration["cores_per_numa_node"]:
        reason = f"{TOO_OLD}; cost: the guest does not know which of its nodes is near the device"
        return not_applicable(LAYER, claim, cell, source, reason, seen)
    if cell is None:
        reason = "the virtual machine has no memory on the device's host node, or the host does not report that node"
        return not_applicable(LAYER, claim, cell, source, reason, seen)
    return compare(LAYER, claim, cell, seen, source)


def memory_window(evidence: VsphereEvidence, function: Function) -> Claim:
    """Claim that a GPU has its large BAR in the guest; the size is from the table of GPUs."""
    guest_function = evidence.in_guest(function.address)
    claim = f"{name(function)} has its large memory window in the guest"
    source = f"guest /sys/bus/pci/devices/{guest_function.address if guest_function else '?'}/resource"
    gib = bars.LARGE_BAR_GIB.get((function.vendor_id, function.device_id))
    if function.kind != "gpu" or gib is None:
        reason = "the API does not report BARs, and the collection's table has no such device; cost: none by itself"
        return not_applicable(LAYER, claim, "its BARs", source, reason)
    largest = (
        max((window.size_bytes for window in guest_function.bars if window.kind == "memory"), default=None)
        if guest_function
        else None
    )
    seen = claim_values.size_text(largest) if largest else None
    return compare(LAYER, claim, claim_values.size_text(gib * GIB), seen, source)


def cpus(evidence: VsphereEvidence, cell: PlannedCell) -> Claim:
    """Claim the CPUs of a guest NUMA node."""
    nodes = evidence.guest.numa_nodes if evidence.guest else []
    seen = next((node.cpus for node in nodes if node.id == cell.id), None)
    claim = f"guest NUMA node {cell.id} has its CPUs"
    source = f"guest /sys/devices/system/node/node{cell.id}/cpulist"
    if not evidence.plan.configuration["cores_per_numa_node"]:
        return not_applicable(LAYER, claim, cell.vcpus, source, f"{TOO_OLD}; cost: ESXi chooses the nodes", seen)
    return compare(LAYER, claim, cell.vcpus, seen, source)


CLAIMS: tuple[Row[VsphereEvidence], ...] = (
    once(as_planned),
    *SETTINGS,
    devices,
    of_each(VsphereEvidence.cells, cpus),
    of_each(VsphereEvidence.functions, in_guest, numa_node, memory_window),
    *NOT_EXPRESSED,
)
