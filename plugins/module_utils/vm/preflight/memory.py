# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks of memory: the host's total, and the free part for the domains that start. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Hypervisor
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    Finding,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec


def hugetlbfs(spec: DomainSpec, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Find a size of huge pages without a mounted hugetlbfs."""
    size = spec.huge_page_mib
    if size and size not in hypervisor.hugetlbfs_mib:
        yield Finding(
            spec.name,
            f"no hugetlbfs is mounted for pages of {size} MiB",
            "QEMU takes its memory from there",
            f"mount one (mount -t hugetlbfs -o pagesize={size}M none /dev/hugepages-{size}M) and restart libvirt",
        )


def of_host(plans: list[DomainPlan], host: Host) -> Iterator[Finding]:
    """Find memory that the host lacks even if only ``plans`` run: for each node, and for all together.

    Memory that is bound to a node counts for that node. Memory of a guest with devices, locked memory and huge pages
    are never swapped, and count in the total.
    """
    unswappable_mib = {plan.name: plan.spec.memory_mib for plan in plans if plan.chosen.all() or plan.spec.locked}
    bound: dict[int, dict[str, int]] = {}
    for plan in plans:
        for cell in plan.processors.cells if plan.spec.strict_memory else []:
            bound.setdefault(cell.host_node, {})[plan.name] = cell.memory_mib
    narrow = False
    for node in sorted(host.numa_nodes, key=lambda node: node.id):
        demand_mib = bound.get(node.id, {})
        if sum(demand_mib.values()) > node.memory_bytes // MIB:
            narrow = True
            yield Finding(
                min(demand_mib) if len(demand_mib) == 1 else "",
                f"strict_memory binds {_sum(demand_mib)} to NUMA node {node.id}, which has {node.memory_bytes // MIB} "
                "MiB",
                "the kernel kills QEMU when it uses memory that does not exist",
                "give it less memory, or turn strict_memory off" if len(demand_mib) == 1 else "give them less memory",
            )
    total_mib = sum(node.memory_bytes for node in host.numa_nodes) // MIB
    if sum(unswappable_mib.values()) > total_mib and not narrow:
        yield Finding(
            min(unswappable_mib) if len(unswappable_mib) == 1 else "",
            f"the virtual machines need {_sum(unswappable_mib)} that is never swapped, but this host has {total_mib} "
            "MiB",
            "QEMU does not start, or the kernel kills it",
            "give them less memory",
        )


def _sum(demand_mib: dict[str, int]) -> str:
    """Return the sum with its parts: "3072 MiB (a 1024, b 2048)"."""
    parts = ", ".join(f"{name} {memory_mib}" for name, memory_mib in sorted(demand_mib.items()))
    return f"{sum(demand_mib.values())} MiB" + (f" ({parts})" if len(demand_mib) > 1 else "")


def free(starting: list[DomainPlan], host: Host) -> Iterator[Finding]:
    """Compare the free memory of each node with the domains about to start, in the order of their start."""
    nodes = {node.id: node for node in host.numa_nodes}
    demand_mib: dict[tuple[int, int], int] = {}
    for plan in starting:
        if not plan.spec.strict_memory and not plan.spec.huge_page_mib:
            continue
        size = plan.spec.huge_page_mib
        for cell in plan.processors.cells:
            node = nodes[cell.host_node]
            demand_before_mib = demand_mib.get((node.id, size), 0)
            demand_mib[node.id, size] = demand_before_mib + cell.memory_mib
            note = f", {demand_before_mib} MiB of which go to virtual machines before it" if demand_before_mib else ""
            if size:
                pages = next((item for item in node.huge_pages if item.size_bytes == size * MIB), None)
                free = pages.free if pages else 0
                if demand_mib[node.id, size] > free * size:
                    yield Finding(
                        plan.name,
                        f"needs {cell.memory_mib // size} huge pages of {size} MiB on NUMA node {node.id}, which "
                        f"has {free} free{note}",
                        "QEMU takes them all at its start",
                        "reserve more (role gpu_host, module hugepages) or give it less memory",
                    )
            elif node.memory_free_bytes is not None and demand_mib[node.id, size] * MIB > node.memory_free_bytes:
                yield Finding(
                    plan.name,
                    f"needs {cell.memory_mib} MiB on NUMA node {node.id}, which has "
                    f"{node.memory_free_bytes // MIB} MiB free{note}",
                    "strict memory comes only from that node",
                    "give it less memory, or turn strict_memory off",
                )
