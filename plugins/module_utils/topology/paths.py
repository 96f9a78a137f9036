# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The distance between two PCI functions, in the terms of ``nvidia-smi topo -m``, and a comparison of guest and host.

Sources: the legend that ``nvidia-smi topo -m`` prints, NVML's nvmlGpuTopologyLevel_t, and NCCL (src/graph/topo.h,
PATH_*). Their term "PCIe bridge" means a switch: its upstream port and all its downstream ports count as one bridge,
and a root port belongs to the host bridge. NCCL gets the same result by going up the tree of /sys two steps at a time,
from one switch to the next (src/graph/xml.cc). It has no NODE, only PHB within a NUMA node and SYS between two nodes.
Pure: topologies in, plain data out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TypedDict

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

# Nearest first.
PATH_CLASSES = {
    "X": "the same function",
    "PIX": "at most a single PCIe bridge, which is a switch with all its ports",
    "PXB": "several PCIe bridges, without traversing the PCIe host bridge",
    "PHB": "a PCIe host bridge (root complex)",
    "NODE": "the interconnect between PCIe host bridges within a NUMA node",
    "SYS": "the interconnect between NUMA nodes",
}


class PairDifference(TypedDict):
    """A pair of devices that is not as near in the guest as on the host, by two keys of ``PATH_CLASSES``."""

    pair: list[str]
    host: str
    guest: str


@dataclass
class Fidelity:
    """The number of pairs of devices that are as far apart in the guest as on the host."""

    total: int
    equal: int
    # The pairs that differ: {"pair": ["gpu0", "nic0"], "host": "PIX", "guest": "SYS"}.
    differences: list[PairDifference] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON-ready form: total, equal, share (0 to 1) and differences."""
        return {"total": self.total, "equal": self.equal, "share": self.share, "differences": self.differences}

    @property
    def share(self) -> float:
        """Return the share of equal pairs, between 0 and 1; 1 if there is no pair."""
        return self.equal / self.total if self.total else 1.0


class Paths:
    """The paths down a host's PCI tree, each walked once, for many queries about a host that does not change."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._functions = host.by_address()
        self._paths_to: dict[str, tuple[Function, ...]] = {}
        self._switches: dict[str, tuple[tuple[str, str | None], ...]] = {}

    def path_to(self, address: str) -> tuple[Function, ...]:
        """Return the functions from the root bus down to ``address``, both included; raises as ``Host.path`` does."""
        if address not in self._paths_to:
            steps: list[Function] = []
            next_address: str | None = address
            while next_address is not None and next_address not in self._paths_to:
                if next_address not in self._functions:
                    raise TopologyError(f"no PCI function {next_address} on this host", "read the host again")
                if len(steps) > len(self._functions):
                    raise TopologyError(f"PCI function {next_address} is above itself: the topology has a loop")
                steps.append(self._functions[next_address])
                next_address = self._functions[next_address].parent
            steps_above = self._paths_to[next_address] if next_address is not None else ()
            for step in reversed(steps):
                steps_above = (*steps_above, step)
                self._paths_to[step.address] = steps_above
        return self._paths_to[address]

    def role(self, address: str) -> str | None:
        """Return the ``port_type`` of a bridge, inferred from its place if config space could not be read.

        Below the root port, switch ports alternate: an upstream port, its downstream ports, and so on. None if the
        function is no bridge.
        """
        parent_role: str | None = None
        role: str | None = None
        for step in self.path_to(address):
            if step.kind != "bridge":
                role = None
            elif step.port_type is not None:
                role = step.port_type
            elif step.parent is None:
                role = "root_port"
            else:
                role = "switch_downstream" if parent_role == "switch_upstream" else "switch_upstream"
            parent_role = role
        return role

    def switches(self, address: str) -> list[str]:
        """Return the upstream ports of the switches above a function, the one nearest to the root first."""
        return list(dict.fromkeys(switch for _port, switch in self._ports(address) if switch is not None))

    def path_class(self, first_address: str, second_address: str) -> str:
        """Return the key of ``PATH_CLASSES`` for two functions. Raises TopologyError for an address not on the host."""
        first_function, second_function = self.path_to(first_address)[-1], self.path_to(second_address)[-1]
        if first_address == second_address:
            return "X"
        if first_function.root_complex != second_function.root_complex:
            nodes = self._host.node_of(first_function), self._host.node_of(second_function)
            return "NODE" if nodes[0] is not None and nodes[0] == nodes[1] else "SYS"
        ports, second_ports = self._ports(first_address), self._ports(second_address)
        shared = 0
        for port, twin in zip(ports, second_ports):
            if port[0] != twin[0]:
                break
            shared += 1
        if not shared:
            return "PHB"
        crossed = {switch for _port, switch in (*ports[shared - 1 :], *second_ports[shared:])} - {None}
        return "PIX" if len(crossed) <= 1 else "PXB"

    def _ports(self, address: str) -> tuple[tuple[str, str | None], ...]:
        """Return the bridges on the path to a function, each with its switch; a bridge itself is included.

        A switch is named by its upstream port; None for a root port, which belongs to the root complex.
        """
        if address not in self._switches:
            ports: list[tuple[str, str | None]] = []
            for step in self.path_to(address):
                if step.kind == "bridge":
                    role = self.role(step.address)
                    switch = step.parent if role == "switch_downstream" else step.address
                    ports.append((step.address, None if role == "root_port" else switch))
            self._switches[address] = tuple(ports)
        return self._switches[address]


def port_role(host: Host, address: str) -> str | None:
    """Return ``Paths.role`` for a single query."""
    return Paths(host).role(address)


def path_class(host: Host, first_address: str, second_address: str) -> str:
    """Return ``Paths.path_class`` for a single query."""
    return Paths(host).path_class(first_address, second_address)


def pairs(host: Host, devices: dict[str, str]) -> dict[tuple[str, str], str]:
    """Return the path class of each pair of ``devices`` (name -> address), by name, each pair once and sorted."""
    paths = Paths(host)
    return {
        (first, second): paths.path_class(devices[first], devices[second])
        for first, second in combinations(sorted(devices), 2)
    }


def fidelity(host_pairs: dict[tuple[str, str], str], guest_pairs: dict[tuple[str, str], str]) -> Fidelity:
    """Compare a guest's pairs with the host's. Raises TopologyError if they are not of the same devices."""
    unmatched = sorted(set(host_pairs) ^ set(guest_pairs))
    if unmatched:
        raise TopologyError(
            f"host and guest do not have the same devices: {unmatched[0]} is on one side only", "read both again"
        )
    differences: list[PairDifference] = [
        {"pair": list(pair), "host": host_pairs[pair], "guest": guest_pairs[pair]}
        for pair in sorted(host_pairs)
        if host_pairs[pair] != guest_pairs[pair]
    ]
    return Fidelity(len(host_pairs), len(host_pairs) - len(differences), differences)
