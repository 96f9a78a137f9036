# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fabric as links between ports, and the paths that packets take over it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError


class End(NamedTuple):
    """One end of a cable: a switch's port, or a host's NIC."""

    device: str
    port: str

    def __str__(self) -> str:
        return f"{self.device} {self.port}"


class Hop(NamedTuple):
    """A switch that a packet passes."""

    switch: str
    ingress: str
    egress: str


class Fabric:
    """All cables. A device in ``switches`` forwards; any other is a host."""

    def __init__(self, links: Iterable[tuple[End, End]], switches: Iterable[str]) -> None:
        """Index the cables. Raises FabricError where a port has two cables, or a cable has two ends at one device."""
        self.switches = frozenset(switches)
        self.peer: dict[End, End] = {}
        # The neighbours of each device and the ports on both sides, sorted: the same fabric has the same paths.
        self.neighbours: dict[str, list[tuple[str, End, End]]] = {}
        for one, other in links:
            if one.device == other.device:
                raise FabricError(f"cable {one} - {other}", "both ends are on the same device", "correct the links")
            for end, far in ((one, other), (other, one)):
                if self.peer.get(end, far) != far:
                    raise FabricError(
                        f"port {end}", f"it has cables to {self.peer[end]} and to {far}", "correct the links"
                    )
                if end not in self.peer:
                    self.peer[end] = far
                    self.neighbours.setdefault(end.device, []).append((far.device, end, far))
        for each in self.neighbours.values():
            each.sort()

    def links(self) -> Iterator[tuple[End, End]]:
        """Return every cable once, in order."""
        return ((one, other) for one, other in sorted(self.peer.items()) if one < other)

    def hosts(self) -> list[str]:
        """Return all devices that are not switches."""
        return sorted(device for device in self.neighbours if device not in self.switches)

    def way(self, start: End, goal: End) -> list[Hop]:
        """Return the hops that a packet from NIC ``start`` to NIC ``goal`` may pass.

        These are the hops of all paths with the fewest switches. Each hop is returned once, those nearer to ``start``
        first. Raises FabricError where there is no path.
        """
        for end in (start, goal):
            if end not in self.peer:
                raise FabricError(f"NIC {end}", "it has no cable in the fabric's links", "add its link")
        if start == goal:
            raise FabricError(f"NIC {start}", "it is at both ends of the path", "name two different NICs")
        first, last = self.peer[start], self.peer[goal]
        distance = self._distances(last.device)
        if first.device not in distance:
            raise FabricError(
                f"path {start} - {goal}",
                f"{first.device} has no connection to {last.device}",
                "check which link is missing",
            )
        hops: list[Hop] = []
        ingresses = {first.device: [first.port]}
        for left in range(distance[first.device], 0, -1):
            following: dict[str, list[str]] = {}
            for switch in sorted(ingresses):
                for neighbour, near, far in self.neighbours[switch]:
                    if distance.get(neighbour) == left - 1:
                        hops += [Hop(switch, ingress, near.port) for ingress in ingresses[switch]]
                        following.setdefault(neighbour, []).append(far.port)
            ingresses = following
        return hops + [Hop(last.device, ingress, last.port) for ingress in ingresses[last.device]]

    def _distances(self, goal: str) -> dict[str, int]:
        """Return, for every switch that has a path, the number of cables to ``goal``."""
        distance = {goal: 0}
        ahead = deque([goal])
        while ahead:
            device = ahead.popleft()
            for neighbour, _near, _far in self.neighbours[device]:
                if neighbour in self.switches and neighbour not in distance:
                    distance[neighbour] = distance[device] + 1
                    ahead.append(neighbour)
        return distance


def buffer_cycle(fabric: Fabric, paused: Mapping[tuple[str, str], bool] | None = None) -> list[tuple[str, str]]:
    """Return the links (from, to) between switches that form a cyclic buffer dependency; empty where there is none.

    With PFC, the buffer of a link waits for the buffer of the next link on a packet's path. A cycle of such waits can
    block forever (Hu et al., "Deadlocks in Datacenter Networks: Why Do They Form, and How to Avoid Them", HotNets
    2016). Paths are those with the fewest switches, between switches that have hosts. ``paused``: whether a link
    (from, to) is lossless; by default all are.
    """
    index = {switch: 1 << at for at, switch in enumerate(sorted(fabric.switches))}
    near = {
        switch: sorted({other for other, _near, _far in fabric.neighbours.get(switch, []) if other in fabric.switches})
        for switch in index
    }
    goals = 0
    for switch, bit in index.items():
        if any(other not in fabric.switches for other, _near, _far in fabric.neighbours.get(switch, [])):
            goals |= bit
    carries = _goals_by_link(index, near, goals)
    # Packets for the switch at the end of a link go no further.
    live = {link for link, goes in carries.items() if goes != index[link[1]] and (paused is None or paused.get(link))}
    # A link that waits for no other link is in no cycle, so such links are removed until none is left to remove. In a
    # Clos fabric, this removes all links.
    while True:
        after: dict[str, list[tuple[str, str]]] = {}
        for link in sorted(live):
            after.setdefault(link[0], []).append(link)
        follows = {
            link: [further for further in after.get(link[1], []) if carries[link] & carries[further]] for link in live
        }
        left = {link for link, further in follows.items() if further}
        if left == live:
            return _cycle({link: follows[link] for link in sorted(live)})
        live = left


def _goals_by_link(index: Mapping[str, int], near: Mapping[str, list[str]], goals: int) -> dict[tuple[str, str], int]:
    """Return, for each link (from, to) between switches, the goals of the packets that it carries, as bits.

    Links that carry no packets are left out.
    """
    within = dict(index)
    carries: dict[tuple[str, str], int] = {}
    exactly = dict(index)
    while any(exactly.values()):
        reach = {}
        for switch, others in near.items():
            found = within[switch]
            for other in others:
                found |= within[other]
            reach[switch] = found
        further = {switch: reach[switch] & ~within[switch] for switch in near}
        for switch, others in near.items():
            for other in others:
                carried = further[switch] & exactly[other] & goals
                if carried:
                    carries[switch, other] = carries.get((switch, other), 0) | carried
        within, exactly = reach, further
    return carries


def _cycle(follows: Mapping[tuple[str, str], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Return a cycle of a directed graph, found by depth-first search; empty where there is none."""
    done: set[tuple[str, str]] = set()
    for start in follows:
        if start in done:
            continue
        path, on_path = [start], {start}
        ahead = [iter(follows[start])]
        while ahead:
            link = next(ahead[-1], None)
            if link is None:
                ahead.pop()
                left = path.pop()
                on_path.discard(left)
                done.add(left)
            elif link in on_path:
                return path[path.index(link) :]
            elif link not in done:
                path.append(link)
                on_path.add(link)
                ahead.append(iter(follows[link]))
    return []
