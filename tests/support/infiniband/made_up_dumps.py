# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tables that opensm would write for a planned tree, with routes by which no shift of the nodes loads a link twice.

HCA i of its leaf goes up by the leaf's up port i, and from each switch further up by the up port with the number of the
down port by which it came. All switches of a layer take these numbers for it.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, Hca, SwitchPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.tables import (
    ACTIVE,
    NO_PORT,
    SubnetNode,
    SwitchTable,
    Tables,
)

_GUID_OF_SWITCHES, _GUID_OF_HCAS = 0x200000, 0x100000


@dataclass
class Forwarding(MutableMapping[Hca, int]):
    """The forwarding table of a switch: the port by HCA; ``ports`` has it by LID."""

    lids: dict[Hca, int]
    ports: bytearray

    def __getitem__(self, hca: Hca) -> int:
        return self.ports[self.lids[hca]]

    def __setitem__(self, hca: Hca, port: int) -> None:
        self.ports[self.lids[hca]] = port

    def __delitem__(self, hca: Hca) -> None:
        self.ports[self.lids[hca]] = NO_PORT

    def __iter__(self) -> Iterator[Hca]:
        return (hca for hca, lid in self.lids.items() if self.ports[lid] != NO_PORT)

    def __len__(self) -> int:
        return sum(1 for _hca in self)


@dataclass
class Dumps:
    """Forwarding tables by switch (HCA -> port), from which the texts of opensm's dumps follow."""

    fabric: Fabric
    forwarding: dict[str, Forwarding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Route each HCA up and down. The HCAs of a leaf have LIDs that follow each other."""
        peers: dict[SwitchPort, SwitchPort] = {}
        ups: dict[str, list[int]] = {}
        downs: dict[str, list[int]] = {}
        over: dict[str, dict[str, list[int]]] = {}
        for low, up in sorted(self.fabric.uplinks):
            peers[low] = up
            ups.setdefault(low.switch, []).append(low.number)
            over.setdefault(low.switch, {}).setdefault(up.switch, []).append(up.number)
            downs.setdefault(up.switch, []).append(up.number)
        places = {upper: {port: at for at, port in enumerate(sorted(ports))} for upper, ports in downs.items()}
        ranks = self.fabric.ranks()
        hcas = [hca for leaf in self.fabric.leaves.values() for hca in leaf]
        self.lids = {hca: at for at, hca in enumerate(hcas, 1)}
        self.forwarding = {
            switch: Forwarding(self.lids, bytearray([NO_PORT]) * (len(hcas) + 1)) for switch in self.fabric.switches
        }
        for leaf, members in self.fabric.leaves.items():
            below = _below(leaf, over)
            start = self.lids[members[0]]
            # By rank the place that each HCA takes among the ports of a switch, and the ports on its own way.
            positions: dict[int, list[int]] = {ranks[leaf]: list(range(len(members)))}
            chosen: list[tuple[str, Hca, int]] = [(leaf, hca, self.fabric.hcas[hca].number) for hca in members]
            for at, hca in enumerate(members):
                switch = leaf
                while switch in ups:
                    upper = peers[SwitchPort(switch, ups[switch][at % len(ups[switch])])]
                    at, switch = places[upper.switch][upper.number], upper.switch
                    positions.setdefault(ranks[switch], []).append(at)
                    chosen.append((switch, hca, upper.number))
            spread: dict[tuple[int, tuple[int, ...]], bytes] = {}
            for switch, table in self.forwarding.items():
                ports = tuple(below.get(switch) or ups.get(switch, ()))
                key = (ranks[switch], ports)
                if ports and key not in spread:
                    spread[key] = bytes(ports[at % len(ports)] for at in positions[ranks[switch]])
                if ports:
                    table.ports[start : start + len(members)] = spread[key]
            for switch, hca, port in chosen:
                self.forwarding[switch][hca] = port

    def tables(self) -> Tables:
        """Return what ``read_tables`` reads in the texts, without these: those of a large fabric have gigabytes."""
        guids = {name: f"{_GUID_OF_SWITCHES + at:016x}" for at, name in enumerate(self.fabric.switches)}
        far: dict[str, dict[int, SubnetNode]] = {name: {} for name in self.fabric.switches}
        for low, up in self.fabric.uplinks:
            far[low.switch][low.number] = SubnetNode("SW", guids[up.switch], up.switch, 0, up.number)
            far[up.switch][up.number] = SubnetNode("SW", guids[low.switch], low.switch, 0, low.number)
        for hca, port in self.fabric.hcas.items():
            far[port.switch][port.number] = SubnetNode(
                "CA", f"{_GUID_OF_HCAS + self.lids[hca]:016x}", str(hca), self.lids[hca], 1
            )
        return Tables(
            {guids[name]: SwitchTable(name, far[name], self.forwarding[name].ports) for name in self.fabric.switches},
            dict(self.lids),
            list(self.lids),
            {frozenset(ends): ACTIVE for ends in [*self.fabric.hcas.items(), *self.fabric.uplinks]},
        )

    def links_text(self) -> str:
        """Return opensm-subnet.lst."""
        lids = self.lids
        guids = {name: _GUID_OF_SWITCHES + at for at, name in enumerate(self.fabric.switches)}

        def end(port: SwitchPort) -> str:
            return switch(port.switch, guids[port.switch], port.number)

        links = [link(end(low), end(up)) for low, up in self.fabric.uplinks]
        for name, port in self.fabric.hcas.items():
            links.append(link(hca(str(name), _GUID_OF_HCAS + lids[name], lids[name]), end(port)))
        return "".join(links)

    def forwarding_text(self) -> str:
        """Return opensm-lfts.dump."""
        lids = self.lids
        lines = []
        for at, (switch, ports) in enumerate(self.forwarding.items()):
            lines.append(f"Unicast lids [0-9] of switch Lid 60000 guid 0x{_GUID_OF_SWITCHES + at:016x} ('{switch}'):")
            lines += [f"0x{lids[hca]:04x} {port:03d} # Channel Adapter: '{hca}'" for hca, port in ports.items()]
            lines.append(f"{len(ports)} lids dumped")
        return "\n".join(lines) + "\n"

    def order_text(self) -> str:
        """Return opensm-ftree-ca-order.dump."""
        lids = self.lids
        return "".join(f"0x{lids[hca]:04x}\t{hca}\n" for hcas in self.fabric.leaves.values() for hca in hcas)


def switch(name: str, guid: int, port: int) -> str:
    """Return a switch's port as opensm-subnet.lst has it."""
    return _node("SW", guid, name, 60000, port)


def hca(name: str, guid: int, lid: int) -> str:
    """Return an HCA's port as opensm-subnet.lst has it."""
    return _node("CA", guid, name, lid, 1)


def link(one: str, other: str) -> str:
    """Return the two lines of a link in opensm-subnet.lst."""
    return f"{one} {other} PHY=4x LOG=ACT SPD=??\n{other} {one} PHY=4x LOG=ACT SPD=??\n"


def _node(kind: str, guid: int, description: str, lid: int, port: int) -> str:
    return (
        f"{{ {kind} Ports:40 SystemGUID:{guid:016x} NodeGUID:{guid:016x} PortGUID:{guid:016x} VenID:000000 DevID:0000 "
        f"Rev:000000A1 {{{description}}} LID:{lid:04X} PN:{port:02X} }}"
    )


def _below(leaf: str, over: dict[str, dict[str, list[int]]]) -> dict[str, list[int]]:
    """Return the ports of each switch above a leaf that lead down to it; ``over``: lower -> upper -> its ports."""
    below: dict[str, list[int]] = {leaf: []}
    layer = {leaf}
    while layer:
        new: dict[str, list[int]] = {}
        for lower in layer:
            for upper, ports in over.get(lower, {}).items():
                if upper not in below:
                    new.setdefault(upper, []).extend(ports)
        below.update({upper: sorted(ports) for upper, ports in new.items()})
        layer = {*new}
    return below
