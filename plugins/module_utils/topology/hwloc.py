# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reads a Host from hwloc XML (``lstopo machine.xml``), format 2.x or 3.x.

Source: hwloc's hwloc2.dtd and include/hwloc.h. hwloc leaves out what it takes to be unimportant, and knows nothing
of BARs, drivers, IOMMU groups and config space; its link speed is a product of speed and width, so that neither is
known. Pure: text in, a Host out.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.checks import check
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.files import LIMIT_CPUS
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.functions import address_key
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.kinds import kind
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import (
    Cpu,
    Function,
    Host,
    NumaNode,
    RootComplex,
    TopologyError,
)

# bridge_type of a host bridge: from HWLOC_OBJ_BRIDGE_HOST to HWLOC_OBJ_BRIDGE_PCI.
HOST_BRIDGE = "0-1"
# osdev_type by the major version of the format: an enumeration in 2, a bit mask in 3 (HWLOC_OBJ_OSDEV_*).
OS_DEVICES = {2: {0: "block", 2: "net", 3: "rdma"}, 3: {1: "block", 16: "net", 32: "rdma"}}
# "0302 [10de:1db8] [10de:131d] a1 00": class, ids, subsystem, revision and, since 3.0, programming interface.
PCI_TYPE = re.compile(
    r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\] \[([0-9a-f]{4}):([0-9a-f]{4})\] [0-9a-f]{2}(?: ([0-9a-f]{2}))?"
)
BUSES = re.compile(r"([0-9a-f]{4,8}):\[([0-9a-f]{2})-([0-9a-f]{2})\]")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# hwloc's numbers have 64 bits. (str.isdigit takes more than int does.)
NUMBER = re.compile(r"[0-9]{1,20}")
BITMAP_WORDS = LIMIT_CPUS // 32


def read_hwloc(text: str) -> Host:
    """The host that the XML describes. Raises TopologyError for what is no hwloc XML or contradicts itself."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise TopologyError(f"not XML: {error}") from error
    major = (root.get("version") or "").split(".")[0]
    machine = root.find("object[@type='Machine']")
    if root.tag != "topology" or major not in ("2", "3") or machine is None:
        found = f"<{root.tag} version={root.get('version')!r}>"
        raise TopologyError(f"{found} is not hwloc XML 2.x or 3.x: write it with lstopo 2 or newer")
    reader = _Reader(OS_DEVICES[int(major)])
    try:
        reader.descend(machine, None, None, None)
    except RecursionError as error:
        raise TopologyError("its objects are nested deeper than those of any machine: no hwloc XML") from error
    names = {item.get("name"): item.get("value") for item in machine.iter("info")}
    names.update({item.get("name"): item.get("value") for item in root.findall("info")})
    model = names.get("CPUModel")
    host = Host(
        numa_nodes=_numa_nodes(machine, _distances(root)),
        root_complexes=sorted(reader.root_complexes, key=lambda item: (item.domain, item.bus)),
        functions=sorted(reader.functions, key=lambda item: address_key(item.address)),
        cpu=Cpu(names.get("Architecture"), names.get("CPUVendor"), model.strip() if model else None),
        kernel_release=names.get("OSRelease"),
        source="hwloc",
    )
    check(host)
    return host


class _Reader:
    """Collects the PCI tree on one way down the objects."""

    def __init__(self, os_devices: dict[int, str]) -> None:
        self._os_devices = os_devices
        self.root_complexes: list[RootComplex] = []
        self.functions: list[Function] = []

    def descend(
        self, element: ElementTree.Element, node: int | None, root: RootComplex | None, above: Function | None
    ) -> None:
        """``node`` is that of the nearest object with memory or CPUs: hwloc's way to say where a bus is."""
        kind_of_object = element.get("type")
        nodeset = element.get("nodeset")
        if nodeset is not None:
            nodes = bitmap(nodeset)
            node = nodes[0] if len(nodes) == 1 else None
        if kind_of_object == "Bridge" and element.get("bridge_type") == HOST_BRIDGE:
            root = self._root_complex(element, node)
            above = None
        elif kind_of_object in ("Bridge", "PCIDev"):
            above = self._function(element, root, above)
        elif kind_of_object == "OSDev" and above is not None:
            name = self._os_devices.get(_number(element, "osdev_type"))
            if name is not None:
                above.interfaces.setdefault(name, []).append(element.get("name") or "")
        for child in element.findall("object"):
            self.descend(child, node, root, above)

    def _root_complex(self, element: ElementTree.Element, node: int | None) -> RootComplex:
        domain, first, _last = _buses(element)
        root = RootComplex(f"pci{domain:04x}:{first:02x}", domain, first, node)
        self.root_complexes.append(root)
        return root

    def _function(self, element: ElementTree.Element, root: RootComplex | None, above: Function | None) -> Function:
        address = element.get("pci_busid") or ""
        identity = PCI_TYPE.fullmatch(element.get("pci_type") or "")
        if not ADDRESS.fullmatch(address) or identity is None:
            found = f"pci_busid {address!r} and pci_type {element.get('pci_type')!r}"
            raise TopologyError(f"PCI object with {found}: not an address and its ids")
        if root is None:
            raise TopologyError(f"PCI function {address} is below no host bridge")
        if any(function.address == address for function in self.functions):
            raise TopologyError(f"PCI function {address} is there twice")
        class_code = int(identity[1], 16) << 8 | int(identity[6] or "0", 16)
        bridge = element.get("type") == "Bridge"
        _domain, first, last = _buses(element) if bridge else (None, None, None)
        function = Function(
            address=address,
            root_complex=root.name,
            parent=above.address if above else None,
            class_code=class_code,
            vendor_id=int(identity[2], 16),
            device_id=int(identity[3], 16),
            kind="bridge" if bridge else kind(class_code, int(identity[2], 16)),
            port_type=None,
            subsystem_vendor_id=int(identity[4], 16),
            subsystem_device_id=int(identity[5], 16),
            secondary_bus=first,
            subordinate_bus=last,
            numa_node=root.numa_node,
        )
        self.functions.append(function)
        return function


def _buses(element: ElementTree.Element) -> tuple[int, int, int]:
    match = BUSES.fullmatch(element.get("bridge_pci") or "")
    if match is None:
        raise TopologyError(f"bridge {element.get('pci_busid')} has no usable bridge_pci {element.get('bridge_pci')!r}")
    return int(match[1], 16), int(match[2], 16), int(match[3], 16)


def bitmap(text: str) -> list[int]:
    """The bits of an hwloc bitmap ("0x00000001,,0xff000000"): words of 32 bits, the highest first.

    Raises TopologyError where it is none, is infinite or has more than ``BITMAP_WORDS``.
    """
    number = 0
    words = text.split(",")
    for word in words:
        if len(words) > BITMAP_WORDS or not re.fullmatch(r"(0x[0-9a-fA-F]{1,8})?", word):
            raise TopologyError(f"{text!r:.60} is not a finite hwloc bitmap")
        number = number << 32 | int(word or "0", 16)
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]


def _numa_nodes(machine: ElementTree.Element, distances: dict[int, dict[str, int]]) -> list[NumaNode]:
    cores = []
    for core in machine.iter("object"):
        if core.get("type") == "Core":
            cores.append(sorted(_number(unit, "os_index") for unit in core.iter("object") if unit.get("type") == "PU"))
    of_core = {cpu: core for core in cores for cpu in core}
    nodes = []
    for element in machine.iter("object"):
        if element.get("type") != "NUMANode":
            continue
        number, cpus = _number(element, "os_index"), bitmap(element.get("cpuset") or "")
        here = set(cpus)
        siblings = {tuple(cpu for cpu in of_core.get(cpu, [cpu]) if cpu in here) for cpu in cpus}
        nodes.append(
            NumaNode(
                id=number,
                cpus=cpus,
                siblings=[list(core) for core in sorted(siblings)],
                memory_bytes=_number(element, "local_memory") if element.get("local_memory") else 0,
                distances=distances.get(number, {}),
            )
        )
    return sorted(nodes, key=lambda node: node.id)


def _distances(root: ElementTree.Element) -> dict[int, dict[str, int]]:
    """By node the distance to each; empty where the XML has none."""
    for element in root.findall("distances2[@name='NUMALatency']"):
        indexes = " ".join(part.text or "" for part in element.findall("indexes")).split()
        values = " ".join(part.text or "" for part in element.findall("u64values")).split()
        if not all(map(NUMBER.fullmatch, indexes + values)) or len(values) != len(indexes) ** 2:
            raise TopologyError(f"{len(values)} NUMA distances between {len(indexes)} nodes: not one for each pair")
        rows = [values[row * len(indexes) : (row + 1) * len(indexes)] for row in range(len(indexes))]
        return {int(index): dict(zip(indexes, map(int, row))) for index, row in zip(indexes, rows)}
    return {}


def _number(element: ElementTree.Element, name: str) -> int:
    text = element.get(name) or ""
    if not NUMBER.fullmatch(text):
        raise TopologyError(f"{element.get('type')} object: {name} is {text!r:.60}, not a number")
    return int(text)
