# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check fabrics: oversubscription, rail alignment, and the ports of a NIC at different switches."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.finding import BrokenRule
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site, SiteDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import Promise


def check_fabric(site: Site, promise: Promise) -> Iterator[BrokenRule]:
    """Return the findings about a fabric's declared properties, except for failures."""
    if promise.oversubscription:
        yield from _oversubscription(site, promise)
    if promise.nic_ports_apart:
        yield from _apart(site, promise)
    if promise.rail_aligned:
        yield from _rails(site, promise)


def nic_of(device: SiteDevice, group: str, port: str) -> tuple[str, int]:
    """Return the card of a port: its group of ports, and its number in the group."""
    ports = device.model.ports[group]
    return group, ports.names.index(port) // ports.nic_ports


def _oversubscription(site: Site, promise: Promise) -> Iterator[BrokenRule]:
    """Compare a switch's bandwidth to devices below it with its bandwidth to switches above it."""
    down: dict[str, float] = {}
    up: dict[str, float] = {}
    for cable in site.cables:
        if cable.rule.fabric == promise.fabric and cable.a.kind is not cable.b.kind:
            down[cable.b.name] = down.get(cable.b.name, 0) + cable.speed_gbit_s
            up[cable.a.name] = up.get(cable.a.name, 0) + cable.speed_gbit_s
    names_by_speeds: dict[tuple[float, float], list[str]] = {}
    for name in down:
        if name in up and down[name] > promise.oversubscription * up[name] * (1 + 1e-9):
            names_by_speeds.setdefault((down[name], up[name]), []).append(name)
    for (down_gbit_s, up_gbit_s), names in names_by_speeds.items():
        yield BrokenRule(
            "oversubscription",
            fold(names),
            f"{down_gbit_s:g} Gbit/s below and {up_gbit_s:g} above are {down_gbit_s / up_gbit_s:.2f} to 1, "
            f"but {promise.fabric} declares {promise.oversubscription:g}",
            site.blueprint.where("checks", promise.fabric, "oversubscription"),
        )


def _apart(site: Site, promise: Promise) -> Iterator[BrokenRule]:
    nics_by_switch: dict[str, list[str]] = {}
    seen: dict[tuple[str, str, int], set[str]] = {}
    for cable in site.cables:
        if cable.rule.fabric != promise.fabric:
            continue
        group, number = nic_of(cable.a, cable.rule.ports, cable.a_port)
        switches = seen.setdefault((cable.a.name, group, number), set())
        if cable.b.name in switches:
            nics_by_switch.setdefault(f"{cable.a.kind.name} NIC {number}", []).append(cable.a.name)
        switches.add(cable.b.name)
    switches_of = {rule.to for rule in site.blueprint.links if rule.fabric == promise.fabric}
    for nic, names in nics_by_switch.items():
        if site.devices[names[0]].kind.name not in switches_of:
            yield BrokenRule(
                "ports of a NIC at different switches",
                fold(names),
                f"two ports of {nic} are connected to the same switch",
                site.blueprint.where("checks", promise.fabric, "nic_ports_apart"),
            )


def _rails(site: Site, promise: Promise) -> Iterator[BrokenRule]:
    """Find leaves of several rails. Models name ports differently: there, the places in their groups may agree."""
    switches_of = {rule.to for rule in site.blueprint.links if rule.fabric == promise.fabric}
    ends: dict[str, set[tuple[str, str, int]]] = {}  # leaf -> model, port, place of the port in its group
    for cable in site.cables:
        if cable.rule.fabric == promise.fabric and cable.a.kind.name not in switches_of:
            place = cable.a.model.ports[cable.rule.ports].names.index(cable.a_port)
            ends.setdefault(cable.b.name, set()).add((cable.a.model.name, cable.a_port, place))
    mixed: dict[str, list[str]] = {}
    for name, ports_of_leaf in ends.items():
        models, ports, places = (set(values) for values in zip(*ports_of_leaf))
        if len(ports_of_leaf) > len(models) or (len(ports) > 1 and len(places) > 1):
            mixed.setdefault(", ".join(sorted(ports)), []).append(name)
    for ports_text, names in mixed.items():
        yield BrokenRule(
            "rail alignment",
            fold(names),
            f"a leaf of {promise.fabric} must be one rail, but is connected to the ports {ports_text} of its nodes",
            site.blueprint.where("checks", promise.fabric, "rail_aligned"),
        )
