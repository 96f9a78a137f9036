# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follow the routes of a subnet through its forwarding tables, from every leaf to every HCA. Pure.

Forwarding is by destination, so all HCAs of a leaf have one path to a destination from the leaf on. A channel is one
direction of a link. Without a cycle among the dependencies of channels there is no credit loop on any virtual lane:
lanes only divide channels (Dally, Seitz 1987).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Hca, SwitchPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.tables import NO_PORT, Tables

# More than the ports of a switch: a channel is the number of its switch times this, and its port.
PORTS = 256
# What a port leads to, besides the number of a switch.
_NOTHING = -1


@dataclass
class Graph:
    """The tables by numbers of switches. ``down``: switch -> port -> LID of the HCA; ``over``: port -> far switch."""

    names: list[str]
    tables: list[bytearray]
    over: list[list[int]]
    down: list[dict[int, int]]
    leaf_of: dict[Hca, int]
    lids: dict[Hca, int]
    levels: list[int]

    def channel(self, number: int) -> SwitchPort:
        """Return the port that sends on a channel."""
        return SwitchPort(self.names[number // PORTS], number % PORTS)

    def ups(self, switch: int) -> list[int]:
        """Return the ports of a switch to the switches above it."""
        level = self.levels[switch]
        return [port for port, far in enumerate(self.over[switch]) if far != _NOTHING and self.levels[far] > level]

    def path(self, leaf: int, lid: int) -> list[int]:
        """Return the channels from a leaf to a LID; the path must have been followed without a fault."""
        channels, switch = [], leaf
        while True:
            port = self.tables[switch][lid]
            channels.append(switch * PORTS + port)
            if self.down[switch].get(port) == lid:
                return channels
            switch = self.over[switch][port]


@dataclass
class Routes:
    """The findings on all paths: faults by (leaf, HCA), dependencies by channel, foreign leaves on paths."""

    faults: dict[tuple[str, Hca], str] = field(default_factory=dict)
    dependencies: dict[int, set[int]] = field(default_factory=dict)
    through_leaves: dict[str, tuple[str, Hca]] = field(default_factory=dict)
    pairs: int = 0


def graph(tables: Tables) -> Graph:
    """Return the tables by numbers."""
    numbers = {guid: number for number, guid in enumerate(tables.switches)}
    over, down = [], []
    leaf_of: dict[Hca, int] = {}
    hca_of = {lid: hca for hca, lid in tables.hcas.items()}
    for number, table in enumerate(tables.switches.values()):
        far_switches = [_NOTHING] * PORTS
        lids = {}
        for port, far in table.far.items():
            if far.guid in numbers:
                far_switches[port] = numbers[far.guid]
            elif far.lid in hca_of:
                lids[port] = far.lid
                leaf_of[hca_of[far.lid]] = number
        over.append(far_switches)
        down.append(lids)
    names = [table.name for table in tables.switches.values()]
    length = max(tables.hcas.values(), default=0) + 1
    padded = [table.ports + bytearray([NO_PORT] * (length - len(table.ports))) for table in tables.switches.values()]
    return Graph(names, padded, over, down, leaf_of, tables.hcas, _levels(over, {*leaf_of.values()}))


def _levels(over: list[list[int]], leaves: set[int]) -> list[int]:
    """Return how many switches each switch is above the nearest leaf."""
    levels = [_NOTHING] * len(over)
    layer = sorted(leaves)
    level = 0
    while layer:
        for switch in layer:
            levels[switch] = level
        layer = sorted({far for switch in layer for far in over[switch] if far != _NOTHING and levels[far] == _NOTHING})
        level += 1
    return levels


def follow(subnet: Graph) -> Routes:
    """Follow the path from each leaf to each HCA, once for all HCAs of the leaf."""
    routes = Routes()
    hcas_by_leaf: dict[int, int] = {}
    for leaf in subnet.leaf_of.values():
        hcas_by_leaf[leaf] = hcas_by_leaf.get(leaf, 0) + 1
    for hca, home in subnet.leaf_of.items():
        reached = {home}
        for leaf, count in hcas_by_leaf.items():
            fault = _follow_one(subnet, routes, leaf, hca, reached, home, hcas_by_leaf)
            if fault:
                routes.faults[subnet.names[leaf], hca] = fault
            else:
                routes.pairs += count - (leaf == home)
    return routes


def _follow_one(
    subnet: Graph, routes: Routes, leaf: int, hca: Hca, reached: set[int], home: int, leaves: dict[int, int]
) -> str:
    """Follow one path until a switch from which the HCA was ``reached`` before; return its fault, "" for none."""
    lid = subnet.lids[hca]
    tables, over, dependencies = subnet.tables, subnet.over, routes.dependencies
    switch, previous_channel = leaf, _NOTHING
    passed: list[int] = []
    while True:
        port = tables[switch][lid]
        channel = switch * PORTS + port
        if previous_channel != _NOTHING:
            if previous_channel in dependencies:
                dependencies[previous_channel].add(channel)
            else:
                dependencies[previous_channel] = {channel}
            if switch in leaves and switch != home:
                routes.through_leaves.setdefault(subnet.names[switch], (subnet.names[leaf], hca))
        if switch == home:
            if subnet.down[switch].get(port) != lid:
                return f"{subnet.names[switch]} sends it to port {port}, where the HCA is not"
            reached.update(passed)
            return ""
        if switch in reached:
            reached.update(passed)
            return ""
        far = over[switch][port] if port != NO_PORT else _NOTHING
        if far == _NOTHING:
            port_text = "no port" if port == NO_PORT else f"port {port}, which leads to no switch"
            return f"{subnet.names[switch]} sends it to {port_text}"
        if switch in passed:
            return f"the path is a loop through {', '.join(subnet.names[switch_number] for switch_number in passed)}"
        passed.append(switch)
        switch, previous_channel = far, channel


def cycle(dependencies: dict[int, set[int]]) -> list[int]:
    """Return channels of which each waits for the next one, and the last for the first; none if there is no cycle."""
    waits = dict.fromkeys(dependencies, 0)
    for channels in dependencies.values():
        for channel in channels:
            waits[channel] = waits.get(channel, 0) + 1
    free = [channel for channel, count in waits.items() if not count]
    while free:
        channel = free.pop()
        del waits[channel]
        for behind in dependencies.get(channel, ()):
            waits[behind] -= 1
            if not waits[behind]:
                free.append(behind)
    if not waits:
        return []
    # Each remaining channel has one before it that remains, so going back ends in a cycle.
    previous_channels = {
        behind: channel for channel in waits for behind in dependencies.get(channel, ()) if behind in waits
    }
    seen: dict[int, None] = {}
    channel = next(iter(waits))
    while channel not in seen:
        seen[channel] = None
        channel = previous_channels[channel]
    members = list(seen)
    return members[members.index(channel) :][::-1]


def dependencies_in_words(subnet: Graph, channels: list[int]) -> str:
    """Return a cycle of channels as text, the first ones of a long one."""
    names = [str(subnet.channel(channel)) for channel in channels[:6]]
    return " -> ".join([*names, "..." if len(channels) > len(names) else names[0]])


def rails(subnet: Graph) -> Iterator[tuple[str, set[str]]]:
    """Return each leaf with the RDMA devices of its HCAs."""
    names: dict[int, set[str]] = {}
    for hca, leaf in subnet.leaf_of.items():
        names.setdefault(leaf, set()).add(hca.name)
    return ((subnet.names[leaf], names[leaf]) for leaf in sorted(names))
