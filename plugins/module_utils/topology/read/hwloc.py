# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a Host from hwloc XML (``lstopo machine.xml``), format 1.x, 2.x or 3.x.

Source: hwloc's hwloc.dtd (1.x), hwloc2.dtd and include/hwloc.h. hwloc leaves out what it considers unimportant, and has
no BARs, drivers, IOMMU groups and config space; its link speed is a product of speed and width, so that neither is
known. Pure: text in, a Host out.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.checks import check
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import kind
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Cpu,
    Function,
    Host,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.hwloc_nodes import (
    bitmap,
    number,
    read_numa_nodes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.places import address_key

# bridge_type of a host bridge: from HWLOC_OBJ_BRIDGE_HOST to HWLOC_OBJ_BRIDGE_PCI.
HOST_BRIDGE = "0-1"
# osdev_type by the major version of the format: an enumeration to 2, a bit mask in 3 (HWLOC_OBJ_OSDEV_*).
ENUMERATED = {0: "block", 2: "net", 3: "rdma"}
OS_DEVICES = {1: ENUMERATED, 2: ENUMERATED, 3: {1: "block", 16: "net", 32: "rdma"}}
# "0302 [10de:1db8] [10de:131d] a1 00": class, ids, subsystem, revision and, since 3.0, programming interface.
PCI_TYPE = re.compile(
    r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\] \[([0-9a-f]{4}):([0-9a-f]{4})\] [0-9a-f]{2}(?: ([0-9a-f]{2}))?"
)
BUSES = re.compile(r"([0-9a-f]{4,8}):\[([0-9a-f]{2})-([0-9a-f]{2})\]")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_hwloc(text: str) -> Host:
    """Return the host that the XML describes.

    If several objects have the same PCI address, the one on the bus of the bridge above it is read, and a note names
    the others. Raises TopologyError if the text is not hwloc XML or contradicts itself.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise TopologyError(f"not XML: {error}", "copy it again") from error
    version = root.get("version")
    # The 1.x format states no version.
    major = 1 if version is None else int(version.split(".")[0]) if re.match(r"[0-9]{1,3}\.", version) else 0
    machine = _machine(root)
    if root.tag != "topology" or major not in OS_DEVICES or machine is None:
        start_tag = f"<{root.tag} version={version!r}>"
        raise TopologyError(f"{start_tag} is not hwloc XML 1.x, 2.x or 3.x of a machine", "write it with lstopo")
    addresses = Counter(element.get("pci_busid") for element in machine.iter("object"))
    ambiguous = {address for address, times in addresses.items() if address and times > 1}
    try:
        nodes = read_numa_nodes(root, machine)
        reader = _Reader(OS_DEVICES[major], {node.id for node in nodes if node.cpus}, ambiguous)
        reader.descend(machine, None, None, None)
    except RecursionError as error:
        raise TopologyError("its objects are nested deeper than those of any machine: not hwloc XML") from error
    names = {item.get("name"): item.get("value") for item in machine.iter("info")}
    names.update({item.get("name"): item.get("value") for item in root.findall("info")})
    model = names.get("CPUModel")
    host = Host(
        numa_nodes=nodes,
        root_complexes=sorted(reader.root_complexes, key=lambda item: (item.domain, item.bus)),
        functions=sorted(reader.functions, key=lambda item: address_key(item.address)),
        cpu=Cpu(names.get("Architecture"), names.get("CPUVendor"), model.strip() if model else None),
        kernel_release=names.get("OSRelease"),
        source="hwloc",
        notes=reader.notes,
    )
    check(host)
    return host


def _machine(root: ElementTree.Element) -> ElementTree.Element | None:
    """Return the object of the machine. Raises TopologyError if the 1.x format describes a cluster (a System)."""
    if root.find("object[@type='System']") is None:
        return root.find("object[@type='Machine']")
    machines = [element for element in root.iter("object") if element.get("type") == "Machine"]
    if len(machines) > 1:
        raise TopologyError(f"it describes {len(machines)} machines together", "write it with lstopo on one of them")
    return machines[0] if machines else None


class _Reader:
    """Reader that collects the PCI tree in one pass down the objects."""

    def __init__(self, os_devices: dict[int, str], nodes_with_cpus: set[int], ambiguous: set[str]) -> None:
        """Start an empty tree; ``ambiguous`` are the addresses that several PCI objects have."""
        self._os_devices = os_devices
        self._nodes_with_cpus = nodes_with_cpus
        self._ambiguous = ambiguous
        self.root_complexes: list[RootComplex] = []
        self.functions: list[Function] = []
        self.notes: list[str] = []

    def descend(
        self, element: ElementTree.Element, node: int | None, root: RootComplex | None, parent: Function | None
    ) -> None:
        """Read an object and all below it; ``node`` is the node of the nearest object with memory or CPUs.

        That object is how hwloc states the place of a bus. If some of its nodes have CPUs, those without CPUs do not
        count: they are memory near the others, and the kernel assigns no device to them. If several nodes with CPUs are
        left, the node of the bus is not known.
        """
        kind_of_object = element.get("type")
        nodeset = element.get("nodeset")
        if nodeset is not None:
            nodes = bitmap(nodeset)
            nodes = [node_id for node_id in nodes if node_id in self._nodes_with_cpus] or nodes
            node = nodes[0] if len(nodes) == 1 else None
        if kind_of_object == "Bridge" and element.get("bridge_type") == HOST_BRIDGE:
            root = self._root_complex(element, node)
            parent = None
        elif kind_of_object in ("Bridge", "PCIDev"):
            address = element.get("pci_busid") or ""
            if address in self._ambiguous and parent is not None and not _is_below(address, parent):
                self.notes.append(
                    f"hwloc XML has several PCI functions {address}: the one below {parent.address}, which is not on "
                    "its bus, and all below it are left out"
                )
                return
            parent = self._function(element, root, parent)
        elif kind_of_object == "OSDev" and parent is not None:
            name = self._os_devices.get(number(element, "osdev_type"))
            if name is not None:
                parent.interfaces.setdefault(name, []).append(element.get("name") or "")
        for child in element.findall("object"):
            self.descend(child, node, root, parent)

    def _root_complex(self, element: ElementTree.Element, node: int | None) -> RootComplex:
        domain, first, _last = _buses(element)
        root = RootComplex(f"pci{domain:04x}:{first:02x}", domain, first, node)
        self.root_complexes.append(root)
        return root

    def _function(self, element: ElementTree.Element, root: RootComplex | None, parent: Function | None) -> Function:
        address = element.get("pci_busid") or ""
        identity = PCI_TYPE.fullmatch(element.get("pci_type") or "")
        if not ADDRESS.fullmatch(address) or identity is None:
            attributes = f"pci_busid {address!r} and pci_type {element.get('pci_type')!r}"
            raise TopologyError(f"PCI object with {attributes}: not an address and ids")
        if root is None:
            raise TopologyError(f"PCI function {address} is not below a host bridge")
        if any(function.address == address for function in self.functions):
            raise TopologyError(f"PCI function {address} is listed twice")
        class_code = int(identity[1], 16) << 8 | int(identity[6] or "0", 16)
        bridge = element.get("type") == "Bridge"
        _domain, first, last = _buses(element) if bridge else (None, None, None)
        function = Function(
            address=address,
            root_complex=root.name,
            parent=parent.address if parent else None,
            class_code=class_code,
            vendor_id=int(identity[2], 16),
            device_id=int(identity[3], 16),
            kind="bridge" if bridge else kind(class_code, int(identity[2], 16), int(identity[3], 16)),
            port_type=None,
            subsystem_vendor_id=int(identity[4], 16),
            subsystem_device_id=int(identity[5], 16),
            secondary_bus=first,
            subordinate_bus=last,
            numa_node=root.numa_node,
        )
        self.functions.append(function)
        return function


def _is_below(address: str, bridge: Function) -> bool:
    domain, bus, _rest = address.split(":") if ADDRESS.fullmatch(address) else ("", "", "")
    on_bus = bus and bridge.secondary_bus is not None and int(bus, 16) == bridge.secondary_bus
    return bool(on_bus) and domain == bridge.address.split(":")[0]


def _buses(element: ElementTree.Element) -> tuple[int, int, int]:
    match = BUSES.fullmatch(element.get("bridge_pci") or "")
    if match is None:
        raise TopologyError(f"bridge {element.get('pci_busid')} has no usable bridge_pci {element.get('bridge_pci')!r}")
    return int(match[1], 16), int(match[2], 16), int(match[3], 16)
