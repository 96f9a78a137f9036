# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find where the hosts of an inventory stand and what they are linked to, with or without a blueprint. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Block, Site


@dataclass(frozen=True)
class Spot:
    """The place of a host: the index of its rack, its lowest unit from 1 and its height in units."""

    rack: int
    unit: int
    units: int


@dataclass(frozen=True)
class FleetRack:
    """A rack of the floor. ``block`` is the outermost block around it: "pod 3"."""

    name: str
    units: int
    block: str = ""


@dataclass
class FleetFloor:
    """The racks in the site's order, the spots of the hosts that stand in them, and the links between hosts."""

    racks: list[FleetRack] = field(default_factory=list)
    spots: dict[str, Spot] = field(default_factory=dict)
    links: Counter[tuple[str, str]] = field(default_factory=Counter)  # number of cables, by both ends


def floor_of(site: Site | None, ports: Iterable[tuple[str, Mapping[str, Any]]]) -> FleetFloor:
    """Return the floor of a blueprint's site. Without one it has only the links of roce_switch_ports, by switch."""
    if site is None:
        return FleetFloor(links=_links_of(ports))
    floor = FleetFloor()
    for index, rack in enumerate(site.racks):
        floor.racks.append(FleetRack(rack.name, rack.rack_spec.units, _outermost(rack)))
        for device in rack.devices:
            floor.spots[device.name] = Spot(index, device.unit, device.model.units)
    for cable in site.cables:
        floor.links[cable.a.name, cable.b.name] += 1
    return floor


def _outermost(rack: Block) -> str:
    block, inner = rack.parent, rack
    while block is not None and block.parent is not None:
        inner, block = block, block.parent
    return f"{inner.kind} {inner.numbers[inner.kind]}" if inner is not rack else ""


def _links_of(ports: Iterable[tuple[str, Mapping[str, Any]]]) -> Counter[tuple[str, str]]:
    links: Counter[tuple[str, str]] = Counter()
    of_both: Counter[tuple[str, str]] = Counter()
    for switch, listed in ports:
        for port in listed.values() if isinstance(listed, Mapping) else ():
            peer = port.get("peer") if isinstance(port, Mapping) else None
            if not isinstance(peer, Mapping):
                continue
            if "host" in peer:
                links[str(peer["host"]), switch] += 1
            elif "switch" in peer:
                first, second = sorted((switch, str(peer["switch"])))
                of_both[first, second] += 1
    # Both switches name the link between them.
    links.update({ends: -(-count // 2) for ends, count in of_both.items()})
    return links
