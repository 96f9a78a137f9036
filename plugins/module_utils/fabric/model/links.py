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


class Cabling:
    """All cables. A device in ``switches`` forwards; any other is a host."""

    def __init__(self, links: Iterable[tuple[End, End]], switches: Iterable[str]) -> None:
        """Index the cables. Raises FabricError where a port has two cables, or a cable has two ends at one device."""
        self.switches = frozenset(switches)
        self.peer: dict[End, End] = {}
        # The neighbours of each device and the ports on both sides, sorted: the same fabric has the same paths.
        self.neighbours: dict[str, list[tuple[str, End, End]]] = {}
        for end_a, end_b in links:
            if end_a.device == end_b.device:
                raise FabricError(
                    "both ends are on the same device", "correct the links", subject=f"cable {end_a} - {end_b}"
                )
            for end, peer in ((end_a, end_b), (end_b, end_a)):
                if self.peer.get(end, peer) != peer:
                    raise FabricError(
                        f"it has cables to {self.peer[end]} and to {peer}", "correct the links", subject=f"port {end}"
                    )
                if end not in self.peer:
                    self.peer[end] = peer
                    self.neighbours.setdefault(end.device, []).append((peer.device, end, peer))
        for adjacent in self.neighbours.values():
            adjacent.sort()

    def links(self) -> Iterator[tuple[End, End]]:
        """Return every cable once, in order."""
        return ((end, peer) for end, peer in sorted(self.peer.items()) if end < peer)

    def hosts(self) -> list[str]:
        """Return all devices that are not switches."""
        return sorted(device for device in self.neighbours if device not in self.switches)

    def shortest_hops(self, start: End, goal: End) -> list[Hop]:
        """Return the hops that a packet from NIC ``start`` to NIC ``goal`` may pass.

        These are the hops of all paths with the fewest switches. Each hop is returned once, those nearer to ``start``
        first. Raises FabricError where there is no path.
        """
        for end in (start, goal):
            if end not in self.peer:
                raise FabricError("it has no cable in the fabric's links", "add its link", subject=f"NIC {end}")
        if start == goal:
            raise FabricError("it is at both ends of the path", "name two different NICs", subject=f"NIC {start}")
        first, last = self.peer[start], self.peer[goal]
        distance = self._distances(last.device)
        if first.device not in distance:
            raise FabricError(
                f"{first.device} has no connection to {last.device}",
                "check which link is missing",
                subject=f"path {start} - {goal}",
            )
        hops: list[Hop] = []
        ingresses = {first.device: [first.port]}
        for distance_left in range(distance[first.device], 0, -1):
            following: dict[str, list[str]] = {}
            for switch in sorted(ingresses):
                for neighbour, near_end, far_end in self.neighbours[switch]:
                    if distance.get(neighbour) == distance_left - 1:
                        hops += [Hop(switch, ingress, near_end.port) for ingress in ingresses[switch]]
                        following.setdefault(neighbour, []).append(far_end.port)
            ingresses = following
        return hops + [Hop(last.device, ingress, last.port) for ingress in ingresses[last.device]]

    def _distances(self, goal: str) -> dict[str, int]:
        """Return, for every switch that has a path, the number of cables to ``goal``."""
        distance = {goal: 0}
        to_visit = deque([goal])
        while to_visit:
            device = to_visit.popleft()
            for neighbour, _near_end, _far_end in self.neighbours[device]:
                if neighbour in self.switches and neighbour not in distance:
                    distance[neighbour] = distance[device] + 1
                    to_visit.append(neighbour)
        return distance


def buffer_cycle(fabric: Cabling, paused: Mapping[tuple[str, str], bool] | None = None) -> list[tuple[str, str]]:
    """Return the links (from, to) between switches that form a cyclic buffer dependency; empty where there is none.

    With PFC, the buffer of a link waits for the buffer of the next link on a packet's path. A cycle of such waits can
    block forever (Hu et al., "Deadlocks in Datacenter Networks: Why Do They Form, and How to Avoid Them", HotNets
    2016). Paths are those with the fewest switches, between switches that have hosts. ``paused``: whether a link
    (from, to) is lossless; by default all are.
    """
    index = {switch: 1 << position for position, switch in enumerate(sorted(fabric.switches))}
    neighbours = {
        switch: sorted(
            {
                neighbour
                for neighbour, _near_end, _far_end in fabric.neighbours.get(switch, [])
                if neighbour in fabric.switches
            }
        )
        for switch in index
    }
    goals = 0
    for switch, bit in index.items():
        if any(
            neighbour not in fabric.switches for neighbour, _near_end, _far_end in fabric.neighbours.get(switch, [])
        ):
            goals |= bit
    carries = _goals_by_link(index, neighbours, goals)
    # Packets for the switch at the end of a link go no further.
    live = {
        link
        for link, destinations in carries.items()
        if destinations != index[link[1]] and (paused is None or paused.get(link))
    }
    # A link that waits for no other link is in no cycle, so such links are removed until none is left to remove. In a
    # Clos fabric, this removes all links.
    while True:
        links_from: dict[str, list[tuple[str, str]]] = {}
        for link in sorted(live):
            links_from.setdefault(link[0], []).append(link)
        follows = {
            link: [further for further in links_from.get(link[1], []) if carries[link] & carries[further]]
            for link in live
        }
        waiting_links = {link for link, further in follows.items() if further}
        if waiting_links == live:
            return _cycle({link: follows[link] for link in sorted(live)})
        live = waiting_links


def _goals_by_link(
    index: Mapping[str, int], neighbours: Mapping[str, list[str]], goals: int
) -> dict[tuple[str, str], int]:
    """Return, for each link (from, to) between switches, the goals of the packets that it carries, as bits.

    Links that carry no packets are left out.
    """
    reached = dict(index)
    carries: dict[tuple[str, str], int] = {}
    frontier = dict(index)
    while any(frontier.values()):
        reached_next = {}
        for switch, adjacent in neighbours.items():
            reachable = reached[switch]
            for neighbour in adjacent:
                reachable |= reached[neighbour]
            reached_next[switch] = reachable
        further = {switch: reached_next[switch] & ~reached[switch] for switch in neighbours}
        for switch, adjacent in neighbours.items():
            for neighbour in adjacent:
                carried = further[switch] & frontier[neighbour] & goals
                if carried:
                    carries[switch, neighbour] = carries.get((switch, neighbour), 0) | carried
        reached, frontier = reached_next, further
    return carries


def _cycle(follows: Mapping[tuple[str, str], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Return a cycle of a directed graph, found by depth-first search; empty where there is none."""
    finished: set[tuple[str, str]] = set()
    for start in follows:
        if start in finished:
            continue
        path, on_path = [start], {start}
        stack = [iter(follows[start])]
        while stack:
            link = next(stack[-1], None)
            if link is None:
                stack.pop()
                finished_link = path.pop()
                on_path.discard(finished_link)
                finished.add(finished_link)
            elif link in on_path:
                return path[path.index(link) :]
            elif link not in finished:
                path.append(link)
                on_path.add(link)
                stack.append(iter(follows[link]))
    return []
