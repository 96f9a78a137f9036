# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tables that opensm would write for a planned tree, with routes by which no shift of the nodes loads a link twice.

HCA i of its leaf goes up by the leaf's up port i, and from each switch further up by the up port with the number of the
down port by which it came. All switches of a layer take these numbers for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, Hca, SwitchPort

_GUID_OF_SWITCHES, _GUID_OF_HCAS = 0x200000, 0x100000


@dataclass
class Dumps:
    """Forwarding tables by switch (HCA -> port), from which the texts of opensm's dumps follow."""

    fabric: Fabric
    forwarding: dict[str, dict[Hca, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Route each HCA up and down."""
        peers: dict[SwitchPort, SwitchPort] = {}
        ups: dict[str, list[int]] = {}
        downs: dict[str, dict[int, str]] = {}
        for low, up in sorted(self.fabric.uplinks):
            peers[low] = up
            ups.setdefault(low.switch, []).append(low.number)
            downs.setdefault(up.switch, {})[up.number] = low.switch
        ranks = self.fabric.ranks()
        self.forwarding = {switch: {} for switch in self.fabric.switches}
        for leaf, hcas in self.fabric.leaves.items():
            below = _below(leaf, downs)
            for at, hca in enumerate(hcas):
                chosen, position = {leaf: self.fabric.hcas[hca].number}, {ranks[leaf]: at}
                switch = leaf
                while switch in ups:
                    upper = peers[SwitchPort(switch, ups[switch][at % len(ups[switch])])]
                    at = sorted(downs[upper.switch]).index(upper.number)
                    switch = upper.switch
                    chosen[switch], position[ranks[switch]] = upper.number, at
                for switch in self.fabric.switches:
                    ports = below.get(switch) or ups.get(switch, ())
                    if ports:
                        port = chosen.get(switch, ports[position[ranks[switch]] % len(ports)])
                        self.forwarding[switch][hca] = port

    @property
    def lids(self) -> dict[Hca, int]:
        """Return a LID for each HCA."""
        return {hca: at for at, hca in enumerate(self.fabric.hcas, 1)}

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


def _below(leaf: str, downs: dict[str, dict[int, str]]) -> dict[str, list[int]]:
    """Return the ports of each switch above a leaf that lead down to it."""
    below: dict[str, list[int]] = {leaf: []}
    layer = {leaf}
    while layer:
        new = {
            upper: sorted(port for port, lower in ports.items() if lower in layer)
            for upper, ports in downs.items()
            if upper not in below and layer & {*ports.values()}
        }
        below.update(new)
        layer = {*new}
    return below
