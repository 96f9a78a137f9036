# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How far apart two PCI functions are, in the words of ``nvidia-smi topo -m``, and whether a guest keeps it.

Source: the legend that ``nvidia-smi topo -m`` prints; NCCL (src/graph/topo.h, PATH_*) uses the same words.
Pure: topologies in, plain data out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import Function, Host, TopologyError

# Nearest first.
PATH_CLASSES = {
    "X": "the same function",
    "PIX": "at most a single PCIe bridge, which is a switch with all its ports",
    "PXB": "several PCIe bridges, without traversing the PCIe host bridge",
    "PHB": "a PCIe host bridge (root complex)",
    "NODE": "the interconnect between PCIe host bridges within a NUMA node",
    "SYS": "the interconnect between NUMA nodes",
}


@dataclass
class Fidelity:
    """How many pairs of devices are as far apart in the guest as on the host."""

    total: int
    equal: int
    # The pairs that differ: {"pair": ["gpu0", "nic0"], "host": "PIX", "guest": "SYS"}.
    differences: list[dict[str, object]] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Between 0 and 1; 1 where there is no pair to differ."""
        return self.equal / self.total if self.total else 1.0


def port_role(host: Host, address: str) -> str | None:
    """The ``port_type`` of a bridge, inferred from its place where config space could not be read.

    Below the root port, switch ports alternate: an upstream port, its downstream ports, and so on. None for
    what is no bridge.
    """
    path = host.path(address)
    function = path[-1]
    if function.kind != "bridge":
        return None
    if function.port_type is not None:
        return function.port_type
    if function.parent is None:
        return "root_port"
    above = port_role(host, function.parent)
    return "switch_downstream" if above == "switch_upstream" else "switch_upstream"


def path_class(host: Host, one: str, other: str) -> str:
    """The key of ``PATH_CLASSES`` for two functions. Raises TopologyError for an address that is not there."""
    if one == other:
        host.function(one)
        return "X"
    first, second = host.path(one), host.path(other)
    if first[0].root_complex != second[0].root_complex:
        nodes = _node(host, first[-1]), _node(host, second[-1])
        return "NODE" if nodes[0] is not None and nodes[0] == nodes[1] else "SYS"
    shared = [step for step, twin in zip(first, second) if step.address == twin.address]
    if not shared:
        return "PHB"
    meeting = len(shared) - 1
    bridges = [step for step in first[meeting:] + second[meeting:] if step.kind == "bridge"]
    return "PIX" if len({_switch(host, bridge) for bridge in bridges} - {None}) <= 1 else "PXB"


def _switch(host: Host, bridge: Function) -> str | None:
    """Which switch a port is of, by its upstream port; None for a root port, which is the root complex's own."""
    role = port_role(host, bridge.address)
    if role == "root_port":
        return None
    return bridge.parent if role == "switch_downstream" else bridge.address


def _node(host: Host, function: Function) -> int | None:
    """The function's NUMA node, or its root complex's, or the only one there is."""
    if function.numa_node is not None:
        return function.numa_node
    for root_complex in host.root_complexes:
        if root_complex.name == function.root_complex and root_complex.numa_node is not None:
            return root_complex.numa_node
    return host.numa_nodes[0].id if len(host.numa_nodes) == 1 else None


def pairs(host: Host, devices: dict[str, str]) -> dict[tuple[str, str], str]:
    """The path class of each pair of ``devices`` (name -> address), by their names, each pair once and sorted."""
    return {
        (one, other): path_class(host, devices[one], devices[other]) for one, other in combinations(sorted(devices), 2)
    }


def fidelity(host_pairs: dict[tuple[str, str], str], guest_pairs: dict[tuple[str, str], str]) -> Fidelity:
    """Holds a guest's pairs against the host's. Raises TopologyError where they are not of the same devices."""
    unmatched = sorted(set(host_pairs) ^ set(guest_pairs))
    if unmatched:
        raise TopologyError(f"host and guest do not have the same devices: {unmatched[0]} is on one side only")
    differences: list[dict[str, object]] = [
        {"pair": list(pair), "host": host_pairs[pair], "guest": guest_pairs[pair]}
        for pair in sorted(host_pairs)
        if host_pairs[pair] != guest_pairs[pair]
    ]
    return Fidelity(len(host_pairs), len(host_pairs) - len(differences), differences)
