# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NUMA cells of a guest: their host nodes, memory and CPUs. Pure.

All cells have the same memory and, where that uses all CPUs, the same number of vCPUs. Otherwise (a core of a socket
with several nodes is kept for the host) the sockets of the guest are those of its host nodes, all with the same number
of vCPUs: QEMU has equal sockets only, but cells of any size.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.whole_host import serves
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import host_cores
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
    sockets: int  # equal ones that the guest sees
    threads: int  # hardware threads per core that the guest sees
    kept_cpus: list[int]
    share: Share


def arrange(
    spec: DomainSpec, host: Host, ids: list[int], taken_cpus: set[int], held_cpus: set[int], max_vcpus: int
) -> Processors:
    """Return the cells for ``spec`` on the nodes ``ids``. ``held_cpus``, its CPUs today, are kept where they still fit.

    Raises DomainError if memory or CPUs cannot be divided, or do not suffice.
    """
    nodes = [node for node in host.numa_nodes if node.id in ids]
    nodes.sort(key=lambda node: node.id)
    memory_mib = _memory(spec, nodes, host)

    kept_cores = host_cores.kept(host, spec.host_cores_per_socket)
    kept_cpus = [cpu for node in nodes for core in kept_cores.get(node.id, []) for cpu in core]
    guest_cores, cores = {}, {}
    for node in nodes:
        guest_cores[node.id] = [core for core in host_cores.of_node(node) if core not in kept_cores[node.id]]
        free = [core for core in guest_cores[node.id] if not taken_cpus.intersection(core)]
        # A stable order: first the cores that the virtual machine has today, then the others, both ascending.
        cores[node.id] = sorted(free, key=lambda core: (not held_cpus.issuperset(core), core))
    limit = max_vcpus if spec.remaps_interrupts else min(max_vcpus, VCPUS_WITHOUT_REMAPPING)
    counts, sockets, threads = _vcpus(spec, nodes, guest_cores, cores, limit)

    cells, number = [], 0
    nodes = [node for socket in sockets for node in socket]
    for index, node in enumerate(nodes):
        count = counts[node.id]
        cpus = sorted_cores(cores[node.id], count, threads)
        cells.append(
            Cell(
                id=index,
                host_node=node.id,
                memory_mib=memory_mib,
                vcpus=list(range(number, number + count)),
                cpus=cpus if spec.pin_cpus else [],
                distances={
                    str(cell_id): node.distances.get(str(other_node.id), 10 if cell_id == index else 20)
                    for cell_id, other_node in enumerate(nodes)
                },
            )
        )
        number += count
    share = _share(host, nodes, cores, kept_cpus, number, limit)
    own_sockets = [
        socket_nodes
        for socket_nodes in host_cores.sockets(host.numa_nodes)
        if any(node in nodes for node in socket_nodes)
    ]
    of_sockets = [
        cpu for socket_nodes in own_sockets for node in socket_nodes for core in kept_cores[node.id] for cpu in core
    ]
    return Processors(cells, len(sockets), threads, sorted(of_sockets) if spec.pin_cpus else [], share)


def _share(
    host: Host, nodes: list[NumaNode], cores: dict[int, list[list[int]]], kept_cpus: list[int], vcpus: int, limit: int
) -> Share:
    cpu_count = sum(len(node.cpus) for node in nodes)
    free = sum(len(core) for node_cores in cores.values() for core in node_cores)
    return Share(
        threads=sum(len(node.cpus) for node in host.numa_nodes),
        vcpus=vcpus,
        kept=len(kept_cpus),
        taken=cpu_count - free - len(kept_cpus),
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
    usable_nodes = nodes if spec.strict_memory else host.numa_nodes
    memory_of_node = {node.id: node.memory_bytes // MIB for node in usable_nodes}
    if spec.memory_mib > sum(memory_of_node.values()):
        whose = "the NUMA nodes that it is bound to have" if spec.strict_memory else "this host has"
        per_node = ", ".join(f"node {node} {memory_mib}" for node, memory_mib in sorted(memory_of_node.items()))
        raise DomainError(
            f"memory_mib {spec.memory_mib} is more than {whose}: {sum(memory_of_node.values())} MiB ({per_node})",
            "give it less memory",
            domain=spec.name,
        )
    cells = len(nodes)
    step = cells * max(spec.huge_page_mib, 1)
    if spec.memory_mib % step:
        pages = f" in huge pages of {spec.huge_page_mib} MiB" if spec.huge_page_mib else ""
        lower, upper = spec.memory_mib // step * step, (spec.memory_mib // step + 1) * step
        multiples = f"{lower} or {upper}" if lower else str(upper)
        raise DomainError(
            f"memory_mib {spec.memory_mib} cannot be divided evenly among {cells} NUMA "
            f"cell{'s' if cells != 1 else ''}{pages}",
            f"use {multiples}",
            domain=spec.name,
        )
    return spec.memory_mib // cells


def _vcpus(
    spec: DomainSpec,
    nodes: list[NumaNode],
    guest_cores: dict[int, list[list[int]]],
    cores: dict[int, list[list[int]]],
    limit: int,
) -> tuple[dict[int, int], list[list[NumaNode]], int]:
    """Return the vCPUs of each node, the nodes of each guest socket in the cells' order, and the threads per core.

    ``guest_cores`` are the cores of each node without those of the host, ``cores`` those that are left of them. The
    vCPUs of a request with a number depend on ``guest_cores`` only, so that no other virtual machine moves them.
    """
    widths = {len(core) for node in nodes for core in cores[node.id]}
    width = widths.pop() if len(widths) == 1 else 1
    free_cpus = {node.id: sum(map(len, cores[node.id])) for node in nodes}
    equal = [[node] for node in nodes]
    socket_nodes = host_cores.sockets(nodes)
    if len({len(socket) for socket in socket_nodes}) != 1:
        socket_nodes = equal
    if spec.vcpus is None:
        return _all_vcpus(spec, free_cpus, equal, socket_nodes, limit, width)
    if spec.vcpus > limit:
        lifts = limit == VCPUS_WITHOUT_REMAPPING and not spec.remaps_interrupts
        remedy = f"interrupt_remapping lifts the limit of {limit}" if lifts else "request fewer"
        raise DomainError(f"vcpus {spec.vcpus} is over the limit of {limit}", remedy, domain=spec.name)
    room = {node.id: sum(map(len, guest_cores[node.id])) if spec.pin_cpus else spec.vcpus for node in nodes}
    count, remainder = divmod(spec.vcpus, len(nodes))
    if not remainder and count <= min(room.values()):
        counts, sockets = dict.fromkeys(room, count), equal
    elif spec.vcpus % len(socket_nodes) or spec.vcpus < len(nodes):
        parts = socket_nodes if spec.vcpus % len(socket_nodes) else equal
        raise DomainError(
            f"{spec.vcpus} vCPUs cannot be divided evenly among its {len(parts)} "
            f"{'NUMA cells' if len(parts) == len(nodes) else 'sockets'} (host nodes "
            f"{', '.join(str(node.id) for node in nodes)})",
            f"use a multiple of {len(parts)}",
            domain=spec.name,
        )
    else:
        counts, sockets = _spread(spec.vcpus // len(socket_nodes), socket_nodes, room, width)
    scarce = min(nodes, key=lambda node: (free_cpus[node.id] - counts[node.id], node.id)).id
    if spec.pin_cpus and counts[scarce] > free_cpus[scarce]:
        raise DomainError(
            f"needs {counts[scarce]} CPUs of NUMA node {scarce}, but {free_cpus[scarce]} are left {_kept(spec)}",
            "lower vcpus or the reserve",
            domain=spec.name,
        )
    return counts, sockets, width if all(number % width == 0 for number in counts.values()) else 1


def _all_vcpus(
    spec: DomainSpec,
    free_cpus: dict[int, int],
    equal: list[list[NumaNode]],
    socket_nodes: list[list[NumaNode]],
    limit: int,
    width: int,
) -> tuple[dict[int, int], list[list[NumaNode]], int]:
    """Return what ``_vcpus`` returns for a request without a number: as many vCPUs as possible."""
    scarce = min(free_cpus, key=lambda node: (free_cpus[node], node))
    count = min(free_cpus[scarce], limit // len(free_cpus)) // width * width
    if count == 0:
        raise DomainError(
            f"no CPU is left on NUMA node {scarce} {_kept(spec)}", "lower vcpus or the reserve", domain=spec.name
        )
    of_socket = min(sum(free_cpus[node.id] for node in socket) for socket in socket_nodes)
    of_socket = min(of_socket, limit // len(socket_nodes)) // width * width
    if of_socket * len(socket_nodes) > count * len(free_cpus):
        return *_spread(of_socket, socket_nodes, free_cpus, width), width
    return dict.fromkeys(free_cpus, count), equal, width


def _spread(
    of_socket: int, socket_nodes: list[list[NumaNode]], room: dict[int, int], width: int
) -> tuple[dict[int, int], list[list[NumaNode]]]:
    """Return the vCPUs of each node, and the sockets in the cells' order; each socket has ``of_socket`` vCPUs.

    The nodes of a socket get as equal numbers as their ``room`` allows. Those with the most are first: then the guest's
    processor ids, and the caches that it derives from them, begin with a cell wherever the host's begin with a node.
    """
    step = width if of_socket % width == 0 and of_socket // width >= len(socket_nodes[0]) else 1
    counts = dict.fromkeys(room, 0)
    for socket in socket_nodes:
        for _core in range(of_socket // step):
            # If nothing has room, the first node gets more than it has, which the caller refuses.
            open_nodes = [node for node in socket if counts[node.id] + step <= room[node.id]] or socket
            counts[min(open_nodes, key=lambda node: (counts[node.id], node.id)).id] += step
    return counts, [sorted(socket, key=lambda node: (-counts[node.id], node.id)) for socket in socket_nodes]


def _kept(spec: DomainSpec) -> str:
    reserve = f"host_cores_per_socket keeps {spec.host_cores_per_socket} cores for the host"
    return f"({reserve}, other virtual machines have theirs)"
