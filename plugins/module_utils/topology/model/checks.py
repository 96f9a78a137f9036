# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check once, on input, that a Host is consistent, so that no later code has to. Pure.

Unusual but possible hosts pass, and the planner handles them: nodes without CPUs or memory, functions whose node, BARs
or config space are not known, bridges without bus numbers. Types are not checked here: see shape.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import INTERFACES, NAMES, PORT_TYPES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Bar,
    Function,
    Host,
    NumaNode,
)

# A domain has four digits or, below a volume management device, more.
ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):[01][0-9a-f]\.[0-7]")
LAST_BUS = 0xFF
# An address has at most 64 bits, and no machine with GPUs has fewer than 32.
FEWEST_ADDRESS_BITS, MOST_ADDRESS_BITS = 32, 64
# The fields of PCI's configuration header.
ID_BITS = {"class_code": 24, "vendor_id": 16, "device_id": 16, "subsystem_vendor_id": 16, "subsystem_device_id": 16}
# ACPI Specification, System Locality Information Table: the distance of a node to itself is 10, 0 to 9 are reserved,
# 255 means unreachable. Linux on POWER also has 10 between nodes that its firmware does not distinguish.
OWN_DISTANCE, UNREACHABLE = 10, 255
NODE_NUMBER = re.compile(r"[0-9]{1,9}")
ROM_BAR = 6


def check(host: Host) -> None:
    """Raise TopologyError for the first inconsistency in ``host``; the message names it and the next step."""
    bits = host.cpu.physical_address_bits
    if bits is not None and not FEWEST_ADDRESS_BITS <= bits <= MOST_ADDRESS_BITS:
        raise _wrong(f"the processor has {bits} physical address bits")
    _check_nodes(host.numa_nodes)
    domains: dict[str, int] = {}
    buses: dict[str, int] = {}
    for item in host.root_complexes:
        if item.name in domains:
            raise _wrong(f"root complex {item.name!r} is listed twice")
        if item.domain < 0 or not 0 <= item.bus <= LAST_BUS:
            raise _wrong(f"root complex {item.name}: domain {item.domain} and bus {item.bus} are not valid")
        _check_node_of(item.numa_node, f"root complex {item.name}")
        domains[item.name] = item.domain
        buses[item.name] = item.bus
    functions: dict[str, Function] = {}
    for function in host.functions:
        if function.address in functions:
            raise _wrong(f"PCI function {function.address} is listed twice")
        functions[function.address] = function
    for function in functions.values():
        _check_function(function, functions, domains)
        # NCCL has no root complexes: in the model, one stands for a whole NUMA node (read/nccl.py).
        if host.source != "nccl" and _domain(function) != domains[function.root_complex]:
            raise _wrong(
                f"PCI function {function.address} has another PCI domain than its root complex {function.root_complex}"
            )
        if function.parent is not None:
            _check_place(function, function.parent, functions)
        elif (
            host.source != "nccl"
            and function.physical_function is None
            and _bus(function) != buses[function.root_complex]
        ):
            # NCCL's XML has no root buses; the other sources have them. A virtual function may be on the next bus.
            raise _wrong(
                f"PCI function {function.address} is not below a bridge, but the root bus of {function.root_complex} "
                f"is {buses[function.root_complex]:02x}"
            )
    _check_loops(functions)


def _wrong(contradiction: str) -> TopologyError:
    return TopologyError(f"the topology contradicts itself: {contradiction}", "read it again with host_topology_info")


def _check_node_of(node: int | None, owner: str) -> None:
    if node is not None and node < 0:
        raise _wrong(f"{owner}: numa_node is {node}, but must be the number of a node, or null if it is not known")


def _check_nodes(nodes: list[NumaNode]) -> None:
    owner: dict[int, int] = {}
    seen: set[int] = set()
    for node in nodes:
        label = f"NUMA node {node.id}"
        if node.id in seen or node.id < 0:
            raise _wrong(f"{label} is listed twice or has a number below 0")
        seen.add(node.id)
        for cpu in node.cpus:
            if cpu in owner or cpu < 0:
                raise _wrong(f"CPU {cpu} of {label} is also on node {owner.get(cpu)}, or has a number below 0")
            owner[cpu] = node.id
        threads = [cpu for core in node.siblings for cpu in core]
        if threads and (sorted(threads) != sorted(node.cpus) or not all(node.siblings)):
            raise _wrong(f"{label}: its siblings do not list each of its CPUs once")
        if node.socket is not None and node.socket < 0:
            raise _wrong(f"{label}: its socket is {node.socket}")
        if node.memory_bytes < 0:
            raise _wrong(f"{label}: its memory is {node.memory_bytes} bytes")
        for pages in node.huge_pages:
            if pages.size_bytes <= 0 or pages.total < 0 or pages.free < 0:
                raise _wrong(f"{label}: {pages.total} huge pages of {pages.size_bytes} bytes, {pages.free} free")
        for other_node, distance in node.distances.items():
            if not NODE_NUMBER.fullmatch(other_node):
                raise _wrong(f"{label}: it has a distance to {other_node!r:.60}, which is not a node")
            if int(other_node) == node.id and distance != OWN_DISTANCE:
                raise _wrong(f"{label}: its distance to itself is {distance}, but ACPI's SLIT has {OWN_DISTANCE} there")
            if not OWN_DISTANCE <= distance <= UNREACHABLE:
                raise _wrong(
                    f"{label}: its distance to node {other_node} is {distance}, but ACPI's SLIT has {OWN_DISTANCE} to "
                    f"{UNREACHABLE}"
                )


def _check_function(function: Function, functions: dict[str, Function], domains: dict[str, int]) -> None:
    label = f"PCI function {function.address}"
    if not ADDRESS.fullmatch(function.address):
        raise _wrong(f"PCI function {function.address!r}: not an address like 0000:3b:00.0")
    if function.root_complex not in domains:
        raise _wrong(f"{label} is below root complex {function.root_complex!r}, which is not listed")
    if function.kind not in NAMES:
        raise _wrong(f"{label} is of kind {function.kind!r}; valid values: {', '.join(sorted(NAMES))}")
    if function.port_type is not None and function.port_type not in PORT_TYPES.values():
        raise _wrong(f"{label} has port_type {function.port_type!r}; valid values: {', '.join(PORT_TYPES.values())}")
    _check_fields(function, label)
    _check_node_of(function.numa_node, label)
    _check_bars(function.bars, label)
    if function.sriov is not None:
        _check_bars(function.sriov.vf_bars, label)
        for address in function.sriov.vfs:
            if address not in functions:
                raise _wrong(f"{label} has the virtual function {address}, which is not listed")
    if function.physical_function is not None and function.physical_function not in functions:
        raise _wrong(f"{label} is a virtual function of {function.physical_function}, which is not listed")
    buses = _buses_below(function)
    if buses is not None:
        first, last = buses
        if not 0 < first <= last <= LAST_BUS:
            raise _wrong(f"bridge {function.address} has the buses {first:02x}-{last:02x}, which are not valid")


def _check_fields(function: Function, label: str) -> None:
    for name, bits in ID_BITS.items():
        number = getattr(function, name)
        if number is not None and number >> bits:
            raise _wrong(f"{label}: {name} is {number}, which does not fit in {bits} bits")
    for width in (function.link.width, function.link.max_width) if function.link else ():
        if width is not None and width < 0:
            raise _wrong(f"{label}: its link has {width} lanes")
    for name in function.interfaces:
        if name not in INTERFACES.values():
            raise _wrong(
                f"{label} has interfaces of class {name!r:.60}; valid values: {', '.join(INTERFACES.values())}"
            )


def _domain(function: Function) -> int:
    return int(function.address.split(":", 1)[0], 16)


def _bus(function: Function) -> int:
    return int(function.address.split(":", 2)[1], 16)


def _check_bars(bars: Iterable[Bar], label: str) -> None:
    for region in bars:
        good = 0 <= region.index <= ROM_BAR and region.size_bytes > 0 and region.kind in ("memory", "io")
        if not good or region.width_bits not in (32, 64):
            raise _wrong(
                f"{label}: BAR {region.index} is not valid: {region.size_bytes} bytes, {region.kind!r}, "
                f"{region.width_bits} bit"
            )
        # PCI Express Base Specification, 7.5.1.2.1: the lowest writable bit of a base address register gives its size.
        if region.size_bytes & (region.size_bytes - 1):
            raise _wrong(f"{label}: BAR {region.index} has {region.size_bytes} bytes, which is not a power of two")


def _buses_below(bridge: Function) -> tuple[int, int] | None:
    """Return the first and the last bus below a bridge; None if they are not known or not assigned (0)."""
    if not bridge.secondary_bus or bridge.subordinate_bus is None:
        return None
    return bridge.secondary_bus, bridge.subordinate_bus


def _check_place(function: Function, parent_address: str, functions: dict[str, Function]) -> None:
    """Check that a function is on the bus of its parent, a bridge, and that its own buses are within the bridge's."""
    label = f"PCI function {function.address} is below {parent_address}"
    parent = functions.get(parent_address)
    if parent is None:
        raise _wrong(f"{label}, which is not listed")
    if parent.kind != "bridge":
        raise _wrong(f"{label}, which is not a bridge")
    if parent.root_complex != function.root_complex:
        raise _wrong(f"{label}, which is under another root complex")
    buses = _buses_below(parent)
    if buses is None:
        return
    first, last = buses
    bus = _bus(function)
    # A virtual function's bus follows from its PF's address (SR-IOV's First VF Offset and VF Stride).
    if bus != first and not (function.physical_function is not None and first <= bus <= last):
        raise _wrong(f"{label}, whose bus is {first:02x}")
    child_buses = _buses_below(function)
    if child_buses is not None and not first < child_buses[0] <= child_buses[1] <= last:
        raise _wrong(
            f"bridge {function.address} has the buses {child_buses[0]:02x}-{child_buses[1]:02x}, but {parent_address} "
            f"above it has {first:02x}-{last:02x}"
        )


def _check_loops(functions: dict[str, Function]) -> None:
    """Check that every path up ends on a root bus and has no more bridges than a domain can have buses."""
    depths: dict[str, int] = {}
    for address in functions:
        addresses: list[str] = []
        next_address: str | None = address
        while next_address is not None and next_address not in depths:
            if next_address in addresses:
                raise _wrong(f"PCI function {next_address} is above itself: the tree has a loop")
            addresses.append(next_address)
            next_address = functions[next_address].parent
        depth_above = depths[next_address] if next_address is not None else 0
        for depth, step in enumerate(reversed(addresses), depth_above + 1):
            if depth > LAST_BUS + 1:
                raise _wrong(
                    f"PCI function {step} is below {LAST_BUS + 1} bridges or more, but a PCI domain has "
                    f"{LAST_BUS + 1} buses"
                )
            depths[step] = depth
