# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The planned PCI tree as QEMU's arguments, with stand-ins for its devices, and the firmware's result. Pure.

Each libvirt controller is one QEMU device (libvirt src/qemu/qemu_command.c, qemuBuildControllerPCIDevProps), so the
tree of the trial is the one that libvirt would start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import mmio, pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan

PAGE_BYTES = 4096
DRIVERS = {
    pci_tree.EXPANDER: "pxb-pcie",
    pci_tree.ROOT_PORT: "pcie-root-port",
    pci_tree.UPSTREAM: "x3130-upstream",
    pci_tree.DOWNSTREAM: "xio3130-downstream",
}
VIRTIO_DRIVERS = {
    "serial": "virtio-serial-pci",
    "disk": "virtio-blk-pci",
    "interface": "virtio-net-pci",
    "rng": "virtio-rng-pci",
}
# Memory of a trial, in equal cells: enough for OVMF. More would only move the 64-bit window up.
MEMORY_MIB = 256
# On an emulated processor, OVMF's start takes twice as long with every bit from about 42 on (measured with OVMF
# 2022.11, no tree: 40 bits 3 s, 43 bits 6 s, 46 bits more than 150 s), so a trial has the fewest that suffice.
FEWEST_ADDRESS_BITS = 40


@dataclass(frozen=True)
class Mismatch:
    """One thing that is not as planned. ``what`` names the device with its address on the host, or the guest's port."""

    what: str
    planned: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}: planned {self.planned}, found {self.found}"

    def to_dict(self) -> dict[str, str]:
        """Return the JSON-ready form, with the sentence as ``message``."""
        return {**asdict(self), "message": str(self)}


@dataclass(frozen=True)
class StandIn:
    """An emulated function in place of a planned one, or of one of its BARs.

    ``function`` is its number in the endpoint's slot. ``bar_bytes`` is the size of its 64-bit prefetchable BAR (0:
    none). ``io``: it has an I/O BAR of 256 bytes. ``host_address`` is the address of the function that it stands for.
    """

    identity: str
    host_address: str
    function: int
    bar_bytes: int
    io: bool


@dataclass
class EnumeratedDevice:
    """QEMU's facts on a function; ``ports_above`` are its bridges as (identity, prefetchable window or None)."""

    place: str
    ports_above: list[tuple[str, tuple[int, int] | None]]
    buses: tuple[int, int] | None = None  # of a bridge: secondary and subordinate
    bars: dict[int, int | None] = field(default_factory=dict)  # bytes of a 64-bit prefetchable BAR: address or None


def arguments(plan: DomainPlan, firmware: str, image: str) -> list[str]:
    """Return QEMU's command line, without its name, that boots ``plan``'s tree with ``firmware`` ("efi" or "bios").

    ``image`` is the path of OVMF's or SeaBIOS's image. The tree, the NUMA cells and their devices, the 64-bit window
    and its value for OVMF are the plan's. These are not the plan's: emulation instead of KVM, ``MEMORY_MIB`` of memory,
    one vCPU, the address bits (``address_bits``) and the stand-ins (``stand_ins``, ``left_out``).
    """
    cells = plan.processors.cells
    # QEMU lays out the memory of an AMD guest around the HyperTransport range.
    vendor = f",vendor={plan.host.cpu.vendor}" if plan.host.cpu.vendor in ("GenuineIntel", "AuthenticAMD") else ""
    argv = ["-machine", "q35", "-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none"]
    argv += ["-cpu", f"max,phys-bits={address_bits(plan)}{vendor}", "-smp", "1"]
    each_mib = MEMORY_MIB // len(cells)
    argv += ["-m", f"{each_mib * len(cells)}M"]
    for number, cell in enumerate(cells):
        argv += ["-object", f"memory-backend-ram,id=ram{number},size={each_mib}M"]
        argv += ["-numa", f"node,nodeid={cell.id},memdev=ram{number}" + ("" if number else ",cpus=0")]
    argv += ["-global", f"q35-pcihost.pci-hole64-size={plan.window.window_bytes}"]
    if firmware == "efi":
        argv += ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={image.replace(',', ',,')}"]
        window_mib = mmio.ovmf_window_mib(plan.window)
        if window_mib:
            argv += ["-fw_cfg", f"name=opt/ovmf/X-PciMmio64Mb,string={window_mib}"]
    else:
        argv += ["-bios", image]
    for parent in plan.root.walk():
        slots = [port.slot for port in parent.ports]
        for port in parent.ports:
            argv += ["-device", _port(plan, parent, port, port.function == 0 and slots.count(port.slot) > 1)]
    for port in plan.root.walk():
        for endpoint in port.endpoints:
            if endpoint.role != "hostdev":
                argv += _virtio(plan, port, endpoint)
        stand_ins_of_port = stand_ins(plan, port)
        for stand_in in stand_ins_of_port:
            argv += _stand_in(plan, port, stand_in, stand_in.function == 0 and len(stand_ins_of_port) > 1)
    return argv


def address_bits(plan: DomainPlan) -> int:
    """Return the fewest bits, but at least ``FEWEST_ADDRESS_BITS``, that hold the planned window above 4 GiB.

    OVMF starts the window on a multiple of its size, so this is one bit more than the window's.
    """
    return max((plan.window.window_bytes + 4 * GIB).bit_length(), FEWEST_ADDRESS_BITS)


def stand_ins(plan: DomainPlan, port: pci_tree.Port) -> list[StandIn]:
    """Return the emulated functions behind ``port``.

    QEMU has no device with several BARs of any size, only devices with one. So the largest 64-bit prefetchable BAR of a
    function is at its place, and the others are at free functions of its slot.
    """
    planned = [endpoint for endpoint in port.endpoints if endpoint.role == "hostdev"]
    places: list[StandIn] = []
    further_bars: list[tuple[int, str]] = []
    for endpoint in planned:
        sizes = _high_bars(plan, endpoint.key)
        has_io = any(region.kind == "io" for region in plan.functions[endpoint.key].bars)
        identity = _identity(endpoint)
        places.append(StandIn(identity, endpoint.key, endpoint.function, sizes[0] if sizes else 0, has_io))
        further_bars += [(size, endpoint.key) for size in sizes[1:]]
    free = range(len(planned), pci_tree.FUNCTIONS)
    for function, (size, key) in zip(free, sorted(further_bars, reverse=True)):
        places.append(StandIn(f"bar{function}-{_name(key)}", key, function, size, False))
    return places


def left_out(plan: DomainPlan) -> list[str]:
    """Return sentences on what the trial does not show."""
    sentences = []
    for port in plan.root.walk():
        stand_ins_of_port = stand_ins(plan, port)
        for endpoint in port.endpoints:
            if endpoint.role != "hostdev":
                continue
            function = plan.functions[endpoint.key]
            device = f"{function.kind} {function.address}"
            low = sum(region.kind == "memory" and not mmio.is_high(region) for region in function.bars)
            shown = sum(item.host_address == endpoint.key and item.bar_bytes > 0 for item in stand_ins_of_port)
            high = len(_high_bars(plan, endpoint.key))
            if not function.bars:
                sentences.append(f"{device}: its BARs are not known")
            if low:
                sentences.append(f"{device}: {low} BARs below 4 GiB, for which QEMU has no stand-in")
            if shown < high:
                sentences.append(f"{device}: {high - shown} BARs, its slot has no functions free to stand in for them")
    return sentences


def compare(plan: DomainPlan, query_pci: list[dict[str, Any]]) -> list[Mismatch]:
    """Compare QEMU's answer to ``query-pci`` with the plan, port by port and device by device.

    Returns a finding for each thing that is not as planned. A missing device is one finding. A present device is
    checked for its place, the way to it, and the address of each 64-bit prefetchable BAR, which must lie in the windows
    of all bridges above and in no other BAR.
    """
    enumerated = dict(enumerated_devices(query_pci))
    findings: list[Mismatch] = []
    spans: list[tuple[int, int, str]] = []
    _compare_below(plan, plan.root, [], enumerated, findings, spans)
    for (_start, end, first), (start, _end, second) in zip(sorted(spans), sorted(spans)[1:]):
        if start < end:
            findings.append(Mismatch(second, "a BAR of its own", f"one at {start:#x} inside that of {first}"))
    return findings


def _compare_below(
    plan: DomainPlan,
    bus_port: pci_tree.Port,
    ports_above: list[str],
    enumerated: dict[str, EnumeratedDevice],
    findings: list[Mismatch],
    spans: list[tuple[int, int, str]],
) -> None:
    for endpoint in bus_port.endpoints:
        if endpoint.role != "hostdev":
            label = f"virtio {endpoint.role} {endpoint.key}"
            _compare_place(
                label,
                bus_port,
                endpoint.slot,
                endpoint.function,
                ports_above,
                enumerated.get(_identity(endpoint)),
                findings,
            )
    for item in stand_ins(plan, bus_port):
        label = f"{plan.functions[item.host_address].kind} {item.host_address}"
        device = enumerated.get(item.identity)
        if (
            _compare_place(label, bus_port, 0, item.function, ports_above, device, findings)
            and item.bar_bytes
            and device
        ):
            compare_bar(label, item.bar_bytes, device, findings, spans)
    for port in bus_port.ports:
        if port.model == pci_tree.EXPANDER:
            _compare_below(plan, port, [], enumerated, findings, spans)
            continue
        label = f"{port.model} {port.index}" + (f" (the host's {port.host})" if port.host else "")
        device = enumerated.get(f"port{port.index}")
        if _compare_place(label, bus_port, port.slot, port.function, ports_above, device, findings) and device:
            buses = (port.bus, port.last_bus)
            if device.buses != buses:
                findings.append(Mismatch(label, _range(buses), _range(device.buses)))
            _compare_below(plan, port, [*ports_above, f"port{port.index}"], enumerated, findings, spans)
        else:
            # Everything below a missing port is wrong, too, and each device is reported.
            _compare_below(plan, port, [*ports_above, f"port{port.index}"], enumerated, findings, spans)


def _compare_place(
    label: str,
    bus_port: pci_tree.Port,
    slot: int,
    function: int,
    ports_above: list[str],
    device: EnumeratedDevice | None,
    findings: list[Mismatch],
) -> bool:
    """Return True if the function was found; add findings where it is missing or at another place."""
    planned = pci_tree.address(bus_port.bus, slot, function)
    if device is None:
        findings.append(Mismatch(label, f"at {planned}", "nowhere: the firmware did not reach it"))
        return False
    if device.place != planned:
        findings.append(Mismatch(label, f"at {planned}", f"at {device.place}"))
    found_above = [identity for identity, _window in device.ports_above]
    if found_above != ports_above:
        findings.append(Mismatch(label, f"below {_chain(ports_above)}", f"below {_chain(found_above)}"))
    return True


def compare_bar(
    label: str, size: int, device: EnumeratedDevice, findings: list[Mismatch], spans: list[tuple[int, int, str]]
) -> None:
    """Add the span of a device's BAR of this size, and a finding unless it lies in the window of each bridge above."""
    planned = f"a BAR of {size} bytes"
    if size not in device.bars:
        findings.append(Mismatch(label, planned, f"BARs of {sorted(device.bars)} bytes"))
        return
    start = device.bars[size]
    if start is None:
        findings.append(Mismatch(label, planned, "one without an address"))
        return
    for identity, window in device.ports_above:
        if window is None or start < window[0] or start + size - 1 > window[1]:
            text = f"{window[0]:#x}-{window[1]:#x}" if window else "none"
            findings.append(
                Mismatch(label, f"{planned} in the window of {identity}", f"{start:#x}, the window is {text}")
            )
    spans.append((start, start + size, label))


def enumerated_devices(query_pci: list[dict[str, Any]]) -> Iterator[tuple[str, EnumeratedDevice]]:
    """Yield each function that QEMU reports, with its identity (``qdev_id``, "" for those of the chipset)."""
    for root in query_pci:
        yield from _enumerated_below(root["devices"], [])


def _enumerated_below(
    devices: list[dict[str, Any]], ports_above: list[tuple[str, tuple[int, int] | None]]
) -> Iterator[tuple[str, EnumeratedDevice]]:
    for device in devices:
        enumerated = EnumeratedDevice(pci_tree.address(device["bus"], device["slot"], device["function"]), ports_above)
        for region in device["regions"]:
            if region["type"] == "memory" and region.get("mem_type_64") and region.get("prefetch"):
                address = region["address"]
                # QEMU writes "no address" as all ones.
                enumerated.bars[region["size"]] = None if address in (-1, 2**64 - 1) else address
        bridge = device.get("pci_bridge")
        window = None
        if bridge:
            enumerated.buses = (bridge["bus"]["secondary"], bridge["bus"]["subordinate"])
            span = bridge["bus"]["prefetchable_range"]
            window = (span["base"], span["limit"]) if span["base"] <= span["limit"] else None
        yield device["qdev_id"], enumerated
        if bridge:
            yield from _enumerated_below(bridge.get("devices", []), [*ports_above, (device["qdev_id"], window)])


def _chain(ports_above: list[str]) -> str:
    return " > ".join(ports_above) or "a root bus"


def _range(buses: tuple[int, int] | None) -> str:
    return f"buses {buses[0]}-{buses[1]} below it" if buses else "no bus below it"


def _high_bars(plan: DomainPlan, address: str) -> list[int]:
    """Return the bytes of each 64-bit prefetchable BAR of a function, the largest first."""
    regions = [region for region in plan.functions[address].bars if region.kind == "memory" and mmio.is_high(region)]
    return sorted((max(mmio.power_of_two(region.size_bytes), PAGE_BYTES) for region in regions), reverse=True)


def _name(address: str) -> str:
    return address.replace(":", "-")


def _identity(endpoint: pci_tree.Endpoint) -> str:
    return f"{endpoint.role}-{_name(endpoint.key)}"


def _bus(plan: DomainPlan, port: pci_tree.Port) -> str:
    return "pcie.0" if port is plan.root else f"port{port.index}"


def _at(plan: DomainPlan, port: pci_tree.Port, slot: int, function: int, multifunction: bool) -> str:
    return f"bus={_bus(plan, port)},addr={slot:#x}.{function:#x}" + (",multifunction=on" if multifunction else "")


def _port(plan: DomainPlan, parent: pci_tree.Port, port: pci_tree.Port, multifunction: bool) -> str:
    text = f"{DRIVERS[port.model]},id=port{port.index},{_at(plan, parent, port.slot, port.function, multifunction)}"
    if port.model == pci_tree.EXPANDER:
        text += f",bus_nr={port.bus}" + (f",numa_node={port.cell}" if port.cell is not None else "")
    elif port.model != pci_tree.UPSTREAM:
        text += f",chassis={port.index}" + ("" if parent.hot_plug(port) else ",hotplug=off")
    return text


def _virtio(plan: DomainPlan, port: pci_tree.Port, endpoint: pci_tree.Endpoint) -> list[str]:
    identity = _identity(endpoint)
    place = _at(plan, port, endpoint.slot, endpoint.function, False)
    device = f"{VIRTIO_DRIVERS[endpoint.role]},id={identity},{place}"
    if endpoint.role == "disk":
        return [
            "-blockdev",
            f"null-co,node-name={identity}-node,size=1048576,read-zeroes=on",
            "-device",
            f"{device},drive={identity}-node",
        ]
    # Without its boot ROM, because a trial must not boot from the network.
    return ["-device", device + (",romfile=" if endpoint.role == "interface" else "")]


def _stand_in(plan: DomainPlan, port: pci_tree.Port, item: StandIn, multifunction: bool) -> list[str]:
    place = f"id={item.identity},{_at(plan, port, 0, item.function, multifunction)}"
    if item.io:
        # QEMU's test device has a BAR of any size with nothing behind it, and an I/O BAR, for which a bridge takes 4
        # of the 64 KiB of I/O space.
        return ["-device", f"pci-testdev,{place}" + (f",membar={item.bar_bytes}" if item.bar_bytes else "")]
    # QEMU's shared memory device has no I/O BAR. Its memory is only reserved, never accessed.
    memory = f"{item.identity}-memory"
    return [
        "-object",
        f"memory-backend-ram,id={memory},size={item.bar_bytes or PAGE_BYTES},reserve=off",
        "-device",
        f"ivshmem-plain,{place},memdev={memory}",
    ]
