# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NUMA cells of a guest: which host nodes, how much memory of each, which CPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.spec import DomainSpec
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import Function, Host, NumaNode

# Above this an x86 guest needs interrupts remapped by an IOMMU with extended interrupt mode (8-bit APIC ids):
# libvirt refuses "more than 255 vCPUs" without one.
VCPUS_WITHOUT_IOMMU = 255


@dataclass
class Cell:
    """A guest NUMA cell. ``cpus`` are host CPUs, one for each of ``vcpus`` in the same order (none: not pinned).

    ``distances`` maps cell id (as text) to the ACPI SLIT distance.
    """

    id: int
    host_node: int
    memory_mib: int
    vcpus: list[int]
    cpus: list[int]
    distances: dict[str, int]


@dataclass
class Processors:
    """The cells with what spans them. ``kept_cpus`` are the host's: emulator and I/O threads run there."""

    cells: list[Cell]
    threads: int  # hardware threads a core shows to the guest
    kept_cpus: list[int]


def serving_node(host: Host, node: int) -> int:
    """The node itself, or, where it has no CPUs or memory, the nearest one that has."""
    nodes = {item.id: item for item in host.numa_nodes}
    if node not in nodes:
        raise DomainError(f"the topology has devices on NUMA node {node} and no such node", "read the topology again")
    if _serves(nodes[node]):
        return node
    able = [item for item in host.numa_nodes if _serves(item)]
    if not able:
        raise DomainError("no NUMA node of this host has both CPUs and memory")
    return min(able, key=lambda item: (nodes[node].distances.get(str(item.id), 255), item.id)).id


def _serves(node: NumaNode) -> bool:
    return bool(node.cpus) and node.memory_bytes > 0


def arrange(
    spec: DomainSpec, host: Host, devices: list[Function], taken_cpus: set[int], held_cpus: set[int], max_vcpus: int
) -> Processors:
    """Cells for ``spec`` on the nodes of its devices. ``held_cpus`` are those it has today: kept where they still fit.

    Raises DomainError where memory or CPUs do not divide or do not suffice.
    """
    known = [node for node in (host.node_of(function) for function in devices) if node is not None]
    ids = sorted({serving_node(host, node) for node in known})
    if not ids:
        able = sorted(node.id for node in host.numa_nodes if _serves(node))
        if not able:
            raise DomainError("no NUMA node of this host has both CPUs and memory")
        ids = able[:1]
    nodes = [node for node in host.numa_nodes if node.id in ids]
    nodes.sort(key=lambda node: node.id)
    memory_mib = _memory(spec, len(nodes))

    cores, kept = {}, []
    for node in nodes:
        siblings = sorted(node.siblings or [[cpu] for cpu in node.cpus])
        kept += [cpu for core in siblings[: spec.host_cores_per_node] for cpu in core]
        free = [core for core in siblings[spec.host_cores_per_node :] if not taken_cpus.intersection(core)]
        # Stable: the cores that it has today come first, each part in ascending order.
        cores[node.id] = sorted(free, key=lambda core: (not held_cpus.issuperset(core), core))
    count, threads = _vcpus(
        spec, nodes, cores, min(max_vcpus, VCPUS_WITHOUT_IOMMU if not spec.guest_iommu else max_vcpus)
    )

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
    return Processors(cells, threads, sorted(kept))


def sorted_cores(cores: list[list[int]], count: int, threads: int) -> list[int]:
    """``count`` CPUs of the first cores, ascending by core, siblings beside each other."""
    if threads > 1:
        chosen = sorted(cores[: count // threads])
        return [cpu for core in chosen for cpu in core]
    # One vCPU a core as long as cores last, then their siblings.
    rounds = [core[turn] for turn in range(max(map(len, cores), default=0)) for core in cores if turn < len(core)]
    return sorted(rounds[:count])


def _memory(spec: DomainSpec, cells: int) -> int:
    if spec.memory_mib <= 0:
        raise DomainError("memory_mib is missing", "say how much memory it gets", domain=spec.name)
    step = cells * max(spec.huge_page_mib, 1)
    if spec.memory_mib % step:
        pages = f" in huge pages of {spec.huge_page_mib} MiB" if spec.huge_page_mib else ""
        lower, upper = spec.memory_mib // step * step, (spec.memory_mib // step + 1) * step
        near = f"{lower} or {upper}" if lower else str(upper)
        raise DomainError(
            f"memory_mib {spec.memory_mib} does not divide over {cells} NUMA cell{'s' if cells != 1 else ''}{pages}",
            f"use {near}",
            domain=spec.name,
        )
    return spec.memory_mib // cells


def _vcpus(spec: DomainSpec, nodes: list[NumaNode], cores: dict[int, list[list[int]]], limit: int) -> tuple[int, int]:
    """vCPUs of each cell (the same in all, so that sockets are alike), and threads a core."""
    widths = {len(core) for node in nodes for core in cores[node.id]}
    width = widths.pop() if len(widths) == 1 else 1
    left = {node.id: sum(len(core) for core in cores[node.id]) for node in nodes}
    scarce = min(nodes, key=lambda node: (left[node.id], node.id)).id
    if spec.vcpus is None:
        count = min(left[scarce], limit // len(nodes)) // width * width
        if count == 0:
            raise DomainError(
                f"no CPU is left on NUMA node {scarce} {_kept(spec)}", "lower vcpus or the reserve", spec.name
            )
        return count, width
    if spec.vcpus > limit:
        mend = "guest_iommu lifts the limit of 255" if limit == VCPUS_WITHOUT_IOMMU else "ask for fewer"
        raise DomainError(f"vcpus {spec.vcpus} is over the limit of {limit}", mend, spec.name)
    if spec.vcpus % len(nodes):
        raise DomainError(
            f"{spec.vcpus} vCPUs do not divide over its {len(nodes)} NUMA cells (host nodes "
            f"{', '.join(str(node.id) for node in nodes)})",
            f"use a multiple of {len(nodes)}",
            domain=spec.name,
        )
    count = spec.vcpus // len(nodes)
    if spec.pin_cpus and count > left[scarce]:
        raise DomainError(
            f"wants {count} CPUs of NUMA node {scarce}, and {left[scarce]} are left {_kept(spec)}",
            "lower vcpus or the reserve",
            spec.name,
        )
    return count, width if count % width == 0 else 1


def _kept(spec: DomainSpec) -> str:
    return f"(host_cores_per_node keeps {spec.host_cores_per_node} cores back, other virtual machines have theirs)"
