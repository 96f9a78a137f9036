# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machine that the guest sees and the host resources that it uses, read from libvirt's domain XML. Pure.

For the topology this is the inverse of ``domain_xml``. It reads any q35 or i440fx domain, also those of other programs.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import parse_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import BYTES_OF_UNIT, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import bus_numbers, pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import machine
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import host_record


@dataclass
class DefinedCell:
    """A guest NUMA cell.

    ``nodes`` are the host nodes that its memory may come from (empty: any). ``page_mib`` 0 is ordinary memory.
    """

    id: int
    vcpus: list[int]
    memory_mib: int
    page_mib: int = 0
    nodes: list[int] = field(default_factory=list)
    strict: bool = False


@dataclass
class Definition:
    """One domain.

    ``places`` maps host addresses to guest addresses, and ``pins`` maps "vCPU 0", "the emulator" or "I/O thread 1" to
    host CPUs.
    """

    name: str
    guest: Host
    places: dict[str, str]
    cells: list[DefinedCell]
    pins: dict[str, list[int]]
    recorded: dict[str, host_record.Recorded]

    def cell(self, number: int | None) -> DefinedCell | None:
        """Return the cell with that id, or None."""
        return next((cell for cell in self.cells if cell.id == number), None)

    def vcpu_cell(self, vcpu: int) -> DefinedCell | None:
        """Return the cell that has the vCPU."""
        return next((cell for cell in self.cells if vcpu in cell.vcpus), None)


def read(xml: str, functions: dict[str, Function]) -> Definition:
    """Read the domain of ``xml``; the host's ``functions`` give the kinds of its devices.

    A device that the host lacks has the kind in the domain's own record, else kind "other". Raises DomainError if
    ``xml`` is not domain XML.
    """
    try:
        root = ET.fromstring(xml)
        name = root.findtext("name", "")
        recorded = host_record.read(root)
        bus, endpoints = _tree(root)
        host_functions = {
            item.key: functions.get(item.key) or _gone(recorded.get(item.key), item.key) for _bus, item in endpoints
        }
        cells = _cells(root)
        nodes = [
            NumaNode(cell.id, cell.vcpus, [[vcpu] for vcpu in cell.vcpus], cell.memory_mib << 20) for cell in cells
        ]
        guest = machine(bus, host_functions, nodes, "libvirt")
        places = {item.key: pci_tree.address(port.bus, item.slot, item.function) for port, item in endpoints}
        return Definition(name, guest, places, cells, _pins(root), recorded)
    except (ET.ParseError, SailloftError, ValueError, KeyError) as error:
        raise DomainError(f"libvirt's XML of a domain cannot be read: {error!r}", "see virsh dumpxml") from error


def _gone(old: host_record.Recorded | None, address: str) -> Function:
    vendor, device = (int(part, 16) for part in (old.model if old else "0:0").split(":"))
    return Function(address, "", None, 0, vendor, device, old.kind if old else "other", None)


def _number(element: ET.Element, name: str) -> int:
    return int(element.get(name, "0"), 0)


def _tree(root: ET.Element) -> tuple[pci_tree.Port, list[tuple[pci_tree.Port, pci_tree.Endpoint]]]:
    """Return the root bus with all buses below, numbered as by firmware, and each passed-through device's port."""
    ports: dict[int, pci_tree.Port] = {}
    places: dict[int, ET.Element] = {}
    for item in root.iterfind("devices/controller[@type='pci']"):
        index = int(item.get("index", "0"))
        node = item.findtext("target/node")
        target = item.find("target")
        number = 0 if target is None else _number(target, "busNr")
        ports[index] = pci_tree.Port(item.get("model", ""), index=index, cell=int(node) if node else None, bus=number)
        place = item.find("address[@type='pci']")
        if place is not None:
            places[index] = place
    top = ports.setdefault(0, pci_tree.Port(pci_tree.ROOT))
    for index, place in sorted(places.items()):
        parent = ports.get(_number(place, "bus"))
        if index and parent is not None:
            ports[index].slot, ports[index].function = _number(place, "slot"), _number(place, "function")
            parent.ports.append(ports[index])
    endpoints = []
    # An interface of type hostdev is a network function that is passed through as well.
    passed = [*root.iterfind("devices/hostdev[@type='pci']"), *root.iterfind("devices/interface[@type='hostdev']")]
    for item in passed:
        source, place = item.find("source/address"), item.find("address[@type='pci']")
        port = ports.get(_number(place, "bus")) if place is not None else None
        if source is None or place is None or port is None:
            continue
        domain, bus, slot, function = (_number(source, key) for key in ("domain", "bus", "slot", "function"))
        address = f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
        endpoint = pci_tree.Endpoint("hostdev", address, _number(place, "slot"), _number(place, "function"))
        port.endpoints.append(endpoint)
        endpoints.append((port, endpoint))
    bus_numbers.number(top, 0)
    for expander in top.expanders:
        bus_numbers.number(expander, expander.bus)
    return top, endpoints


# libvirt always writes KiB, except for pages, whose unit it does not change.
def _mib(element: ET.Element, value: str) -> int:
    return int(value) * BYTES_OF_UNIT[element.get("unit", "KiB")] // MIB


def _cells(root: ET.Element) -> list[DefinedCell]:
    cells = [
        DefinedCell(int(item.get("id", "0")), parse_ranges(item.get("cpus", "")), _mib(item, item.get("memory", "0")))
        for item in root.iterfind("cpu/numa/cell")
    ]
    if not cells:
        memory = root.find("memory")
        vcpus = list(range(int(root.findtext("vcpu", "0"))))
        cells = [DefinedCell(0, vcpus, 0 if memory is None else _mib(memory, memory.text or "0"))]
    memory_of_all = root.find("numatune/memory")
    for cell in cells:
        bound = root.find(f"numatune/memnode[@cellid='{cell.id}']")
        tune = memory_of_all if bound is None else bound
        if tune is not None:
            cell.nodes = parse_ranges(tune.get("nodeset", ""))
            cell.strict = tune.get("mode", "strict") == "strict" and bool(cell.nodes)
        for page in root.iterfind("memoryBacking/hugepages/page"):
            if page.get("nodeset") is None or cell.id in parse_ranges(page.get("nodeset", "")):
                cell.page_mib = _mib(page, page.get("size", "0"))
    return cells


def _pins(root: ET.Element) -> dict[str, list[int]]:
    pins = {f"vCPU {item.get('vcpu')}": item for item in root.iterfind("cputune/vcpupin")}
    emulator = root.find("cputune/emulatorpin")
    if emulator is not None:
        pins["the emulator"] = emulator
    pins.update({f"I/O thread {item.get('iothread')}": item for item in root.iterfind("cputune/iothreadpin")})
    return {name: parse_ranges(item.get("cpuset", "")) for name, item in pins.items()}
