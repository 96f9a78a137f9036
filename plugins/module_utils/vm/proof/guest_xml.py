# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of layer guest XML: what QEMU was started with, and the machine that the guest sees. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.qemu_command_line import Options, qemu_options
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import Passed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import claim_values
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    Evidence,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row, of_each, once
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import CLIQUE

LAYER = "guest_xml"


def domain(evidence: Evidence) -> Claim:
    """Claim that libvirt's definition and the running domain match the plan."""
    return compare(
        LAYER,
        "libvirt has the domain as planned, both defined and running",
        claim_values.SAME,
        claim_values.differences(evidence.domain_differences),
        f"{evidence.host_name} virsh dumpxml, with --inactive and without",
    )


def cpus(evidence: Evidence, cell: Cell) -> Claim:
    """Claim the CPUs of a guest NUMA node."""
    nodes = evidence.guest.numa_nodes if evidence.guest else []
    return compare(
        LAYER,
        f"guest NUMA node {cell.id} has its CPUs",
        cell.vcpus,
        next((node.cpus for node in nodes if node.id == cell.id), None),
        f"guest /sys/devices/system/node/node{cell.id}/cpulist",
    )


def binding(evidence: Evidence, cell: Cell) -> Claim:
    """Claim that QEMU's arguments bind a cell's memory as planned."""
    claim = f"memory of guest cell {cell.id} is bound to host node {cell.host_node}"
    source = f"{evidence.host_name} /proc/PID/cmdline of QEMU, -object ram-node{cell.id}"
    wanted = {"size": claim_values.size_text(cell.memory_mib * MIB), "host node": str(cell.host_node), "policy": "bind"}
    if not evidence.planned.spec.strict_memory:
        return not_applicable(LAYER, claim, wanted, source, "the plan binds no memory (strict_memory: false)")
    seen = None
    for option, fields in _options(evidence) or []:
        if option == "object" and fields.get("id") == f"ram-node{cell.id}":
            size = fields.get("size", "")
            seen = {
                "size": claim_values.size_text(int(size)) if size.isdecimal() else size,
                "host node": fields.get("host-nodes"),
                "policy": fields.get("policy"),
            }
    return compare(LAYER, claim, wanted, seen, source)


def huge_page_backing(evidence: Evidence, cell: Cell) -> Claim:
    """Claim a cell's huge pages in the kernel: the planned number on its node, and none on nodes without a cell."""
    node = str(cell.host_node)
    claim = f"memory of guest cell {cell.id} lies in huge pages of host node {node}"
    source = f"{evidence.host_name} /proc/PID/numa_maps of QEMU"
    page_mib = evidence.planned.spec.huge_page_mib
    if not page_mib:
        return not_applicable(LAYER, claim, "huge pages", source, "the plan has no huge pages (huge_page_mib: 0)")
    # The map of the process does not distinguish cells of one node: they are counted together.
    cells = evidence.planned.processors.cells
    needed = sum(node_cell.memory_mib // page_mib for node_cell in cells if node_cell.host_node == cell.host_node)
    planned_nodes = {str(node_cell.host_node) for node_cell in cells}

    def shown(pages_here: int, elsewhere: int) -> dict[str, str]:
        size = claim_values.size_text(page_mib * MIB)
        return {f"node {node}": f"{pages_here} x {size}", "nodes without a cell": f"{elsewhere} x {size}"}

    pages = _mapped(evidence, page_mib * MIB)
    seen = None
    if pages is not None:
        elsewhere = sum(number for page_node, number in pages.items() if page_node not in planned_nodes)
        seen = shown(pages.get(node, 0), elsewhere)
    return compare(LAYER, claim, shown(needed, 0), seen, source)


def _mapped(evidence: Evidence, page_bytes: int) -> dict[str, int] | None:
    """Count the pages of a size that the QEMU process has, by host node; return None if that was not read."""
    if evidence.running.memory is None:
        return None
    pages: dict[str, int] = {}
    for row in evidence.running.memory:
        if row["page_bytes"] == page_bytes:
            for node, number in row["pages_by_node"].items():
                if number:
                    pages[str(node)] = pages.get(str(node), 0) + number
    return pages


def memory_locked(evidence: Evidence) -> Claim:
    """Claim that QEMU's arguments lock the guest's memory."""
    claim = "the guest's memory is locked"
    source = f"{evidence.host_name} /proc/PID/cmdline of QEMU, -overcommit mem-lock"
    if not evidence.planned.spec.lock_memory:
        return not_applicable(LAYER, claim, "on", source, "the plan locks no memory (lock_memory: false)")
    seen = None
    options = _options(evidence)
    if options is not None:
        seen = next((fields.get("mem-lock", "off") for option, fields in options if option == "overcommit"), "off")
    return compare(LAYER, claim, "on", seen, source)


def pinning(evidence: Evidence) -> list[Claim]:
    """Claim the host CPUs of each vCPU, and of QEMU's other threads."""
    source = f"{evidence.host_name} /proc/PID/task/TID/status of QEMU, Cpus_allowed_list"
    processors = evidence.planned.processors
    planned = {vcpu: [cpu] for cell in processors.cells for vcpu, cpu in zip(cell.vcpus, cell.cpus)}
    if not planned:
        reason = "the plan pins no CPUs (pin_cpus: false)"
        return [not_applicable(LAYER, "virtual CPUs run on their own host CPUs", "pinned", source, reason)]
    seen = evidence.running.pinning or {}
    claims = [
        compare(LAYER, f"virtual CPU {vcpu} runs on its own host CPUs", host_cpus, seen.get(vcpu), source)
        for vcpu, host_cpus in sorted(planned.items())
    ]
    claim, emulator_cpus = "QEMU's other threads run on the CPUs kept for the host", processors.kept_cpus
    if emulator_cpus:
        claims.append(compare(LAYER, claim, emulator_cpus, evidence.running.emulator_cpus, source))
    else:
        reason = "the plan keeps no CPUs for the host (host_cores_per_socket: 0)"
        claims.append(not_applicable(LAYER, claim, "pinned", source, reason))
    return claims


def physical_address_bits(evidence: Evidence) -> Claim:
    """Claim the guest's physical address bits."""
    claim = "the guest has the host's physical address bits (host-phys-bits)"
    source = "guest and host /proc/cpuinfo, address sizes"
    wanted = machine_type.address_bits(evidence.planned.machine, evidence.host.cpu.physical_address_bits)
    seen = evidence.guest.cpu.physical_address_bits if evidence.guest else None
    if evidence.running.accelerated is False:
        reason = "the domain runs under TCG, which has no physical address bits of the host to pass through"
        return not_applicable(LAYER, claim, wanted, source, reason, seen)
    mode = evidence.planned.address_bits_mode
    if mode == "emulate":
        claim = "the guest has its planned physical address bits"
        return compare(LAYER, claim, evidence.planned.address_bits, seen, "guest /proc/cpuinfo, address sizes")
    if mode == "off":
        reason = "the plan leaves them at QEMU's default (physical_address_bits: off)"
        return not_applicable(LAYER, claim, wanted, source, reason, seen)
    return compare(LAYER, claim, wanted, seen, source)


def in_qemu(evidence: Evidence, device: Passed) -> Claim:
    """Claim that the running QEMU has a device."""
    options = _options(evidence)
    hosts = None
    if options is not None:
        vfio = [fields for option, fields in options if option == "device" and fields.get("driver") == "vfio-pci"]
        hosts = [fields.get("host") for fields in vfio if fields.get("host") == device.address]
    source = f"{evidence.host_name} /proc/PID/cmdline of QEMU, -device vfio-pci"
    return compare(LAYER, f"QEMU has {name(device.function)}", [device.address], hosts, source)


def guest_address(evidence: Evidence, device: Passed) -> Claim:
    """Claim that a device is at its address in the guest."""
    guest_function = _inside(evidence, device)
    return compare(
        LAYER,
        f"{name(device.function)} is at {device.guest_address} in the guest",
        claim_values.model(device.function),
        claim_values.model(guest_function) if guest_function else None,
        f"{_place(device)}/vendor and device",
    )


def guest_path(evidence: Evidence, device: Passed) -> Claim:
    """Claim the bridges above a device in the guest."""
    guest_function = _inside(evidence, device)
    path = (
        [step.address for step in evidence.guest.path(guest_function.address)]
        if evidence.guest and guest_function
        else None
    )
    claim = f"{name(device.function)} has its planned PCI path in the guest"
    return compare(LAYER, claim, device.guest_path, path, _place(device))


def numa_node(evidence: Evidence, device: Passed) -> Claim:
    """Claim the guest NUMA node of a device."""
    guest_function = _inside(evidence, device)
    return compare(
        LAYER,
        f"{name(device.function)} is on guest NUMA node {device.cell}",
        device.cell,
        guest_function.numa_node if guest_function else None,
        f"{_place(device)}/numa_node",
    )


def memory_windows(evidence: Evidence, device: Passed) -> Claim:
    """Claim that a device has all its BARs in the guest."""
    guest_function = _inside(evidence, device)
    return compare(
        LAYER,
        f"{name(device.function)} has all its memory windows in the guest (BAR sizes)",
        _bars(device.function),
        # Every passed-through device has memory: if there is none, it was not read.
        (_bars(guest_function) or None) if guest_function else None,
        f"{_place(device)}/resource",
    )


def cliques(evidence: Evidence) -> Iterator[Claim]:
    """Claim the clique of each GPU in QEMU's arguments; the driver ignores it if KVM is hidden from the guest."""
    source = f"{evidence.host_name} /proc/PID/cmdline of QEMU, -device vfio-pci"
    options = _options(evidence)
    for clique in evidence.planned.cliques.cliques:
        for address in clique.gpus:
            seen = None
            for option, fields in options or []:
                if option == "device" and fields.get("driver") == "vfio-pci" and fields.get("host") == address:
                    seen = fields.get(CLIQUE, "none")
                if option == "cpu" and fields.get("kvm") == "off":
                    seen = "ignored: KVM is hidden from the guest (kvm=off)"
                    break
            claim = f"GPU {address} may reach {excerpt([peer for peer in clique.gpus if peer != address])} by PCIe"
            yield compare(LAYER, f"{claim} ({CLIQUE})", str(clique.number), seen, source)


def speed_settings(evidence: Evidence) -> Iterator[Claim]:
    """Claim the performance settings that the request changes from QEMU's defaults, in QEMU's arguments."""
    spec, options = evidence.planned.spec, _options(evidence)

    def claim(text: str, option: str, wanted: str, seen: str | None) -> Claim:
        source = f"{evidence.host_name} /proc/PID/cmdline of QEMU, -{option}"
        return compare(LAYER, text, wanted, None if options is None else seen, source)

    def fields_of(option: str, **required: str) -> list[dict[str, str]]:
        return [
            fields
            for name_of, fields in options or []
            if name_of == option and all(fields.get(key) == value for key, value in required.items())
        ]

    if spec.memory_threads:
        for cell in evidence.planned.processors.cells:
            memory = next(iter(fields_of("object", id=f"ram-node{cell.id}")), {})
            text = f"memory of guest cell {cell.id} is allocated by several threads"
            yield claim(text, "object", str(spec.memory_threads), memory.get("prealloc-threads", "one"))
    if not spec.hpet:
        off = "-no-hpet" in (evidence.running.qemu_arguments or []) or fields_of("machine", hpet="off")
        yield claim("the guest has no HPET", "machine", "off", "off" if off else "on")
    if spec.kvm_dedicated and evidence.planned.accelerator == "kvm":
        hint = fields_of("cpu", **{"kvm-hint-dedicated": "on"})
        yield claim(
            "the guest knows that its CPUs are its own (kvm-hint-dedicated)", "cpu", "on", "on" if hint else "off"
        )
    if spec.rng:
        devices = fields_of("device", driver="virtio-rng-pci")
        yield claim(
            "the guest has the host's random numbers (virtio-rng)", "device", "there", "there" if devices else "none"
        )
    for number, interface in enumerate(spec.interfaces):
        if interface.queues > 1:
            card = next(iter(fields_of("device", mac=spec.mac(number))), {})
            # Two vectors for each queue pair, one for configuration and one for control (libvirt qemu_command.c).
            seen = str((int(card["vectors"]) - 2) // 2) if card.get("mq") == "on" and "vectors" in card else "1"
            text = f"virtio interface {number} has its queues"
            yield claim(text, "device", str(interface.queues), seen)
    if not spec.rom_bar:
        for device in evidence.planned.passed():
            passed = next(iter(fields_of("device", driver="vfio-pci", host=device.address)), {})
            yield claim(
                f"{name(device.function)} has no option ROM in the guest", "device", "0", passed.get("rombar", "1")
            )


def guest_iommu(evidence: Evidence) -> Claim:
    """Claim that the guest's IOMMU keeps translations for devices."""
    claim = "the guest's IOMMU serves ATS (device IOTLB)"
    source = f"{evidence.host_name} /proc/PID/cmdline of QEMU, -device intel-iommu"
    if not evidence.planned.spec.guest_iommu:
        reason = (
            "the plan has no guest IOMMU; ATS of a passed-through function is between it and the host's IOMMU, and "
            "libvirt's ats= on a PCIe port adds nothing to QEMU's arguments"
        )
        return not_applicable(LAYER, claim, "on", source, reason)
    seen = None
    options = _options(evidence)
    if options is not None:
        seen = next(
            (
                fields.get("device-iotlb", "off")
                for option, fields in options
                if option == "device" and fields.get("driver") == "intel-iommu"
            ),
            None,
        )
    return compare(LAYER, claim, "on", seen, source)


def _bars(function: Function) -> dict[str, str]:
    return {
        f"BAR {region.index}": claim_values.size_text(region.size_bytes)
        for region in function.bars
        if region.kind == "memory" and region.index < 6
    }


def _options(evidence: Evidence) -> Options:
    return qemu_options(evidence.running.qemu_arguments)


def _inside(evidence: Evidence, device: Passed) -> Function | None:
    """Return the function at a device's address in the guest, or None if it is missing or was not read."""
    return evidence.guest.by_address().get(device.guest_address) if evidence.guest else None


def _place(device: Passed) -> str:
    return f"guest /sys/bus/pci/devices/{device.guest_address}"


CLAIMS: tuple[Row[Evidence], ...] = (
    once(domain),
    cliques,
    of_each(Evidence.cells, binding, huge_page_backing, cpus),
    once(memory_locked),
    pinning,
    once(physical_address_bits),
    of_each(Evidence.devices, in_qemu, guest_address, guest_path, numa_node, memory_windows),
    speed_settings,
    once(guest_iommu),
)
