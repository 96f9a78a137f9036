# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host's NUMA nodes for the cells of each virtual machine. Pure.

They are the nodes of its devices and those that ``numa_nodes`` names. If neither gives a node (the firmware does not
report nodes, or a device has none), a virtual machine keeps its nodes, or gets the fewest neighbouring nodes that can
hold its request.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.whole_host import serves
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import capacity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.settings import ALL_NODES
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec


def serving(host: Host) -> list[int]:
    """Return the nodes that a cell can be on, ascending. Raises DomainError where there is none."""
    node_ids = sorted(node.id for node in host.numa_nodes if serves(node))
    if not node_ids:
        raise DomainError(
            "no NUMA node of this host has both CPUs and memory",
            "read the topology on the host itself, because a topology file of NCCL has no memory",
        )
    return node_ids


def serving_node(host: Host, node: int) -> int:
    """Return the node itself or, where it has no CPUs or memory, the nearest one that has."""
    nodes = {item.id: item for item in host.numa_nodes}
    if node not in nodes:
        raise DomainError(f"the topology has devices on NUMA node {node} but no such node", "read the topology again")
    if serves(nodes[node]):
        return node
    return min(serving(host), key=lambda other_id: (nodes[node].distances.get(str(other_id), 255), other_id))


def requested_nodes(host: Host, spec: DomainSpec) -> list[int]:
    """Return the nodes that ``numa_nodes`` names, ascending. Raises DomainError for one that no cell can be on."""
    if not spec.numa_nodes:
        return []
    serving_nodes = serving(host)
    if spec.numa_nodes == [ALL_NODES]:
        return serving_nodes
    wanted = sorted({int(node) for node in spec.numa_nodes})
    for node in wanted:
        if node not in serving_nodes:
            valid = ", ".join(map(str, serving_nodes))
            raise DomainError(
                f"numa_nodes: node {node} is not on this host, or has no CPUs or no memory",
                f"choose one of {valid}",
                domain=spec.name,
            )
    return wanted


def settle(
    host: Host,
    specs: list[DomainSpec],
    devices: dict[str, list[Function]],
    current: dict[str, Holdings],
    capacities: capacity.Capacities,
) -> dict[str, list[int]]:
    """Return the nodes of each virtual machine's cells, by name and ascending; the order of ``specs`` has no effect.

    ``devices`` are those that were chosen, ``current`` is what each has today, ``capacities`` the capacity of the nodes
    (capacity.of_nodes). Raises DomainError.
    """
    nodes_of_vm: dict[str, list[int]] = {}
    serving_nodes = serving(host)
    for spec in specs:
        device_nodes = {host.node_of(function) for function in devices[spec.name]} - {None}
        ids = {*requested_nodes(host, spec), *(serving_node(host, node) for node in device_nodes if node is not None)}
        current_nodes = set(_kept(host, current.get(spec.name, Holdings())))
        if not ids and current_nodes and current_nodes <= set(serving_nodes) and divides(spec, len(current_nodes)):
            ids = current_nodes
        if ids:
            nodes_of_vm[spec.name] = sorted(ids)
    used: capacity.Capacities = {}
    for spec in sorted(specs, key=lambda item: item.name):
        if spec.name in nodes_of_vm:
            used = capacity.overflow(capacities, used, capacity.demand_of(spec, capacities), nodes_of_vm[spec.name])[1]
    unplaced_specs = [spec for spec in specs if spec.name not in nodes_of_vm]
    specs_without_vcpus = sum(spec.vcpus is None for spec in unplaced_specs)
    # The largest request is placed first; the others must fit into the remaining capacity.
    for spec in sorted(
        unplaced_specs, key=lambda item: (item.vcpus is None, -(item.vcpus or 0), -item.memory_mib, item.name)
    ):
        nodes_of_vm[spec.name], used = _place(spec, serving_nodes, capacities, used, specs_without_vcpus)
    return nodes_of_vm


def _kept(host: Host, holdings: Holdings) -> list[int]:
    """Return the nodes that a domain's memory is bound to; without such memory, the nodes of its CPUs."""
    if holdings.memory_mib:
        return sorted(holdings.memory_mib)
    return sorted({node.id for node in host.numa_nodes if set(node.cpus) & set(holdings.cpus)})


def divides(spec: DomainSpec, count: int) -> bool:
    """Return True if a request is divided among ``count`` nodes in whole vCPUs and huge pages."""
    return spec.memory_mib % (count * max(spec.huge_page_mib, 1)) == 0 and (spec.vcpus or 0) % count == 0


def _place(
    spec: DomainSpec,
    serving_nodes: list[int],
    capacities: capacity.Capacities,
    used: capacity.Capacities,
    specs_without_vcpus: int,
) -> tuple[list[int], capacity.Capacities]:
    """Return nodes for a virtual machine whose devices give none, and the used capacity afterwards."""
    counts = [count for count in range(1, len(serving_nodes) + 1) if divides(spec, count)] or [1]
    if spec.vcpus is None:
        # Without a number of vCPUs it takes all nodes, or an equal share if several virtual machines set no number.
        share = max(len(serving_nodes) // specs_without_vcpus, 1)
        counts = sorted(counts, key=lambda count: (count > share, -count if count <= share else count))
    candidates = []
    for count in counts:
        for start in range(len(serving_nodes) - count + 1):
            nodes = serving_nodes[start : start + count]
            excess, used_after = capacity.overflow(capacities, used, capacity.demand_of(spec, capacities), nodes)
            loads = [used_after[key] * 1000 // max(capacities.get(key, 0), 1) for key in used_after if key[1] in nodes]
            candidates.append(((excess, counts.index(count), max(loads, default=0)), nodes, used_after))
    # The first one of the best candidates.
    _rank, nodes, used_after = min(candidates, key=lambda item: item[0])
    return nodes, used_after
