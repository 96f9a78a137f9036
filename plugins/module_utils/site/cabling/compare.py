# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the neighbours of devices with the planned cables: missing, wrong, swapped, one-sided, wrong speed. Pure.

A device that was not read is not judged, and a cable is counted as not read when neither of its ends was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.links import FaultyLink, link_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import (
    InfinibandLink,
    Neighbour,
    infiniband_device,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import (
    Planned,
    PlannedCable,
    PlannedEnd,
)


class CableFault(NamedTuple):
    """A fault of a cable; its message ends with the remedy. Of several cables, ``cable`` has " and " between them."""

    kind: str
    cable: str
    message: str


class JudgedCables(NamedTuple):
    """The faults, how many planned cables are right and wrong, and those of which no end was read."""

    faults: list[CableFault]
    right: int
    wrong: int
    unread: list[PlannedCable]

    def counts(self) -> dict[str, Any]:
        """Return ``faults``, and how many cables are ``right``, ``wrong`` and ``unread``."""
        return {**self._asdict(), "unread": len(self.unread)}


def compare(
    planned: Planned,
    seen: Mapping[str, Mapping[str, Neighbour]],
    speeds: Mapping[str, Mapping[str, float]] | None = None,
    infiniband: Iterable[InfinibandLink] | None = None,
) -> JudgedCables:
    """Return the judged cables.

    ``seen``: device -> interface -> neighbour, of the devices that were read. ``speeds``: device -> interface ->
    Gbit/s. ``infiniband``: the links of the subnet; without it, InfiniBand cables count as not read.
    """
    expected = {end: link for link in planned.links for end in (link.one, link.other)}
    hidden = planned.hidden
    views: dict[PlannedEnd, PlannedEnd] = {}
    for device, neighbours in seen.items():
        for interface, neighbour in neighbours.items():
            end = PlannedEnd(device, interface)
            far = far_end(planned, neighbour, expected[end].far(end) if end in expected else None)
            if far:
                views[end] = far
    read = set(seen)
    found_speeds = {
        PlannedEnd(device, name): speed
        for device, speed_by_name in (speeds or {}).items()
        for name, speed in speed_by_name.items()
    }
    subnet: set[str] = set()
    in_subnet: dict[PlannedEnd, list[PlannedEnd]] = {}
    if infiniband is not None:
        for seen_link in infiniband:
            end_a, end_b = _infiniband_end(planned, seen_link.one), _infiniband_end(planned, seen_link.other)
            in_subnet.setdefault(end_a, []).append(end_b)
            in_subnet.setdefault(end_b, []).append(end_a)
            views[end_a], views[end_b] = end_b, end_a
            found_speeds[end_a] = found_speeds[end_b] = seen_link.speed_gbit_s
        # The subnet manager sees everything that is connected to it.
        subnet = {end.device for end in planned.infiniband.values()}
    faults: list[CableFault] = []
    judged = {"right": 0, "wrong": 0}
    unread = []
    wrong: dict[PlannedEnd, PlannedEnd] = {}
    for link in planned.links:
        end_a, end_b = link.one, link.other
        readers = [
            end
            for end in (end_a, end_b)
            if (end.device in subnet if link.infiniband else end.device in read and end not in hidden)
        ]
        # The neighbour of a port that its own system does not see is unknown, unless the far end sees another device.
        if not link.infiniband and hidden & {end_a, end_b} and not any(end in views for end in readers):
            readers = []
        if not readers:
            unread.append(link)
            continue
        fault_count = len(faults)
        faults += _judge(link, readers, views, wrong)
        # A NIC or a switch port without a link reports the speed -1 or 0; a link of the subnet has one.
        for end in readers:
            speed = found_speeds.get(end, 0)
            speed_is_known = speed > 0 or link.infiniband
            if views.get(end) == link.far(end) and speed_is_known and speed != link.speed_gbit_s > 0:
                seen_speed = f"runs at {speed:g} Gbit/s" if speed > 0 else "has an unknown speed"
                cause = f"{end} {seen_speed}, but {link.speed_gbit_s:g} is planned"
                faults.append(CableFault("speed", str(link), f"{cause}; check the port and the cable"))
                break
        judged["right" if len(faults) == fault_count else "wrong"] += 1
    faults = _swapped(faults, wrong, expected)
    faults += _unplanned(views, expected)
    faults += _named_twice(in_subnet)
    return JudgedCables(faults, judged["right"], judged["wrong"], unread)


def report(judged: JudgedCables, silent: Mapping[str, str]) -> list[str]:
    """Return the result of ``compare`` as lines: sums, devices that were not read with their cause, faults."""
    sums = f"{judged.right} cables are correct, {judged.wrong} wrong, {len(judged.unread)} not read"
    unread = [f"{device} was not read: {cause}" for device, cause in silent.items()]
    return [sums, *unread, *(fault.message for fault in judged.faults)]


def cabling_proof(planned: Planned, judged: JudgedCables) -> Proof:
    """Return the proof of the cables."""
    faults = [
        FaultyLink(cable, fault.kind, fault.message) for fault in judged.faults for cable in fault.cable.split(" and ")
    ]
    claims = link_claims(map(str, planned.links), faults, {*map(str, judged.unread)}, "cabling_info")
    return Proof("cabling", "Cables", "cabling", claims)


def _judge(
    link: PlannedCable,
    readers: list[PlannedEnd],
    views: Mapping[PlannedEnd, PlannedEnd],
    wrong: dict[PlannedEnd, PlannedEnd],
) -> Iterable[CableFault]:
    """Return the faults of one cable, and record in ``wrong`` the unplanned end that each end sees."""
    cable = str(link)
    views_here = {end: views.get(end) for end in readers}
    far = {link.one: link.other, link.other: link.one}
    strange = {end: view for end, view in views_here.items() if view and view != far[end]}
    if strange:
        wrong.update(strange)
        return [
            CableFault("wrong", cable, f"{end} is connected to {view}, but {far[end]} is planned; move the cable")
            for end, view in strange.items()
        ]
    blind = [end for end, view in views_here.items() if view is None]
    if len(blind) == len(readers):
        return [CableFault("missing", cable, f"{' and '.join(map(str, blind))}: no neighbour; connect the cable")]
    if blind:
        return [
            CableFault(
                "one-sided",
                cable,
                f"{far[blind[0]]} sees {blind[0]}, but {blind[0]} sees nothing; check its receiver and LLDP",
            )
        ]
    return []


def _swapped(
    faults: list[CableFault], wrong: Mapping[PlannedEnd, PlannedEnd], expected: Mapping[PlannedEnd, PlannedCable]
) -> list[CableFault]:
    """Return the faults, with one fault for each two cables that were swapped.

    Two cables are swapped when a-b and c-d are planned, and a-d and c-b are found.
    """
    pairs: dict[tuple[str, str], str] = {}
    for end, view in wrong.items():
        if view not in expected:
            continue
        mate = expected[view].far(view)
        if mate != end and wrong.get(mate) == expected[end].far(end):
            cable_a, cable_b = sorted((str(expected[end]), str(expected[mate])))
            # The ends of both cables report the same swap, at either side.
            near_devices, far = sorted((end.device, mate.device)), sorted((view.device, expected[end].far(end).device))
            side = near_devices if near_devices <= far else far
            pairs.setdefault((cable_a, cable_b), ", ".join(dict.fromkeys(side)))
    reported = {cable for pair in pairs for cable in pair}
    remaining_faults = [fault for fault in faults if not (fault.kind == "wrong" and fault.cable in reported)]
    return remaining_faults + [
        CableFault(
            "swapped", f"{cable_a} and {cable_b}", f"swap the ends of the cables {cable_a} and {cable_b} at {side}"
        )
        for (cable_a, cable_b), side in pairs.items()
    ]


def _unplanned(views: Mapping[PlannedEnd, PlannedEnd], expected: Mapping[PlannedEnd, PlannedCable]) -> list[CableFault]:
    """Return a fault for each link between two devices of the site that has no planned cable at either end."""
    faults = {}
    for end, view in views.items():
        if end not in expected and view not in expected:
            end_a, end_b = sorted((end, view))
            faults[end_a, end_b] = CableFault(
                "unplanned", f"{end_a} - {end_b}", "no such cable is planned; plan it or remove it"
            )
    return list(faults.values())


def _named_twice(in_subnet: Mapping[PlannedEnd, list[PlannedEnd]]) -> list[CableFault]:
    """Return a fault for each end that the subnet has at several places."""
    return [
        CableFault(
            "ambiguous",
            " and ".join(f"{end} - {far}" for far in fars),
            f"{end} is connected to {' and to '.join(map(str, fars))}; give each device its own node description",
        )
        for end, fars in in_subnet.items()
        if len(fars) > 1
    ]


def far_end(planned: Planned, neighbour: Neighbour, expected: PlannedEnd | None) -> PlannedEnd | None:
    """Return a neighbour as an end, preferably with its port's planned name; None for a device of another site."""
    name = neighbour.device if neighbour.device in planned.interfaces else neighbour.device.split(".", 1)[0]
    if name not in planned.interfaces or not neighbour.ports:
        return None
    if expected and expected.device == name and expected.interface in neighbour.ports:
        return expected
    interfaces = planned.interfaces[name]
    return PlannedEnd(name, next((port for port in neighbour.ports if port in interfaces), neighbour.ports[0]))


def _infiniband_end(planned: Planned, end: tuple[str, int]) -> PlannedEnd:
    """Return the end for a node description and a port number: the HCA, or the switch's port of that number."""
    name, hca = infiniband_device(end[0])
    return planned.infiniband.get((name, hca or str(end[1])), PlannedEnd(name, hca or str(end[1])))
