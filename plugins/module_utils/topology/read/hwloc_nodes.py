# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NUMA nodes of hwloc XML: CPUs, memory and distances, from objects and matrices of formats 1.x to 3.x.

hwloc lists a memory-only node (HBM, CXL, persistent memory) with the CPUs near it, so that several nodes share CPUs.
The kernel assigns each CPU to one node, and so does this reader: to the node with the fewest CPUs; if several have the
fewest, to ordinary memory before other kinds, then to the lowest number. Pure.

Sources: hwloc's hwloc.dtd (1.x) and hwloc2.dtd, src/topology-xml.c of both, include/hwloc/distances.h.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import LIMIT_CPUS

# hwloc's numbers have 64 bits. (str.isdigit accepts characters that int does not.)
NUMBER = re.compile(r"[0-9]{1,20}")
BITMAP_WORDS = LIMIT_CPUS // 32
# HWLOC_DISTANCES_KIND_FROM_OS of hwloc 2.x: the kernel's own numbers, which are those of the ACPI SLIT.
FROM_OS = 1
# hwloc's values for ordinary memory, from a node's subtype (2.x, 3.x) or an info (1.x).
ORDINARY = ("", "DRAM")
# "1.600000" is the 1.x format's way to write 16 over a base of 10.
DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


def bitmap(text: str) -> list[int]:
    """Return the bits of an hwloc bitmap ("0x00000001,,0xff000000"): words of 32 bits, the highest first.

    Raises TopologyError if it is none, is infinite or has more than ``BITMAP_WORDS``.
    """
    number = 0
    numbers = text.split(",")
    for word in numbers:
        if len(numbers) > BITMAP_WORDS or not re.fullmatch(r"(0x[0-9a-fA-F]{1,8})?", word):
            raise TopologyError(f"{text!r:.60} is not a finite hwloc bitmap")
        number = number << 32 | int(word or "0", 16)
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]


def number(element: ElementTree.Element, name: str) -> int:
    """Return the attribute ``name`` as a number. Raises TopologyError if it is none."""
    text = element.get(name) or ""
    if not NUMBER.fullmatch(text):
        raise TopologyError(f"{element.get('type')} object: {name} is {text!r:.60}, not a number")
    return int(text)


def read_numa_nodes(root: ElementTree.Element, machine: ElementTree.Element) -> list[NumaNode]:
    """Return all NUMA nodes, ascending. A machine without NUMA in the 1.x format has one node 0 with everything."""
    elements = [element for element in machine.iter("object") if element.get("type") == "NUMANode"]
    of_core, packages = _cores(machine), _packages(machine)
    if not elements:
        cpus = _cpus(machine)
        return [NumaNode(0, cpus, _siblings(of_core, cpus), _memory(machine), socket=_socket(packages, cpus))]
    distances = _distances(root) or _distances_of_1(machine)
    owned = _owned(elements)
    nodes = []
    for element in elements:
        node = number(element, "os_index")
        cpus = owned[id(element)]
        nodes.append(
            NumaNode(
                id=node,
                cpus=cpus,
                siblings=_siblings(of_core, cpus),
                memory_bytes=_memory(element),
                distances=distances.get(node, {}),
                socket=_socket(packages, cpus),
            )
        )
    return sorted(nodes, key=lambda node: node.id)


def _cpus(element: ElementTree.Element) -> list[int]:
    """Return the CPUs of an object; the 1.x format can list offline ones too, and says which are online."""
    cpus = bitmap(element.get("cpuset") or "")
    online = element.get("online_cpuset")
    return cpus if online is None else sorted(set(cpus) & set(bitmap(online)))


def _owned(elements: list[ElementTree.Element]) -> dict[int, list[int]]:
    """Return the CPUs that each node owns, by the identity of its element."""
    cpus = {id(element): _cpus(element) for element in elements}

    def claim(element: ElementTree.Element) -> tuple[int, bool, int]:
        return len(cpus[id(element)]), _kind_of_memory(element) not in ORDINARY, number(element, "os_index")

    claimed: set[int] = set()
    owned = {}
    for element in sorted(elements, key=claim):
        owned[id(element)] = [cpu for cpu in cpus[id(element)] if cpu not in claimed]
        claimed.update(cpus[id(element)])
    return owned


def _kind_of_memory(element: ElementTree.Element) -> str:
    infos = {item.get("name"): item.get("value") for item in element.findall("info")}
    return element.get("subtype") or infos.get("Type") or infos.get("DAXType") or ""


def _memory(element: ElementTree.Element) -> int:
    return number(element, "local_memory") if element.get("local_memory") else 0


def _cores(machine: ElementTree.Element) -> dict[int, list[int]]:
    """Return all CPUs of the same core, by CPU."""
    of_core: dict[int, list[int]] = {}
    for core in machine.iter("object"):
        if core.get("type") == "Core":
            units = sorted(number(unit, "os_index") for unit in core.iter("object") if unit.get("type") == "PU")
            of_core.update((cpu, units) for cpu in units)
    return of_core


def _siblings(of_core: dict[int, list[int]], cpus: list[int]) -> list[list[int]]:
    node_cpus = set(cpus)
    siblings = {tuple(cpu for cpu in of_core.get(cpu, [cpu]) if cpu in node_cpus) for cpu in cpus}
    return [list(core) for core in sorted(siblings)]


def _packages(machine: ElementTree.Element) -> dict[int, set[int]]:
    """Return the CPUs of each package that has a number; the 1.x format calls it a socket."""
    elements = [element for element in machine.iter("object") if element.get("type") in ("Package", "Socket")]
    return {number(element, "os_index"): set(_cpus(element)) for element in elements if element.get("os_index")}


def _socket(packages: dict[int, set[int]], cpus: list[int]) -> int | None:
    """Return the package that has all of these CPUs; None if there is none."""
    return next((package for package, of_package in packages.items() if cpus and of_package.issuperset(cpus)), None)


def _distances(root: ElementTree.Element) -> dict[int, dict[str, int]]:
    """Return the distances from each node to each node; empty if the XML has no distances from the kernel."""
    for element in root.findall("distances2[@name='NUMALatency']"):
        kind = number(element, "kind") if element.get("kind") else FROM_OS
        if element.get("indexing", "os") != "os" or not kind & FROM_OS:
            continue
        indexes = " ".join(part.text or "" for part in element.findall("indexes")).split()
        values = " ".join(part.text or "" for part in element.findall("u64values")).split()
        if not all(map(NUMBER.fullmatch, indexes + values)) or len(values) != len(indexes) ** 2:
            raise TopologyError(f"{len(values)} NUMA distances between {len(indexes)} nodes: not one for each pair")
        return _rows([int(index) for index in indexes], [int(value) for value in values])
    return {}


def _distances_of_1(machine: ElementTree.Element) -> dict[int, dict[str, int]]:
    """Return the distances of the 1.x format, which divides the matrices of all kinds of objects by a base.

    A matrix states the depth of its objects below the object that holds it, but not their type. This function uses the
    first matrix that has one number for each pair of the nodes below, and the depth of one of these nodes, and in which
    the distance of each node to itself is 10, as in the kernel's.
    """
    for holder in machine.iter("object"):
        if holder.find("distances") is None:
            continue
        nodes = [(element, depth) for element, depth in _below(holder, 0) if element.get("type") == "NUMANode"]
        for element in holder.findall("distances"):
            base, texts = element.get("latency_base") or "", [item.get("value") or "" for item in element]
            if not all(map(DECIMAL.fullmatch, [base, *texts])) or len(texts) != len(nodes) ** 2:
                continue
            values = [round(float(base) * float(text)) for text in texts]
            diagonal = values[:: len(nodes) + 1]
            if set(diagonal) == {10} and element.get("relative_depth") in {str(depth) for _element, depth in nodes}:
                return _rows([number(node, "os_index") for node, _depth in nodes], values)
    return {}


def _below(element: ElementTree.Element, depth: int) -> list[tuple[ElementTree.Element, int]]:
    """Return all objects below one with their depth, in the order of the document."""
    descendants = []
    for child in element.findall("object"):
        descendants += [(child, depth + 1), *_below(child, depth + 1)]
    return descendants


def _rows(indexes: list[int], values: list[int]) -> dict[int, dict[str, int]]:
    names = [str(index) for index in indexes]
    rows = [values[row * len(indexes) : (row + 1) * len(indexes)] for row in range(len(indexes))]
    return {index: dict(zip(names, row)) for index, row in zip(indexes, rows)}
