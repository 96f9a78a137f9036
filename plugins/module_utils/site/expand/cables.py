# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lay the cables by the rules of links. No port has two cables.

Ports are taken in order. Devices that are added at the end when a site grows therefore move no existing cable.
"""

from __future__ import annotations

from bisect import bisect_left

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import (
    UNIT_M,
    Block,
    Cable,
    Site,
    SiteDevice,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import LinkRule, PortGroup


def lay_cables(site: Site) -> None:
    """Add the cables of all rules. Raises SiteError for a port that is missing or taken."""
    for rule in site.blueprint.links:
        uppers: dict[int, list[SiteDevice]] = {}
        per = site.blueprint.kinds[rule.to].per
        for device in site.by_kind[rule.to]:
            uppers.setdefault(device.block.numbers[per], []).append(device)
        for name in rule.froms:
            for device in site.by_kind[name]:
                far_devices = uppers.get(_shared(site, rule, device, per), [])
                if name == rule.to:
                    # Links among devices of one kind connect each pair once.
                    far_devices = far_devices[device.index + 1 :]
                elif not far_devices:
                    raise _error(site, rule, "to", f"{device.name} has no {rule.to} in its {per}", "place one there")
                (_each if rule.each else _by_port)(site, rule, device, far_devices)


def _shared(site: Site, rule: LinkRule, device: SiteDevice, per: str) -> int:
    """Return the number of the block in which ``device`` finds the devices that its links go to."""
    number = device.block.numbers.get(per) or device.rack.numbers.get(per)
    if number is None:
        raise _error(site, rule, "from", f"{device.name} is not in a {per}, but each {rule.to} is", "place it in one")
    return number


def _each(site: Site, rule: LinkRule, device: SiteDevice, far_devices: list[SiteDevice]) -> None:
    count = len(far_devices) // rule.planes
    if count * rule.planes != len(far_devices):
        raise _error(
            site,
            rule,
            "planes",
            f"{len(far_devices)} {rule.to} cannot be divided into {rule.planes} equal planes",
            "correct either number",
        )
    if not far_devices:
        return
    plane = device.index % rule.planes
    ports, far_ports = _ports(site, device, rule.ports), _ports(site, far_devices[0], rule.to_ports)
    for far_device in far_devices[plane * count : (plane + 1) * count]:
        for _link in range(rule.each):
            _connect(site, rule, device, ports, far_device, far_ports)


def _by_port(site: Site, rule: LinkRule, device: SiteDevice, far_devices: list[SiteDevice]) -> None:
    ports, far_ports = _ports(site, device, rule.ports), _ports(site, far_devices[0], rule.to_ports)
    for index in range(len(ports.names)):
        far_device = far_devices[index % len(far_devices)]
        _connect(site, rule, device, ports, far_device, far_ports)


def _ports(site: Site, device: SiteDevice, group: str) -> PortGroup:
    return device.model.ports[group]


def _next(site: Site, rule: LinkRule, device: SiteDevice, group: PortGroup) -> str:
    index = device.taken.get(group.name, 0)
    if index == len(group.names):
        users = sorted({cable.rule.name for cable in device.cables.values()})
        raise _error(
            site,
            rule,
            "",
            f"ports exhausted: {device.name} has {index} ports {group.name}, all used by {', '.join(users)}",
            f"add a {device.kind.name}, or use a model with more ports",
        )
    device.taken[group.name] = index + 1
    return group.names[index]


def _connect(site: Site, rule: LinkRule, a: SiteDevice, a_ports: PortGroup, b: SiteDevice, b_ports: PortGroup) -> None:
    a_port, b_port = _next(site, rule, a, a_ports), _next(site, rule, b, b_ports)
    cable = Cable(rule, len(site.cables) + 1, a, a_port, b, b_port, a_ports.speed_gbit_s)
    cable.route_m = route_m(site, a, b)
    cable.length_m = stocked_m(cable.route_m, rule.medium.stock_m)
    a.cables[a_port] = b.cables[b_port] = cable
    site.cables.append(cable)


def route_m(site: Site, a: SiteDevice, b: SiteDevice) -> float:
    """Return the length of the route between two devices, in metres to the centimetre.

    In one rack it is the difference of their heights. Between racks the route goes up to the tray, along and across
    the rows, and down. The floor's slack is added once for both ends together.
    """
    floor = site.blueprint.floor
    rack_a, rack_b = a.rack, b.rack
    if rack_a is rack_b:
        return round(abs(a.height_m - b.height_m) + floor.slack_m, 2)
    up = _top_m(rack_a, floor.tray_m) - a.height_m
    down = _top_m(rack_b, floor.tray_m) - b.height_m
    # Trays may be at different heights above racks of different heights.
    between = abs(_top_m(rack_a, 0) - _top_m(rack_b, 0))
    return round(up + down + between + abs(rack_a.x_m - rack_b.x_m) + abs(rack_a.y_m - rack_b.y_m) + floor.slack_m, 2)


def _top_m(rack: Block, tray_m: float) -> float:
    return rack.rack_spec.units * UNIT_M + tray_m


def stocked_m(route_m: float, stock_m: tuple[float, ...]) -> float:
    """Return the shortest length that is sold and long enough; above the longest, the route rounded up to metres."""
    index = bisect_left(stock_m, route_m)
    return stock_m[index] if index < len(stock_m) else float(-int(-route_m // 1))


def _error(site: Site, rule: LinkRule, setting: str, cause: str, remedy: str) -> SiteError:
    path = ("links", rule.name, *([setting] if setting else []))
    return SiteError(cause, remedy, subject=".".join(path), where=site.blueprint.where(*path))
