# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hold what devices see against the cables of a site: missing, wrong, swapped, one-sided, and wrong speeds. Pure.

A device that was not read is not judged, and a cable of which neither end was read is counted as not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import (
    InfinibandLink,
    Neighbour,
    infiniband_device,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Cable, Device, Site


class End(NamedTuple):
    """An end of a cable: a device, and its interface."""

    device: str
    interface: str

    def __str__(self) -> str:
        return f"{self.device} {self.interface}"


class Fault(NamedTuple):
    """A fault of a cable, and the next step."""

    kind: str
    cable: str
    message: str


def interfaces(site: Site) -> dict[tuple[str, str], str]:
    """Return the name that its system has for each (device, port) with a cable."""
    names = {
        (model.name, port): name
        for kind in site.blueprint.kinds.values()
        if (model := kind.model)
        for group in model.ports.values()
        for port, name in zip(group.names, group.interfaces)
    }
    return {
        (device.name, port): names[device.kind.model.name, port]
        for device in site.devices.values()
        if device.kind.model
        for port in device.cables
    }


def compare(
    site: Site,
    seen: Mapping[str, Mapping[str, Neighbour]],
    speeds: Mapping[str, Mapping[str, float]] | None = None,
    infiniband: Iterable[InfinibandLink] | None = None,
) -> dict[str, Any]:
    """Return ``faults``, and how many cables are ``right``, ``wrong`` and ``unread``.

    ``seen``: device -> interface -> neighbour, of the devices that were read. ``speeds``: device -> interface ->
    Gbit/s. ``infiniband``: the links of the subnet; left out, InfiniBand's cables are not read.
    """
    names = interfaces(site)
    expected: dict[End, tuple[End, Cable]] = {}
    for cable in site.cables:
        one = End(cable.a.name, names[cable.a.name, cable.a_port])
        other = End(cable.b.name, names[cable.b.name, cable.b_port])
        expected[one], expected[other] = (other, cable), (one, cable)
    hidden = {
        End(device.name, interface)
        for device in site.devices.values()
        if device.kind.model
        for group in device.kind.model.ports.values()
        if not group.lldp
        for interface in group.interfaces
    }
    views: dict[End, End] = {}
    for device, neighbours in seen.items():
        for interface, neighbour in neighbours.items():
            end = End(device, interface)
            far = _far(site, neighbour, expected.get(end))
            if far:
                views[end] = far
    read = set(seen)
    found_speeds = {End(device, name): speed for device, each in (speeds or {}).items() for name, speed in each.items()}
    subnet: set[str] = set()
    if infiniband is not None:
        for link in infiniband:
            one, other = _infiniband_end(site, link.one, names), _infiniband_end(site, link.other, names)
            views[one], views[other] = other, one
            found_speeds[one] = found_speeds[other] = link.speed_gbit_s
        # The subnet manager sees everything that is connected to it.
        subnet = {device.name for device in site.devices.values() if _has_infiniband(device)}
    faults: list[Fault] = []
    judged = {"right": 0, "wrong": 0, "unread": 0}
    wrong: dict[End, End] = {}
    for cable in site.cables:
        one = End(cable.a.name, names[cable.a.name, cable.a_port])
        other = expected[one][0]
        readers = [
            end
            for end in (one, other)
            if (end.device in subnet if cable.rule.infiniband else end.device in read and end not in hidden)
        ]
        # What is at a port that its own system does not see is unknown, unless the far end sees another device there.
        if hidden & {one, other} and not any(end in views for end in readers):
            readers = []
        if not readers:
            judged["unread"] += 1
            continue
        before = len(faults)
        faults += _judge(one, other, readers, views, wrong)
        # A NIC, or a switch's port, that has no link says -1 or 0.
        for end in readers:
            speed = found_speeds.get(end, 0)
            if views.get(end) == (other if end == one else one) and 0 < speed != cable.speed_gbit_s:
                message = f"{end} runs at {speed:g} Gbit/s, planned {cable.speed_gbit_s:g}; check port and cable"
                faults.append(Fault("speed", f"{one} - {other}", message))
                break
        judged["right" if len(faults) == before else "wrong"] += 1
    faults = _swapped(faults, wrong, expected)
    faults += _unplanned(views, expected)
    return {"faults": faults, **judged}


def report(found: Mapping[str, Any], silent: Mapping[str, str]) -> list[str]:
    """Return the result of ``compare`` as lines: sums, devices that were not read with their cause, faults."""
    sums = f"{found['right']} cables are right, {found['wrong']} wrong, {found['unread']} not read"
    unread = [f"{device} was not read: {cause}" for device, cause in silent.items()]
    return [sums, *unread, *(fault.message for fault in found["faults"])]


def _judge(
    one: End, other: End, readers: list[End], views: Mapping[End, End], wrong: dict[End, End]
) -> Iterable[Fault]:
    """Return the faults of one cable, and note in ``wrong`` which end sees which other one."""
    cable = f"{one} - {other}"
    views_here = {end: views.get(end) for end in readers}
    far = {one: other, other: one}
    strange = {end: view for end, view in views_here.items() if view and view != far[end]}
    if strange:
        wrong.update(strange)
        return [
            Fault("wrong", cable, f"{end} is connected to {view}, planned {far[end]}; move the cable")
            for end, view in strange.items()
        ]
    blind = [end for end, view in views_here.items() if view is None]
    if len(blind) == len(readers):
        return [Fault("missing", cable, f"{' and '.join(map(str, blind))}: no neighbour; connect the cable")]
    if blind:
        return [
            Fault(
                "one-sided", cable, f"{far[blind[0]]} sees {blind[0]}, which sees nothing; check its receiver and LLDP"
            )
        ]
    return []


def _swapped(faults: list[Fault], wrong: Mapping[End, End], expected: Mapping[End, tuple[End, Cable]]) -> list[Fault]:
    """Return the faults, where two cables whose ends were exchanged are one.

    The ends a and c see what the other one is planned to see: a-b and c-d are planned, a-d and c-b are there.
    """
    pairs: dict[tuple[str, str], str] = {}
    for end, view in wrong.items():
        if view not in expected:
            continue
        mate = expected[view][0]
        if mate != end and wrong.get(mate) == expected[end][0]:
            one, other = sorted((_name(end, expected), _name(mate, expected)))
            # Both ends of each cable tell the same swap.
            near, far = sorted((end.device, mate.device)), sorted((view.device, expected[end][0].device))
            side = near if near <= far else far
            pairs.setdefault((one, other), ", ".join(dict.fromkeys(side)))
    if not pairs:
        return faults
    told = {cable for pair in pairs for cable in pair}
    rest = [fault for fault in faults if not (fault.kind == "wrong" and fault.cable in told)]
    return rest + [
        Fault("swapped", f"{one} and {other}", f"swap the ends of the cables {one} and {other} at {side}")
        for (one, other), side in pairs.items()
    ]


def _name(end: End, expected: Mapping[End, tuple[End, Cable]]) -> str:
    """Return the name of the cable of an end, with the end at which its rule begins first."""
    far, cable = expected[end]
    return f"{end} - {far}" if cable.a.name == end.device else f"{far} - {end}"


def _unplanned(views: Mapping[End, End], expected: Mapping[End, tuple[End, Cable]]) -> list[Fault]:
    """Return links between two devices of the site where no cable is planned at either end."""
    faults = {}
    for end, view in views.items():
        if end not in expected and view not in expected:
            one, other = sorted((end, view))
            faults[one, other] = Fault(
                "unplanned", f"{one} - {other}", "there is no such cable in the blueprint; add or remove it"
            )
    return list(faults.values())


def _far(site: Site, neighbour: Neighbour, planned: tuple[End, Cable] | None) -> End | None:
    """Return the far end that a neighbour is, by the planned name where it has several; None for another site's."""
    name = neighbour.device if neighbour.device in site.devices else neighbour.device.split(".", 1)[0]
    if name not in site.devices or not neighbour.ports:
        return None
    if planned and planned[0].device == name and planned[0].interface in neighbour.ports:
        return planned[0]
    device = site.devices[name]
    known = _interface_names(device)
    return End(name, next((port for port in neighbour.ports if port in known), neighbour.ports[0]))


def _interface_names(device: Device) -> set[str]:
    groups = device.kind.model.ports.values() if device.kind.model else ()
    return {name for group in groups for name in group.interfaces}


def _has_infiniband(device: Device) -> bool:
    return any(cable.rule.infiniband for cable in device.cables.values())


def _infiniband_end(site: Site, end: tuple[str, int], names: Mapping[tuple[str, str], str]) -> End:
    """Return the end that a node description and a port number are: the HCA, or the switch's port of that number."""
    name, hca = infiniband_device(end[0])
    if hca or name not in site.devices:
        return End(name, names.get((name, hca), hca))
    device = site.devices[name]
    for port, cable in device.cables.items():
        if cable.rule.infiniband and _number(port) == end[1]:
            return End(name, names[name, port])
    return End(name, str(end[1]))


def _number(port: str) -> int:
    digits = port[len(port.rstrip("0123456789")) :]
    return int(digits) if digits else -1
