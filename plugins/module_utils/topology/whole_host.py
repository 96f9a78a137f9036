# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The part of a host that its virtual machine with the whole host gets: NUMA nodes, memory, NICs. Pure.

Both the host's settings and the virtual machine's follow from these functions, so that they cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    is_virtual,
    possible_management,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, NumaNode

# The guest's share of a node's memory without huge pages. inventories/vela has a little more: 704 of 768 GiB.
MEMORY_SHARE = 7 / 8
# Page sizes of x86_64, the largest first; 0 is ordinary memory.
PAGE_SIZES_MIB = (1024, 2)
# Huge pages that take less than this share of a node were not reserved for a guest with the whole host.
PAGES_SHARE = 1 / 2
MIB = 1 << 20
# The config space of conventional PCI; ACS is a capability beyond it.
CONVENTIONAL_BYTES = 256


@dataclass(frozen=True)
class GuestMemory:
    """The memory of the guest: the same number of MiB on each of ``nodes``, in pages of ``page_mib``."""

    nodes: tuple[int, ...]
    page_mib: int
    node_mib: int

    @property
    def total_mib(self) -> int:
        """Return the memory of all nodes."""
        return self.node_mib * len(self.nodes)

    def pages(self) -> list[dict[str, int]]:
        """Return the huge pages as gpu_host_hugepages has them; none for ordinary memory."""
        if not self.page_mib:
            return []
        count = -(-self.node_mib // self.page_mib)
        return [{"node": node, "size_mib": self.page_mib, "count": count} for node in self.nodes]


def serves(node: NumaNode) -> bool:
    """Return True if a guest's cell can be on the node: it has CPUs and memory."""
    return bool(node.cpus) and node.memory_bytes > 0


def memory(host: Host, memory_mib: int | None = None, page_mib: int = PAGE_SIZES_MIB[0]) -> GuestMemory:
    """Return the memory of a guest on every node that has CPUs and memory.

    ``memory_mib`` in total if it is given. Otherwise the huge pages of these nodes, if they are the same on each and at
    least ``PAGES_SHARE`` of the largest node; otherwise ``MEMORY_SHARE`` of the smallest node. So the result stays
    after its own pages were reserved, although Linux counts a little more or less memory after an update.
    ``page_mib`` is the largest size of a page; a node with less memory than such a page gets smaller ones. Raises
    TopologyError if the memory of the nodes is not known.
    """
    nodes = [node for node in host.numa_nodes if serves(node)]
    if not nodes:
        raise TopologyError(
            "the topology does not contain the memory of its NUMA nodes", "read it on the host with host_topology_info"
        )
    ids = tuple(sorted(node.id for node in nodes))
    if memory_mib:
        return GuestMemory(ids, page_mib, -(-memory_mib // len(nodes)))
    sizes = [size for size in PAGE_SIZES_MIB if size <= page_mib]
    for size in sizes:
        counts = {_pages(node, size) for node in nodes}
        reserved_mib = min(counts) * size
        if len(counts) == 1 and reserved_mib * MIB >= PAGES_SHARE * max(node.memory_bytes for node in nodes):
            return GuestMemory(ids, size, reserved_mib)
    share_mib = int(min(node.memory_bytes for node in nodes) * MEMORY_SHARE) // MIB
    size = next((size for size in sizes if share_mib >= size), sizes[-1] if sizes else 0)
    return GuestMemory(ids, size, share_mib // (size or 1) * (size or 1))


def whole_gpus(host: Host) -> list[Function]:
    """Return the GPUs, by address. Those that have virtual functions are among them, though no guest can have them."""
    return sorted((item for item in host.functions if item.kind == "gpu" and not is_virtual(item)), key=_address)


def nics_to_divide(host: Host) -> list[Function]:
    """Return the NICs of which the guest gets the first virtual function, by address.

    They can have virtual functions, the host itself does not use them, and no GPU is in their IOMMU group.
    """
    nics_of_gpus = nics_with_gpus(host)
    return [
        nic
        for nic in _free_nics(host)
        if nic not in nics_of_gpus
        and nic.sriov is not None
        and nic.sriov.total
        # Without VFs a driver has to make them, and vfio-pci makes none.
        and (nic.sriov.now or nic.driver not in (None, "vfio-pci"))
    ]


def nics_with_gpus(host: Host) -> list[Function]:
    """Return the NICs in the IOMMU group of a GPU, by address: the guest gets them whole, because it has the group."""
    groups = {_group(host, gpu) for gpu in whole_gpus(host)}
    return [nic for nic in _free_nics(host) if _group(host, nic) in groups]


def _group(host: Host, function: Function) -> int | str:
    """Return the IOMMU group of a function; while the IOMMU is off, the place that its members have in common.

    Functions below a switch whose downstream ports have no ACS are one group (Linux drivers/iommu/iommu.c,
    pci_device_group). Where config space was not read, a function counts as alone.
    """
    if function.iommu_group is not None:
        return function.iommu_group
    ports = host.path(function.address)[:-1]
    for parent, port in zip(ports, ports[1:]):
        if port.port_type == "switch_downstream" and port.acs is None and port.config_bytes > CONVENTIONAL_BYTES:
            return parent.address
    return function.address


def _free_nics(host: Host) -> list[Function]:
    """Return the physical functions of NICs that the host does not use and that do not manage NVSwitches."""
    management = possible_management(host)
    return sorted(
        (
            item
            for item in host.functions
            if item.kind == "nic" and not is_virtual(item) and not item.used_by_host and item not in management
        ),
        key=_address,
    )


def _address(function: Function) -> str:
    return function.address


def _pages(node: NumaNode, size_mib: int) -> int:
    return sum(pages.total for pages in node.huge_pages if pages.size_bytes == size_mib * MIB)
