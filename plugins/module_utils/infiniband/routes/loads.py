# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the loads of links: HCAs by up port, and shifts of the order of the nodes on all rails at once. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Hca, SwitchPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.paths import PORTS, Graph


class UpLoads(NamedTuple):
    """The number of HCAs to which each up port of a switch leads, and the lowest possible highest number.

    ``free`` places of leaves count like HCAs in the latter.
    """

    switch: str
    by_port: dict[int, int]
    best: int
    free: int
    alike: bool  # every up port leads to every HCA that is not below the switch

    @property
    def even(self) -> bool:
        """Return True if no distribution is more even: numbers differ by at most 1, or the highest is the lowest."""
        loads = self.by_port.values()
        return max(loads) - min(loads) <= 1 if self.alike and not self.free else max(loads) <= self.best


def up_loads(subnet: Graph, filled: bool = False) -> list[UpLoads]:
    """Return the loads of all switches with up ports.

    ``filled``: the engine fills each leaf to the size of the largest one with free places, as ftree does, and spreads
    these like HCAs.
    """
    bit = {lid: 1 << index for index, lid in enumerate(subnet.lids.values())}
    places = _places(subnet, bit, filled)
    lower_places, reached_places = _reachable(subnet, places)
    hcas = sum(bit.values())
    loads = []
    for switch, name in enumerate(subnet.names):
        ups = subnet.ups(switch)
        if not ups:
            continue
        by_port = dict.fromkeys(ups, 0)
        table = subnet.tables[switch]
        for lid in bit:
            if table[lid] in by_port:
                by_port[table[lid]] += 1
        far = sum(places) & ~lower_places[switch]
        reach = {port: reached_places[subnet.over[switch][port]] & far for port in ups}
        reach_is_equal = len({*reach.values()}) == 1
        free = bin(far & ~hcas).count("1")
        best = 0 if reach_is_equal and not free else _lowest_maximum(reach)
        loads.append(UpLoads(name, by_port, best, free, reach_is_equal))
    return loads


def _places(subnet: Graph, bit: dict[int, int], filled: bool) -> list[int]:
    """Return, as bits, the HCAs of each switch, and its free places."""
    places = [sum(bit[lid] for lid in lids.values()) for lids in subnet.down]
    largest = max((len(lids) for lids in subnet.down), default=0)
    first_bit = len(bit)
    for switch in sorted({*subnet.leaf_of.values()}) if filled else ():
        free = largest - len(subnet.down[switch])
        places[switch] |= ((1 << free) - 1) << first_bit
        first_bit += free
    return places


def _reachable(subnet: Graph, places: list[int]) -> tuple[list[int], list[int]]:
    """Return, as bits of places, what each switch reaches downwards, and what it reaches upwards and then downwards."""
    order = sorted(range(len(subnet.names)), key=lambda switch: subnet.levels[switch])
    lower_places = list(places)
    uppers = [{subnet.over[switch][port] for port in subnet.ups(switch)} for switch in range(len(subnet.names))]
    for switch in order:
        for upper in uppers[switch]:
            lower_places[upper] |= lower_places[switch]
    reached_places = list(lower_places)
    for switch in reversed(order):
        for upper in uppers[switch]:
            reached_places[switch] |= reached_places[upper]
    return lower_places, reached_places


def _lowest_maximum(reach: dict[int, int]) -> int:
    """Return the lowest possible highest number of HCAs of a port, if each goes to one of the ports that reach it."""
    groups: list[int] = [0]
    for mask in reach.values():
        groups[0] |= mask
    for mask in set(reach.values()):
        groups = [part for group in groups for part in (group & mask, group & ~mask) if part]
    sizes = [(bin(group).count("1"), [port for port, mask in reach.items() if mask & group]) for group in groups]
    low, high = 0, sum(size for size, _ports in sizes)
    while low < high:
        middle = (low + high) // 2
        if _fits(sizes, middle):
            high = middle
        else:
            low = middle + 1
    return low


def _fits(groups: list[tuple[int, list[int]]], limit: int) -> bool:
    """Return True if the groups fit into their ports with at most ``limit`` on each (augmenting paths)."""
    placed: list[dict[int, int]] = [{} for _group in groups]
    free = {port: limit for _size, ports in groups for port in ports}

    def push(index: int, amount: int, seen: set[int]) -> int:
        for port in groups[index][1]:
            if port in seen:
                continue
            seen.add(port)
            moved = min(amount, free[port])
            if not moved:
                for placed_group, ports in enumerate(placed):
                    if ports.get(port):
                        moved = push(placed_group, min(amount, ports[port]), seen)
                        if moved:
                            ports[port] -= moved
                            free[port] += moved
                            break
            if moved:
                free[port] -= moved
                placed[index][port] = placed[index].get(port, 0) + moved
                return moved
        return 0

    for index, (size, _ports) in enumerate(groups):
        remaining = size
        while remaining:
            moved = push(index, remaining, set())
            if not moved:
                return False
            remaining -= moved
    return True


class SharedLink(NamedTuple):
    """A link that a shift loads more than once: its sending port, the lowest such shift, and two of its pairs."""

    port: SwitchPort
    shift: int
    pairs: list[tuple[Hca, Hca]]


def shared_links(subnet: Graph, nodes: list[str]) -> list[SharedLink]:
    """Return the links that a shift of ``nodes`` loads more than once; none if the fabric is non-blocking for them.

    In shift k, each HCA of node i sends to the HCA with the same name of node i + k, on all rails at once. All shifts
    are checked together: the shifts of a path's sources are bits of one number, and a bit that a link has already is a
    second load. The paths must have been followed without a fault.
    """
    count = len(nodes)
    position = {node: index for index, node in enumerate(nodes)}
    sources: dict[str, dict[int, int]] = {}
    for hca, leaf in subnet.leaf_of.items():
        if hca.host in position:
            by_leaf = sources.setdefault(hca.name, {})
            by_leaf[leaf] = by_leaf.get(leaf, 0) | 1 << (-position[hca.host] % count)
    # The shift 0 loads nothing.
    every = (1 << count) - 2
    once: dict[int, int] = {}
    twice: dict[int, int] = {}
    for hca, home in subnet.leaf_of.items():
        if hca.host not in position:
            continue
        index, lid = position[hca.host], subnet.lids[hca]
        for leaf, bits in sources[hca.name].items():
            if leaf == home:
                continue
            shifts = ((bits << index) | (bits >> (count - index))) & every
            for channel in subnet.path(leaf, lid)[:-1]:
                loaded = once.get(channel, 0)
                if loaded & shifts:
                    twice[channel] = twice.get(channel, 0) | loaded & shifts
                once[channel] = loaded | shifts
    return [_shared(subnet, nodes, channel, shifts) for channel, shifts in sorted(twice.items())]


def _shared(subnet: Graph, nodes: list[str], channel: int, shifts: int) -> SharedLink:
    shift = (shifts & -shifts).bit_length() - 1
    position = {node: index for index, node in enumerate(nodes)}
    pairs = []
    for hca, home in subnet.leaf_of.items():
        if hca.host not in position or subnet.tables[channel // PORTS][subnet.lids[hca]] != channel % PORTS:
            continue
        source = Hca(nodes[(position[hca.host] - shift) % len(nodes)], hca.name)
        leaf = subnet.leaf_of.get(source, home)
        if leaf != home and channel in subnet.path(leaf, subnet.lids[hca]):
            pairs.append((source, hca))
    return SharedLink(subnet.channel(channel), shift, pairs[:2])
