# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The request of a virtual machine with a whole host, for a plan without a user's request. Pure."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    is_physical,
    is_virtual,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    Obstacle,
    Surroundings,
    obstacle,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.nodes import serves
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.settings import ALL_NODES

NAME = "whole-host"
# The guest's share of a node's memory without huge pages. inventories/vela has a little more: 704 of 768 GiB.
MEMORY_SHARE = 7 / 8
PAGE_SIZES_MIB = (1024, 2)
# Huge pages that take less than this share of a node were not reserved for a guest with the whole host.
PAGES_SHARE = 1 / 2


def whole_host(host: Host) -> dict[str, Any]:
    """Return a request with all GPUs, NICs and NVMe drives that a guest can have, as an element of ``domains``.

    ``domains`` is the modules' option. If a NIC has virtual functions, the request has the first one. The request is on
    every NUMA node that has CPUs and memory. Its memory is that of the huge pages of these nodes, in equal parts, or
    ``MEMORY_SHARE`` of all memory if less than ``PAGES_SHARE`` is in huge pages. Raises DomainError if the host has no
    GPU, or if its memory is unknown.
    """
    around = Surroundings(host)
    wanted = [function for function in host.functions if _wanted(around, function)]
    obstacles: dict[str, Obstacle] = {}
    # If a device is refused, others of its IOMMU group may have to be refused as well.
    while True:
        own = [function.address for function in wanted]
        found = {function.address: obstacle(around, function, NAME, own) for function in wanted}
        refused = {address: reason for address, reason in found.items() if reason}
        if not refused:
            break
        obstacles.update(refused)
        wanted = [function for function in wanted if function.address not in refused]
    gpus = [function for function in wanted if function.kind == "gpu"]
    if not gpus:
        reasons = [
            f"{address}: {reason}" for address, reason in obstacles.items() if around.functions[address].kind == "gpu"
        ]
        why = "; ".join(reasons) or "it has none"
        raise DomainError(
            f"no GPU of this host can be assigned to a virtual machine ({why})", "specify the domains to plan"
        )
    page_mib, memory_mib = _memory(host)
    given = {
        key: {"addresses": [each.address for each in wanted if each.kind == kind]}
        for kind, key in kinds.SETTINGS.items()
    }
    return {
        "name": NAME,
        **given,
        "numa_nodes": [ALL_NODES],
        "memory_mib": memory_mib,
        "huge_page_mib": page_mib,
    }


def _wanted(around: Surroundings, function: Function) -> bool:
    if function.kind == "gpu":
        # One with virtual functions stays in the list, so that its obstacle is reported.
        return not is_virtual(function)
    if function.kind not in kinds.SETTINGS:
        return False
    above = around.functions.get(function.physical_function or "")
    if above is not None and above.sriov is not None:
        return above.sriov.vfs[:1] == [function.address]
    return is_physical(function)


def _memory(host: Host) -> tuple[int, int]:
    """Return the page size and the total memory of the request, in MiB."""
    nodes = [node for node in host.numa_nodes if serves(node)]
    if not any(node.memory_bytes for node in nodes):
        raise DomainError(
            "the topology does not contain the memory of its NUMA nodes; read it on the host with "
            "host_topology_info, or specify the domains to plan"
        )
    for size_mib in PAGE_SIZES_MIB:
        pages = min(_pages(node, size_mib) for node in nodes)
        if pages * size_mib * MIB >= PAGES_SHARE * max(node.memory_bytes for node in nodes):
            return size_mib, pages * size_mib * len(nodes)
    least_mib = int(min(node.memory_bytes for node in nodes) * MEMORY_SHARE) // MIB
    size_mib = next((size for size in PAGE_SIZES_MIB if least_mib >= size), PAGE_SIZES_MIB[-1])
    return size_mib, least_mib // size_mib * size_mib * len(nodes)


def _pages(node: NumaNode, size_mib: int) -> int:
    return sum(pages.total for pages in node.huge_pages if pages.size_bytes == size_mib * MIB)
