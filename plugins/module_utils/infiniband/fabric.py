# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An InfiniBand fabric of a site: its HCAs, switches and links, as the blueprint's rules lay them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Union

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import number_at_end
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site, SiteDevice

# The ranks that opensm's ftree accepts, counted as switches from a root to a leaf (opensm.8, "Fat-tree Routing").
FTREE_RANKS = range(2, 9)


class Hca(NamedTuple):
    """An HCA: its host, and its RDMA device. Linux writes both into its node description."""

    host: str
    name: str

    def __str__(self) -> str:
        return f"{self.host} {self.name}"


class SwitchPort(NamedTuple):
    """A port of a switch, by its number in the subnet."""

    switch: str
    number: int

    def __str__(self) -> str:
        return f"{self.switch} port {self.number}"


# An end of a link.
LinkEnd = Union[Hca, SwitchPort]


@dataclass
class Fabric:
    """A fabric. ``hcas``: the leaf's port of each HCA. ``uplinks``: (lower, upper) of each link between switches."""

    name: str
    hcas: dict[Hca, SwitchPort] = field(default_factory=dict)
    uplinks: list[tuple[SwitchPort, SwitchPort]] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)
    # The blueprint's names of switches' ports.
    ports: dict[SwitchPort, str] = field(default_factory=dict)

    def name_of(self, end: LinkEnd) -> str:
        """Return the name of an end, such as "leaf-1 ib3" or "node-0001 mlx5_0"."""
        return f"{end.switch} {self.ports[end]}" if isinstance(end, SwitchPort) else str(end)

    @property
    def links(self) -> list[tuple[LinkEnd, LinkEnd]]:
        """Return both ends of each link."""
        return [*self.hcas.items(), *self.uplinks]

    @property
    def roots(self) -> list[str]:
        """Return the switches with no switch above them."""
        lower = {low.switch for low, _up in self.uplinks}
        return [switch for switch in self.switches if switch not in lower]

    @property
    def leaves(self) -> dict[str, list[Hca]]:
        """Return the HCAs of each leaf."""
        leaves: dict[str, list[Hca]] = {}
        for hca, port in self.hcas.items():
            leaves.setdefault(port.switch, []).append(hca)
        return leaves

    @property
    def subnets(self) -> list[str]:
        """Return the first switch of each part that no link between switches joins with the others."""
        neighbours: dict[str, list[str]] = {}
        for low, up in self.uplinks:
            neighbours.setdefault(low.switch, []).append(up.switch)
            neighbours.setdefault(up.switch, []).append(low.switch)
        firsts: list[str] = []
        joined: set[str] = set()
        for switch in self.switches:
            unvisited = [] if switch in joined else [switch]
            firsts += unvisited
            while unvisited:
                near = unvisited.pop()
                if near not in joined:
                    joined.add(near)
                    unvisited += neighbours.get(near, ())
        return firsts

    def ranks(self) -> dict[str, int]:
        """Return the rank of each switch: 0 for a root, for others one more than the lowest rank above them."""
        uppers: dict[str, set[str]] = {}
        for low, up in self.uplinks:
            uppers.setdefault(up.switch, set()).add(low.switch)
        ranks = dict.fromkeys(self.roots, 0)
        layer = list(ranks)
        while layer:
            lower_switches = {low for switch in layer for low in uppers.get(switch, ()) if low not in ranks}
            ranks.update(dict.fromkeys(lower_switches, ranks[layer[0]] + 1))
            layer = sorted(lower_switches)
        return ranks

    def ftree_refusals(self) -> list[str]:
        """Return why opensm's ftree would refuse this tree even if it is told the roots; none if it accepts it."""
        ranks = self.ranks()
        by_rank: dict[int, list[str]] = {}
        for leaf in self.leaves:
            by_rank.setdefault(ranks[leaf], []).append(leaf)
        if len(by_rank) > 1:
            places = "; ".join(f"{min(leaves)} has rank {rank}" for rank, leaves in sorted(by_rank.items()))
            return [f"HCAs are connected to switches of several ranks: {places}"]
        depth = max(by_rank, default=0) + 1
        if depth not in FTREE_RANKS:
            return [f"the tree has {depth} layers of switches, but ftree needs {FTREE_RANKS[0]} to {FTREE_RANKS[-1]}"]
        return []


def fabrics(site: Site) -> list[str]:
    """Return the names of a site's InfiniBand fabrics."""
    return list(dict.fromkeys(rule.fabric for rule in site.blueprint.links if rule.infiniband))


def fabric_of(site: Site, name: str) -> Fabric:
    """Return a fabric by its name. Raises InfinibandError for one that the site does not have."""
    names = fabrics(site)
    if name not in names:
        has = f"its InfiniBand fabrics are {', '.join(names)}" if names else "no link of it has infiniband: true"
        raise InfinibandError(
            f"{site.blueprint.site} has none of that name: {has}", "correct it", subject=f"fabric {name}"
        )
    switch_kinds = {rule.to for rule in site.blueprint.links if rule.fabric == name}
    fabric = Fabric(name)
    switches = set()
    for cable in site.cables:
        if cable.rule.fabric != name or not cable.rule.infiniband:
            continue
        upper = _port(fabric, cable.b, cable.b_port)
        switches.add(cable.b.name)
        if cable.a.kind.name not in switch_kinds:
            fabric.hcas[Hca(cable.a.name, cable.a_port)] = upper
        elif cable.a.kind is cable.b.kind:
            raise InfinibandError(
                f"{cable.a.name} and {cable.b.name} are linked with each other, so the fabric is no tree",
                "link each kind of switch with the kind above it",
                subject=f"fabric {name}",
            )
        else:
            switches.add(cable.a.name)
            fabric.uplinks.append((_port(fabric, cable.a, cable.a_port), upper))
    fabric.switches = [device for device in site.devices if device in switches]
    if len(fabric.subnets) > 1:
        raise InfinibandError(
            f"no links lead from {fabric.subnets[0]} to {fabric.subnets[1]}, so that they are subnets of their own",
            "give the links of each subnet a fabric of its own",
            subject=f"fabric {name}",
        )
    return fabric


def _port(fabric: Fabric, device: SiteDevice, port: str) -> SwitchPort:
    """Return a switch's port, whose number is the number at the end of its name."""
    number = number_at_end(port)
    if not number:
        raise InfinibandError(
            "the port has no number at its end, as InfiniBand ports have",
            "name it ib1 to ibN",
            subject=f"{device.name} {port}",
        )
    same_number = [
        other_port for other_port in device.cables if other_port != port and number_at_end(other_port) == number
    ]
    if same_number:
        raise InfinibandError(
            f"{min(port, *same_number)} has the same number",
            "name the ports ib1 to ibN",
            subject=f"{device.name} {max(port, *same_number)}",
        )
    result = SwitchPort(device.name, int(number))
    fabric.ports[result] = port
    return result
