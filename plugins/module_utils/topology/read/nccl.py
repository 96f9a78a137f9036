# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a Host from an NCCL topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), and report what NCCL would refuse.

NCCL's tree has a ``cpu`` element for each NUMA node, with switches and devices below it; it has no root complexes and
no ports. The model therefore gets one root complex for each ``cpu`` that has a ``pci`` below it. The path between two
branches of one ``cpu`` is then PHB, and between devices of two ``cpu`` it is SYS, as in NCCL's own computation
(src/graph/paths.cc, ncclTopoSetPaths), which has no NODE. A ``pci`` with others below it is a whole switch and is
stored as its upstream port: with one switch between two devices the path is PIX, with several it is PXB.

The model differs from NCCL in two points. NCCL merges the two levels that Broadcom switches show (topo.cc,
ncclTopoFlattenBcmSwitches); the model counts levels as nvidia-smi does. For a ``cpu`` with numaid -1, which is the
kernel's "not known", the model uses the other NUMA node if there is only one: the path is then NODE, and SYS in NCCL.

Such a file does not contain: memory, hardware threads of a core, BARs, drivers, IOMMU groups. Missing ids are 0; a
device without a class is of kind "other". Links between GPUs (``nvlink``, ``c2c``, ``xgmi``) are checked but not kept:
no plan depends on them, and a guest's GPUs have the links of the host. Pure: text in, a Host out.

Sources: NVIDIA/nccl src/graph/xml.cc, xml.h, topo.cc; for RCCL's files, which differ little, the same in ROCm/rccl.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.checks import check
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import kind
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Cpu,
    Function,
    Host,
    Link,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl_format import (
    LINK_SPEEDS,
    MAX_ATTRIBUTES,
    NCCL,
    RCCL,
    Element,
    parse,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.places import address_key

VERSIONS = f"{NCCL.version} only, RCCL {RCCL.version}"
# Without these NCCL stops, or never finds the element (xml.cc, topo.cc). Attributes that NCCL fills in are not listed:
# cpu: affinity, arch, vendor, familyid, modelid and host_hash; pci: class, ids, link_speed and link_width, if the
# guest's /sys has the address; gpu: dev, sm, rank and gdr; net: all but its name.
REQUIRED: dict[str, tuple[str, ...]] = {
    "system": ("version",),
    "cpu": ("numaid",),
    "pci": ("busid",),
    "net": ("name",),
    "nvlink": ("target", "count"),
    "c2c": ("bw", "count"),
    # RCCL reads the class of the other end from its /sys, if the address is there.
    "xgmi": ("target", "count"),
    "pcilink": ("target",),
}
# Attributes that NCCL itself sets: with those of the file they must not exceed MAX_ATTRIBUTES (xmlGetNextAttrIndex).
FILLED: dict[str, tuple[str, ...]] = {
    "cpu": ("host_hash", "numaid", "affinity", "arch", "vendor", "familyid", "modelid"),
    "pci": (
        "busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width",
    ),
    "gpu": ("dev", "sm", "rank", "gdr", "keep", "mlopart"),
    "net": (
        "name", "keep", "dev", "latency", "speed", "port", "guid", "rail", "plane", "maxconn", "gdr", "net", "coll",
        "gin", "rma",
    ),
}  # fmt: skip
# NCCL reads these with strtol or strtoull, which return 0 for anything else.
INTEGERS: dict[str, tuple[str, ...]] = {
    "system": ("version",),
    "cpu": ("numaid", "familyid", "modelid"),
    "gpu": ("dev", "sm", "rank", "gdr"),
    "net": ("dev", "speed", "port", "guid", "maxconn", "gdr", "coll"),
    "nvlink": ("count",),
    "c2c": ("bw", "count"),
    "xgmi": ("count",),
}
# A leading 0 would make it octal.
INTEGER = re.compile(r"-?(0x[0-9a-fA-F]+|0|[1-9]\d*)")
# NCCL compares addresses as text with the form that int64ToBusId and the kernel write: lower case, four domain digits.
ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
CLASS = re.compile(r"0x[0-9a-f]{2,6}")
ID = re.compile(r"0x[0-9a-fA-F]{1,4}")
IDS = ("vendor", "device", "subsystem_vendor", "subsystem_device")
# kvDictPciClass, by the beginning of a class: these are leaves of the tree, whose children NCCL ignores. Anything else
# is a switch for NCCL.
ENDS = {"0x068000": "nvswitch", "0x068001": "other", "0x03": "gpu", "0x02": "nic"}
# RCCL's table has one more, that of AMD Instinct GPUs since MI300.
RCCL_ENDS = {**ENDS, "0x120000": "gpu"}
BRIDGE = 0x060400
# kvDictCpuArch: the beginning of an architecture, and the kernel's name for it.
ARCHITECTURES = {"x86_64": "x86_64", "arm64": "aarch64", "ppc64": "ppc64le"}
# kvDictCpuVendor.
VENDORS = ("GenuineIntel", "AuthenticAMD", "CentaurHauls", "  Shanghai  ")
# cpuset.h: words of 32 bits in hexadecimal digits, the highest first; CPU_SETSIZE of the C library is 1024.
AFFINITY = re.compile(r"[0-9a-f]{1,8}(,[0-9a-f]{1,8}){0,31}")
# The guid of a socket device is the number of the device (net_socket.cc); that of an RDMA device is an EUI-64.
LAST_SOCKET_GUID = 0xFFFF


def check_nccl(text: str) -> None:
    """Raise TopologyError if NCCL would refuse the file, skip a part of it, or misread a value."""
    system = _checked(text)
    if system.dialect is not NCCL:
        raise _error(system, f"version is {system.dialect.version}, but NCCL reads {NCCL.version} only")
    seen: set[str] = set()
    for element in _all(system):
        busid = element.attributes.get("busid", "") if element.tag == "pci" else ""
        if busid in seen:
            raise _error(element, f"busid {busid} is listed twice, and NCCL finds only the first")
        seen.update({busid} - {""})


def read_nccl(text: str) -> Host:
    """Return the host or guest that a topology file of NCCL or RCCL describes.

    A switch that is listed once for each of its branches (RCCL's models have some) counts as one switch. If other
    elements share a busid, the first is read, and a note names those left out. Raises TopologyError for everything else
    that ``check_nccl`` refuses, and for an inconsistent topology.
    """
    system = _checked(text)
    nodes: list[NumaNode] = []
    complexes: list[RootComplex] = []
    tree = _Tree()
    for cpu in system.children:
        number = int(cpu.attributes["numaid"])
        # -1 is the kernel's "not known".
        node = number if number >= 0 else None
        if node is not None:
            cpus = _cpus(cpu.attributes.get("affinity", ""))
            nodes.append(NumaNode(node, cpus, [[cpu_number] for cpu_number in cpus], 0))
        pci_elements = cpu.all("pci")
        if pci_elements:
            # The file has no root bus: the bus of the first function below stands in for it.
            domain, bus, _device, _function = address_key(pci_elements[0].attributes["busid"])
            complexes.append(RootComplex(f"cpu{number}", domain, bus, node))
            for element in pci_elements:
                tree.read(element, complexes[-1], None)
    first = system.children[0].attributes if system.children else {}
    arch = first.get("arch", "")
    architectures = [name for start, name in ARCHITECTURES.items() if arch.startswith(start)]
    host = Host(
        numa_nodes=sorted(nodes, key=lambda item: item.id),
        root_complexes=complexes,
        functions=sorted(tree.functions.values(), key=lambda item: address_key(item.address)),
        cpu=Cpu(architectures[0] if architectures else None, first.get("vendor")),
        source="nccl",
        notes=tree.notes,
    )
    check(host)
    return host


class _Tree:
    """Reader that collects the functions in one pass down the ``pci`` elements, and notes about those left out."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.notes: list[str] = []
        self._lines: dict[str, int] = {}

    def read(self, element: Element, root_complex: RootComplex, parent: Function | None) -> None:
        function = _function(element, root_complex, parent)
        first_function = self.functions.get(function.address)
        if first_function is None:
            self.functions[function.address] = first_function = function
            self._lines[function.address] = element.line
        elif first_function.kind != "bridge" or function != first_function:
            self.notes.append(
                f"NCCL topology, line {element.line}: the {function.kind} {function.address} and all below it are left "
                f"out, line {self._lines[function.address]} has the address already"
            )
            return
        for child in element.all("pci"):
            self.read(child, root_complex, first_function)


def _function(element: Element, root_complex: RootComplex, parent: Function | None) -> Function:
    attributes = element.attributes
    vendor = _id(attributes, "vendor")
    subsystem = [int(attributes[name], 16) if name in attributes else None for name in IDS[2:]]
    class_code, kind_of = _class(element, vendor, _id(attributes, "device"))
    function = Function(
        address=attributes["busid"],
        root_complex=root_complex.name,
        parent=parent.address if parent else None,
        class_code=class_code,
        vendor_id=vendor,
        device_id=_id(attributes, "device"),
        kind=kind_of,
        port_type="switch_upstream" if kind_of == "bridge" else None,
        subsystem_vendor_id=subsystem[0],
        subsystem_device_id=subsystem[1],
        numa_node=root_complex.numa_node,
        link=_link(attributes),
    )
    for net in (net for nic in element.all("nic") for net in nic.children):
        socket = int(net.attributes.get("guid", "0"), 0) <= LAST_SOCKET_GUID
        function.interfaces.setdefault("net" if socket else "rdma", []).append(net.attributes["name"])
    return function


def _class(element: Element, vendor: int, device: int) -> tuple[int, str]:
    """Return class code and kind, from the file's class or else from the elements below."""
    text = element.attributes.get("class", "")
    code = int(text[2:].ljust(6, "0"), 16) if text else 0
    if element.all("pci"):
        return code or BRIDGE, "bridge"
    if element.all("gpu"):
        return code or 0x030000, "gpu"
    if element.all("nic"):
        return code or 0x020000, "nic"
    return code, "nvswitch" if text == "0x068000" else kind(code, vendor, device)


def _link(attributes: dict[str, str]) -> Link | None:
    """Return the link: NCCL writes its maximum (max_link_speed and max_link_width), the lesser of its two ends."""
    speed = _speed(attributes.get("link_speed", ""))
    width = int(attributes.get("link_width") or "0") or None
    return Link(None, None, speed, width) if speed or width else None


def _speed(text: str) -> float | None:
    return next((speed for start, speed in LINK_SPEEDS.items() if text.startswith(start)), None)


def _cpus(mask: str) -> list[int]:
    number = 0
    for word in mask.split(",") if mask else []:
        number = number << 32 | int(word, 16)
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]


def _id(attributes: dict[str, str], name: str) -> int:
    return int(attributes.get(name, "0x0"), 16)


# The rules --------------------------------------------------------------------------------------------------------


def _checked(text: str) -> Element:
    system = parse(text)
    numaids: set[str] = set()
    for element in _all(system):
        _check(element)
        if element.tag == "cpu":
            if element.attributes["numaid"] in numaids:
                numaid = element.attributes["numaid"]
                raise _error(element, f"numaid {numaid} is listed twice, and NCCL finds only the first")
            numaids.add(element.attributes["numaid"])
    if int(system.attributes["version"], 0) != system.dialect.version:
        raise _error(system, f"version is {system.attributes['version']}, but NCCL reads {VERSIONS}")
    return system


def _all(element: Element) -> Iterator[Element]:
    yield element
    for child in element.children:
        yield from _all(child)


def _check(element: Element) -> None:
    attributes = element.attributes
    missing = [name for name in REQUIRED.get(element.tag, ()) if name not in attributes]
    if missing:
        raise _error(element, f"{missing[0]} is missing")
    filled = (*FILLED.get(element.tag, ()), *element.dialect.filled.get(element.tag, ()))
    places = {*attributes, *filled}
    if len(places) > MAX_ATTRIBUTES:
        raise _error(element, f"with those that NCCL adds it has {len(places)} attributes, more than {MAX_ATTRIBUTES}")
    for name in INTEGERS.get(element.tag, ()):
        if name in attributes and not INTEGER.fullmatch(attributes[name]):
            raise _error(
                element, f"{name} {attributes[name]!r} is not a number, and NCCL reads it as 0 or a part of it"
            )
    if element.tag == "cpu":
        _check_cpu(element)
    elif element.tag == "pci":
        _check_pci(element)


def _check_cpu(cpu: Element) -> None:
    attributes = cpu.attributes
    if attributes["numaid"] != str(int(attributes["numaid"], 0)):
        raise _error(
            cpu, f"numaid {attributes['numaid']!r} is not written as the kernel writes it, so NCCL does not find it"
        )
    if "affinity" in attributes and not AFFINITY.fullmatch(attributes["affinity"]):
        raise _error(cpu, f"affinity {attributes['affinity']!r} is not a mask in words of up to 8 digits (0-9, a-f)")
    arch = attributes.get("arch")
    if arch is not None and not arch.startswith(tuple(ARCHITECTURES)):
        raise _error(cpu, f"arch {arch!r} is not one of {', '.join(ARCHITECTURES)}; NCCL treats it as unknown")
    if "familyid" in attributes and "modelid" not in attributes and attributes.get("vendor") != "AuthenticAMD":
        raise _error(cpu, "familyid without modelid: NCCL fills in both or none, and stops without modelid on Intel")


def _check_pci(pci: Element) -> None:
    attributes = pci.attributes
    if not ADDRESS.fullmatch(attributes["busid"]):
        raise _error(pci, f"busid {attributes['busid']!r} is not a PCI address in lower case (0000:3b:00.0)")
    class_text = attributes.get("class")
    if class_text is not None:
        if not CLASS.fullmatch(class_text):
            raise _error(pci, f"class {class_text!r} is not 0x and digits (0-9, a-f); NCCL treats it as a switch")
        ends = RCCL_ENDS if pci.dialect is RCCL else ENDS
        if pci.all("pci") and class_text.startswith(tuple(ends)):
            raise _error(pci, f"class {class_text} is a device's: NCCL does not look at the pci elements below it")
    for name in IDS:
        if name in attributes and not ID.fullmatch(attributes[name]):
            raise _error(pci, f"{name} {attributes[name]!r} is not an id (0x10de)")
    # NCCL writes an empty value for a device that is not in /sys, and takes it for 8 GT/s, 16 lanes.
    speed, width = attributes.get("link_speed", ""), attributes.get("link_width", "")
    if speed and _speed(speed) is None:
        speeds = ", ".join(LINK_SPEEDS)
        raise _error(
            pci, f"link_speed {speed!r} is not in NCCL's table and is treated as 8 GT/s; the table has {speeds}"
        )
    if width and not re.fullmatch(r"0|[1-9]\d*", width):
        raise _error(pci, f"link_width {width!r} is not a number of lanes")
    if len(pci.all("nic")) > 1:
        raise _error(pci, "has several <nic>, and NCCL uses only the first")


def _error(element: Element, reason: str) -> TopologyError:
    busid = element.attributes.get("busid")
    name = f"<{element.tag}{f' {busid}' if busid else ''}>"
    return TopologyError(f"NCCL topology, line {element.line}: {name}: {reason}")
