# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts made up by hypothesis, and a request for all devices of a host."""

from __future__ import annotations

from itertools import chain
from typing import Any

from hypothesis import strategies as st
from machines import MIB, bridge, endpoint

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Bar,
    Cpu,
    Function,
    Host,
    HugePages,
    NumaNode,
    RootComplex,
    Sriov,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.places import address_key

# Buses of one root complex; six root complexes fit into a PCI domain, and further ones are in other domains.
BUSES_EACH = 40


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    """Draw hosts: 1-4 NUMA nodes, 1-8 root complexes, switches on up to three levels, GPUs, NICs with VFs, NVMe drives.

    Some nodes have no CPUs or no memory, some devices have no node or another one than their root complex, some share a
    group.
    """
    threads = draw(st.sampled_from([1, 2]))
    count = draw(st.integers(1, 4))
    cores = draw(st.integers(4, 12))
    nodes = []
    for node in range(count):
        siblings = [[(node * cores + core) + turn * count * cores for turn in range(threads)] for core in range(cores)]
        distances = {str(other): 10 if other == node else 20 + (other + node) % 3 for other in range(count)}
        cpus = sorted(chain.from_iterable(siblings))
        nodes.append(NumaNode(node, cpus, siblings, 1 << 38, 1 << 38, [HugePages(1024 * MIB, 200, 200)], distances))
    for node in nodes[1:]:
        lacks = draw(st.sampled_from([None, None, None, "CPUs", "memory"]))
        if lacks == "CPUs":
            node.cpus, node.siblings = [], []
        elif lacks == "memory":
            node.memory_bytes, node.huge_pages = 0, []
    functions: list[Function] = []
    complexes = []
    for number in range(draw(st.integers(1, 8))):
        node = draw(st.sampled_from([None, *range(count)]))
        domain = number // 6 if draw(st.booleans()) else 0x10 + number
        first = number % 6 * BUSES_EACH
        root = RootComplex(f"pci{domain:04x}:{first:02x}", domain, first, node)
        complexes.append(root)
        below = _Below(draw, functions, root, list(range(first + 1, first + BUSES_EACH)))
        for slot in range(draw(st.integers(1, 3))):
            below.port(below.address(first, slot), None, "root_port", draw(st.integers(0, 3)))
    for group, function in enumerate(functions):
        if function.iommu_group is not None:
            function.iommu_group = group
            if draw(st.integers(0, 9)) == 0:
                function.iommu_group = max(group - 1, 0)
        if function.kind != "bridge" and draw(st.integers(0, 9)) == 0:
            function.numa_node = draw(st.sampled_from([None, *range(count)]))
    functions.sort(key=lambda function: address_key(function.address))
    return Host(nodes, complexes, functions, Cpu("x86_64", "GenuineIntel", None, "vmx", 52))


class _Below:
    """A builder of everything below one root complex; ``free`` are the remaining buses, assigned depth first."""

    def __init__(self, draw: st.DrawFn, functions: list[Function], root: RootComplex, free: list[int]) -> None:
        self._draw, self._functions, self._root, self._free = draw, functions, root, free
        self._last = root.bus

    def address(self, bus: int, slot: int, function: int = 0) -> str:
        return f"{self._root.domain:04x}:{bus:02x}:{slot:02x}.{function}"

    def port(self, address: str, parent: str | None, role: str, depth: int) -> None:
        """Add a root or downstream port, and behind it a device, or a switch of at most ``depth`` levels."""
        port = bridge(address, parent, self._root.name, self._draw(st.sampled_from([role, role, None])))
        self._functions.append(port)
        port.secondary_bus = self._bus()
        if depth and len(self._free) > 8:
            self._switch(port, depth)
        else:
            self._device(port)
        port.subordinate_bus = self._last

    def _bus(self) -> int:
        self._last = self._free.pop(0)
        return self._last

    def _switch(self, port: Function, depth: int) -> None:
        bus = port.secondary_bus or 0
        up = bridge(self.address(bus, 0), port.address, self._root.name, "switch_upstream")
        self._functions.append(up)
        if self._draw(st.integers(0, 9)) == 0:
            self._endpoint(self.address(bus, 0, 1), port.address, "nic")
        up.secondary_bus = self._bus()
        for slot in range(self._draw(st.integers(1, 3))):
            if len(self._free) > 4:
                inner = self._draw(st.integers(0, depth - 1))
                self.port(self.address(up.secondary_bus, slot), up.address, "switch_downstream", inner)
        up.subordinate_bus = self._last

    def _device(self, port: Function) -> None:
        bus = port.secondary_bus or 0
        kind = self._draw(st.sampled_from(["gpu", "nic", "nvme"]))
        one = self._endpoint(self.address(bus, 0), port.address, kind)
        if kind == "nic" and self._draw(st.booleans()):
            one.sriov = Sriov(16, self._draw(st.integers(0, 16)))
            for number in range(one.sriov.now):
                address = self.address(bus, 1 + number // 8, number % 8)
                one.sriov.vfs.append(address)
                self._endpoint(address, port.address, kind, physical_function=one.address)
        elif kind == "nic":
            for function in range(1, self._draw(st.integers(1, 3))):
                self._endpoint(self.address(bus, 0, function), port.address, kind)

    def _endpoint(self, address: str, parent: str, kind: str, **more: Any) -> Function:
        size = 2 ** self._draw(st.integers(14, 34))
        bars = [Bar(0, size, "memory", 64, True), Bar(2, 4096, "memory", 32, False)]
        made = endpoint(address, parent, self._root.name, kind, numa_node=self._root.numa_node, bars=bars, **more)
        self._functions.append(made)
        return made


def whole(host: Host) -> list[dict[str, Any]]:
    """Return a request for one virtual machine with all devices."""

    def of(kind: str) -> list[str]:
        return [item.address for item in host.functions if item.kind == kind and not (item.sriov and item.sriov.now)]

    return [
        {
            "name": "all",
            "memory_mib": 12 * 1024,
            "huge_page_mib": 1024,
            "gpus": {"addresses": of("gpu")},
            "nics": {"addresses": of("nic")},
            "nvme": {"addresses": of("nvme")},
        }
    ]
