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


def of_nodes(host: Host, specs: list[DomainSpec], others: list[Holdings], taken_cpus: set[int]) -> Capacities:
    """Return the capacity by (kind, NUMA node), in MiB or CPUs. ``others`` are the domains that are not planned."""
    capacities: Capacities = {}
    kept = host_cores.kept(host, max((spec.host_cores_per_socket for spec in specs), default=0))
    for size in sorted({spec.huge_page_mib for spec in specs if spec.huge_page_mib or spec.strict_memory}):
        reserved = {
            node.id: pages.total * size
            for node in host.numa_nodes
            for pages in node.huge_pages
            if pages.size_bytes == size * MIB
        }
        for node in host.numa_nodes:
            if size and any(reserved.values()):
                there = reserved.get(node.id, 0)
            else:
                # Ordinary memory, or the memory that could be reserved if there are no huge pages of this size yet.
                there = (node.memory_bytes - sum(pages.total * pages.size_bytes for pages in node.huge_pages)) // MIB
            taken = sum(held.memory_mib.get(node.id, 0) for held in others if held.page_mib in (size, None))
            capacities[size, node.id] = there - taken
    for node in host.numa_nodes:
        cores = [core for core in host_cores.of_node(node) if core not in kept[node.id]]
        capacities[CPUS, node.id] = sum(len(core) for core in cores if not taken_cpus.intersection(core))
    return capacities


def asked(spec: DomainSpec, capacities: Capacities) -> list[tuple[Kind, int]]:
    """Return the total that ``spec`` requests, by kind."""
    wants: list[tuple[Kind, int]] = []
    if spec.huge_page_mib or spec.strict_memory:
        wants.append((spec.huge_page_mib, spec.memory_mib))
    if spec.pin_cpus:
        # A spec without a number takes the remaining CPUs, so two such specs should not share a node.
        most = max((number for (kind, _node), number in capacities.items() if kind == CPUS), default=0)
        wants.append((CPUS, spec.vcpus if spec.vcpus is not None else most // 2 + 1))
    return wants


def overflow(
    capacities: Capacities, used: Capacities, wants: Iterable[tuple[Kind, int]], nodes: Iterable[int]
) -> tuple[int, Capacities]:
    """Return how much ``wants`` adds to the overflow of the nodes, in 1/1000 of their capacity, and the use afterwards.

    The amounts in ``wants`` are spread evenly over ``nodes``.
    """
    spread = sorted(nodes)
    after = dict(used)
    worse = 0
    for kind, amount in wants:
        for node in spread:
            share = -(-amount // len(spread))
            there = max(capacities.get((kind, node), 0), 0)
            before = after.get((kind, node), 0)
            after[kind, node] = before + share
            worse += (max(before + share - there, 0) - max(before - there, 0)) * 1000 // max(there, 1)
    return worse, after
