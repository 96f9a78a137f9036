# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The capacity of each NUMA node (memory and CPUs) for virtual machines, and what each of them requests. Pure.

This module only helps to choose between places. A request that does not fit is refused by cells.py when it arranges the
cells, and by preflight/checks.py before a start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Union

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import host_cores
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

CPUS = "cpus"
# The kind of a request: CPUS, or the page size of memory in MiB (0: ordinary memory).
Kind = Union[str, int]
# MiB or CPUs by (kind, NUMA node): the capacity of nodes, or the used part of it.
Capacities = dict[tuple[Kind, int], int]


def of_nodes(host: Host, specs: list[DomainSpec], unplanned: list[Holdings], taken_cpus: set[int]) -> Capacities:
    """Return the capacity by (kind, NUMA node), in MiB or CPUs. ``unplanned`` are the domains that are not planned."""
    capacities: Capacities = {}
    host_cores_of_node = host_cores.kept(host, max((spec.host_cores_per_socket for spec in specs), default=0))
    for size in sorted({spec.huge_page_mib for spec in specs if spec.huge_page_mib or spec.strict_memory}):
        reserved = {
            node.id: pages.total * size
            for node in host.numa_nodes
            for pages in node.huge_pages
            if pages.size_bytes == size * MIB
        }
        for node in host.numa_nodes:
            if size and any(reserved.values()):
                capacity_mib = reserved.get(node.id, 0)
            else:
                # Ordinary memory, or the memory that could be reserved if there are no huge pages of this size yet.
                capacity_mib = (
                    node.memory_bytes - sum(pages.total * pages.size_bytes for pages in node.huge_pages)
                ) // MIB
            taken_mib = sum(
                holdings.memory_mib.get(node.id, 0) for holdings in unplanned if holdings.page_mib in (size, None)
            )
            capacities[size, node.id] = capacity_mib - taken_mib
    for node in host.numa_nodes:
        cores = [core for core in host_cores.of_node(node) if core not in host_cores_of_node[node.id]]
        capacities[CPUS, node.id] = sum(len(core) for core in cores if not taken_cpus.intersection(core))
    return capacities


def demand_of(spec: DomainSpec, capacities: Capacities) -> list[tuple[Kind, int]]:
    """Return the total that ``spec`` requests, by kind."""
    demand: list[tuple[Kind, int]] = []
    if spec.huge_page_mib or spec.strict_memory:
        demand.append((spec.huge_page_mib, spec.memory_mib))
    if spec.pin_cpus:
        # A spec without a number takes the remaining CPUs, so two such specs should not share a node.
        max_cpus = max((number for (kind, _node), number in capacities.items() if kind == CPUS), default=0)
        demand.append((CPUS, spec.vcpus if spec.vcpus is not None else max_cpus // 2 + 1))
    return demand


def overflow(
    capacities: Capacities, used: Capacities, demand: Iterable[tuple[Kind, int]], nodes: Iterable[int]
) -> tuple[int, Capacities]:
    """Return what ``demand`` adds to the overflow of the nodes, in 1/1000 of their capacity, and the use afterwards.

    The amounts in ``demand`` are spread evenly over ``nodes``.
    """
    spread = sorted(nodes)
    used_after = dict(used)
    excess = 0
    for kind, amount in demand:
        for node in spread:
            share = -(-amount // len(spread))
            capacity = max(capacities.get((kind, node), 0), 0)
            used_before = used_after.get((kind, node), 0)
            used_after[kind, node] = used_before + share
            excess += (
                (max(used_before + share - capacity, 0) - max(used_before - capacity, 0)) * 1000 // max(capacity, 1)
            )
    return excess, used_after
