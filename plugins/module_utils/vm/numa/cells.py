# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NUMA cells of a guest: their host nodes, memory and CPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.whole_host import serves
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

# With more vCPUs, an x86 guest needs an IOMMU that remaps interrupts in extended interrupt mode (APIC ids of 8 bits):
# QEMU_MAX_VCPUS_WITHOUT_EIM of libvirt src/qemu/qemu_validate.c, "more than 255 vCPUs require extended interrupt mode".
VCPUS_WITHOUT_REMAPPING = 255


@dataclass
class Cell:
    """A guest NUMA cell. ``cpus`` are host CPUs, one for each of ``vcpus`` in the same order (empty: not pinned).

    ``distances`` maps cell id (as text) to the ACPI SLIT distance.
    """

    id: int
    host_node: int
    memory_mib: int
    vcpus: list[int]
    cpus: list[int]
    distances: dict[str, int]


@dataclass
class Share:
    """The use of the hardware threads of the host.

    Of all ``threads``, the guest uses ``vcpus`` (if they are pinned). On the nodes of the cells, ``kept`` are kept for
    the host, ``taken`` are used by other virtual machines, and ``free`` are free; ``elsewhere`` are on other nodes.
    ``vcpu_limit`` is the most vCPUs that the guest can have, ``memory_mib`` is all memory of the host.
    """

    threads: int
    vcpus: int
    kept: int
    taken: int
    free: int
    elsewhere: int
    vcpu_limit: int
    nodes_without_cell: list[int]
    memory_mib: int


@dataclass
class Processors:
    """The cells and what they share. Emulator and I/O threads run on the host's ``kept_cpus`` (empty: not pinned)."""

    cells: list[Cell]
    threads: int  # hardware threads per core that the guest sees
    kept_cpus: list[int]
    share: Share


def arrange(
    spec: DomainSpec, host: Host, ids: list[int], taken_cpus: set[int], held_cpus: set[int], max_vcpus: int
) -> Processors:
    """Return the cells for ``spec`` on the nodes ``ids``. ``held_cpus``, its CPUs today, are kept where they still fit.

    Raises DomainError if memory or CPUs cannot be divided equally, or do not suffice.
    """
    nodes = [node for node in host.numa_nodes if node.id in ids]
    nodes.sort(key=lambda node: node.id)
    memory_mib = _memory(spec, nodes, host)

    cores, kept = {}, []
    for node in nodes:
        siblings = sorted(node.siblings or [[cpu] for cpu in node.cpus])
        kept += [cpu for core in siblings[: spec.host_cores_per_node] for cpu in core]
        free = [core for core in siblings[spec.host_cores_per_node :] if not taken_cpus.intersection(core)]
        # A stable order: first the cores that the virtual machine has today, then the others, both ascending.
        cores[node.id] = sorted(free, key=lambda core: (not held_cpus.issuperset(core), core))
    limit = max_vcpus if spec.remaps_interrupts else min(max_vcpus, VCPUS_WITHOUT_REMAPPING)
    count, threads = _vcpus(spec, nodes, cores, limit)

    cells, number = [], 0
    for index, node in enumerate(nodes):
        cpus = sorted_cores(cores[node.id], count, threads)
        cells.append(
            Cell(
                id=index,
                host_node=node.id,
                memory_mib=memory_mib,
                vcpus=list(range(number, number + count)),
                cpus=cpus if spec.pin_cpus else [],
                distances={
                    str(at): node.distances.get(str(other.id), 10 if at == index else 20)
                    for at, other in enumerate(nodes)
                },
            )
        )
        number += count
    share = _share(host, nodes, cores, kept, count * len(nodes), limit)
    return Processors(cells, threads, sorted(kept) if spec.pin_cpus else [], share)


def _share(
    host: Host, nodes: list[NumaNode], cores: dict[int, list[list[int]]], kept: list[int], vcpus: int, limit: int
) -> Share:
    here = sum(len(node.cpus) for node in nodes)
    free = sum(len(core) for each in cores.values() for core in each)
    return Share(
        threads=sum(len(node.cpus) for node in host.numa_nodes),
        vcpus=vcpus,
        kept=len(kept),
        taken=here - free - len(kept),
        free=max(free - vcpus, 0),
        elsewhere=sum(len(node.cpus) for node in host.numa_nodes if node not in nodes),
        vcpu_limit=limit,
        nodes_without_cell=[node.id for node in host.numa_nodes if serves(node) and node not in nodes],
        memory_mib=sum(node.memory_bytes for node in host.numa_nodes) // MIB,
    )


def sorted_cores(cores: list[list[int]], count: int, threads: int) -> list[int]:
    """Return ``count`` CPUs of the first cores, ascending by core, siblings beside each other."""
    if threads > 1:
        chosen = sorted(cores[: count // threads])
        return [cpu for core in chosen for cpu in core]
    # First one CPU of each core, then their siblings.
    rounds = [core[turn] for turn in range(max(map(len, cores), default=0)) for core in cores if turn < len(core)]
    return sorted(rounds[:count])


def _memory(spec: DomainSpec, nodes: list[NumaNode], host: Host) -> int:
    if spec.memory_mib <= 0:
        raise DomainError("memory_mib is missing", "set the amount of memory", domain=spec.name)
    able = nodes if spec.strict_memory else host.numa_nodes
    there = {node.id: node.memory_bytes // MIB for node in able}
    if spec.memory_mib > sum(there.values()):
        whose = "the NUMA nodes that it is bound to have" if spec.strict_memory else "this host has"
        each = ", ".join(f"node {node} {memory_mib}" for node, memory_mib in sorted(there.items()))
        raise DomainError(
            f"memory_mib {spec.memory_mib} is more than {whose}: {sum(there.values())} MiB ({each})",
            "give it less memory",
            domain=spec.name,
        )
    cells = len(nodes)
    step = cells * max(spec.huge_page_mib, 1)
    if spec.memory_mib % step:
        pages = f" in huge pages of {spec.huge_page_mib} MiB" if spec.huge_page_mib else ""
        lower, upper = spec.memory_mib // step * step, (spec.memory_mib // step + 1) * step
        near = f"{lower} or {upper}" if lower else str(upper)
        raise DomainError(
            f"memory_mib {spec.memory_mib} cannot be divided evenly among {cells} NUMA "
            f"cell{'s' if cells != 1 else ''}{pages}",
            f"use {near}",
            domain=spec.name,
        )
    return spec.memory_mib // cells


def _vcpus(spec: DomainSpec, nodes: list[NumaNode], cores: dict[int, list[list[int]]], limit: int) -> tuple[int, int]:
    """Return the vCPUs of each cell (the same in all, so that sockets are equal), and the threads per core."""
    widths = {len(core) for node in nodes for core in cores[node.id]}
    width = widths.pop() if len(widths) == 1 else 1
    left = {node.id: sum(len(core) for core in cores[node.id]) for node in nodes}
    scarce = min(nodes, key=lambda node: (left[node.id], node.id)).id
    if spec.vcpus is None:
        count = min(left[scarce], limit // len(nodes)) // width * width
        if count == 0:
            raise DomainError(
                f"no CPU is left on NUMA node {scarce} {_kept(spec)}", "lower vcpus or the reserve", domain=spec.name
            )
        return count, width
    if spec.vcpus > limit:
        lifts = limit == VCPUS_WITHOUT_REMAPPING and not spec.remaps_interrupts
        remedy = f"interrupt_remapping lifts the limit of {limit}" if lifts else "request fewer"
        raise DomainError(f"vcpus {spec.vcpus} is over the limit of {limit}", remedy, domain=spec.name)
    if spec.vcpus % len(nodes):
        raise DomainError(
            f"{spec.vcpus} vCPUs cannot be divided evenly among its {len(nodes)} NUMA cells (host nodes "
            f"{', '.join(str(node.id) for node in nodes)})",
            f"use a multiple of {len(nodes)}",
            domain=spec.name,
        )
    count = spec.vcpus // len(nodes)
    if spec.pin_cpus and count > left[scarce]:
        raise DomainError(
            f"needs {count} CPUs of NUMA node {scarce}, but {left[scarce]} are left {_kept(spec)}",
            "lower vcpus or the reserve",
            domain=spec.name,
        )
    return count, width if count % width == 0 else 1


def _kept(spec: DomainSpec) -> str:
    return (
        f"(host_cores_per_node keeps {spec.host_cores_per_node} cores for the host, other virtual machines have theirs)"
    )
