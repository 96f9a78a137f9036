# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge the links of a fabric by the increases of their counters, and name the part that is the cause. Pure.

The limits are those of a node's health, whose HCAs have the same counters. A receiver counts errors: both ends of a
damaged cable count them, or both lose the link; one end alone hears a bad transmitter; most links of one device have
that device in common.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import severity
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Rule
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import (
    Counters,
    Increases,
    Port,
    increases,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import (
    infiniband_device,
    read_infiniband,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import Planned, PlannedEnd

# So many links of one device, and more than half of those it has, are that device's fault.
LEAST_OF_DEVICE = 3
CABLE, SWITCH, HCA = "cable", "switch", "HCA"
LINK_DOWNS = "port_link_downs"


class LinkEnds(NamedTuple):
    """A link by its two ends."""

    one: PlannedEnd
    other: PlannedEnd

    def __str__(self) -> str:
        return f"{self.one} - {self.other}"


class CounterIncrease(NamedTuple):
    """A counter of one end that increased by more than its limit in the time between the readings."""

    end: PlannedEnd
    rule: Rule
    increase: int

    def __str__(self) -> str:
        return f"{self.end}: {self.rule.check} +{self.increase}, limit {self.rule.limit:g} in {self.rule.window_s} s"


class LinkFault(NamedTuple):
    """Links with one cause. ``part`` is "cable", "switch" or "HCA"; ``cause`` names the part to look at first."""

    links: tuple[LinkEnds, ...]
    part: str
    cause: str
    marks: tuple[CounterIncrease, ...]

    @property
    def rule(self) -> Rule:
        """Return the rule that asks for most."""
        return max((mark.rule for mark in self.marks), key=lambda rule: (severity(rule.action), rule.check))


class JudgedLinks(NamedTuple):
    """The faults, the worst first; links of which a port did not answer; ends with counters that show no increase."""

    faults: list[LinkFault]
    unread: list[LinkEnds]
    ended: list[PlannedEnd]


def end_of(planned: Planned, port: Port) -> PlannedEnd:
    """Return the planned end of a node description and a port's number, or one with these names."""
    name, hca = infiniband_device(port[0])
    return planned.infiniband.get((name, hca or str(port[1])), PlannedEnd(name, hca or str(port[1])))


def pairs(planned: Planned, discovered: str) -> list[LinkEnds]:
    """Return the links that were found, and those planned of which neither end was found in another one."""
    seen = [LinkEnds(end_of(planned, link.one), end_of(planned, link.other)) for link in read_infiniband(discovered)]
    placed = {end for pair in seen for end in pair}
    return seen + [LinkEnds(link.one, link.other) for link in planned.links if not placed & {link.one, link.other}]


def judge(planned: Planned, discovered: str, earlier: Counters, later: Counters, hosts: Collection[str]) -> JudgedLinks:
    """Return the faults of all links. ``hosts`` are the devices with HCAs."""
    ports: dict[PlannedEnd, Increases] = {}
    for port in {*earlier.values, *later.values}:
        ports[end_of(planned, port)] = increases(earlier, later, port)
    unread = {end_of(planned, port) for port in earlier.unread | later.unread}
    seconds = later.read_at_s - earlier.read_at_s
    links = pairs(planned, discovered)
    sick: dict[LinkEnds, list[CounterIncrease]] = {}
    for pair in links:
        marks = [mark for end in pair if end in ports for mark in _marks(end, ports[end], seconds)]
        if marks:
            sick[pair] = marks
    faults = [*_of_devices(links, sick, hosts)]
    faults += [_of_link(pair, marks, ports, unread, hosts) for pair, marks in sick.items()]
    faults.sort(key=lambda fault: (-severity(fault.rule.action), -len(fault.links), str(fault.links[0])))
    ended = sorted(end for pair in links for end in pair if end in ports and ports[end].ended)
    return JudgedLinks(faults, [pair for pair in links if unread & {*pair}], ended)


def _marks(end: PlannedEnd, counted: Increases, seconds: float) -> Iterable[CounterIncrease]:
    """Yield the counters beyond their limits. Of a longer time than a limit's window, the average is judged."""
    for check, increase in counted.by_check.items():
        rule = RULES[check]
        if rule.limit is not None and increase > rule.limit * max(1.0, seconds / rule.window_s):
            yield CounterIncrease(end, rule, increase)


def _of_devices(
    links: list[LinkEnds], sick: dict[LinkEnds, list[CounterIncrease]], hosts: Collection[str]
) -> Iterable[LinkFault]:
    """Yield a fault for each device most of whose links are sick, and take these links out of ``sick``."""
    number: dict[str, int] = {}
    for pair in links:
        for device in sorted({pair.one.device, pair.other.device}):
            number[device] = number.get(device, 0) + 1
    while True:
        of_device: dict[str, list[LinkEnds]] = {}
        for pair in sick:
            for device in sorted({pair.one.device, pair.other.device}):
                of_device.setdefault(device, []).append(pair)
        suspects = [
            (len(group) / number[device], len(group), device)
            for device, group in of_device.items()
            if len(group) >= LEAST_OF_DEVICE and 2 * len(group) > number[device]
        ]
        if not suspects:
            return
        _share, count, device = max(suspects)
        part = HCA if device in hosts else SWITCH
        title = f"the HCAs of {device}" if part == HCA else f"switch {device}"
        marks = [mark for pair in of_device[device] for mark in sick.pop(pair)]
        cause = f"{title}: {count} of its {number[device]} links"
        yield LinkFault(tuple(of_device[device]), part, cause, tuple(marks))


def _of_link(
    pair: LinkEnds,
    marks: list[CounterIncrease],
    ports: Mapping[PlannedEnd, Increases],
    unread: Collection[PlannedEnd],
    hosts: Collection[str],
) -> LinkFault:
    """Return the fault of one link."""
    ends = list(dict.fromkeys(mark.end for mark in marks))
    if len(ends) == len(pair):
        return LinkFault((pair,), CABLE, f"the cable {pair}, or one of its transceivers", tuple(marks))
    (faulty_end,) = ends
    far = pair.other if faulty_end == pair.one else pair.one
    part = HCA if far.device in hosts else SWITCH
    if far in unread:
        cause = f"{part} port {far}, which did not answer, or the cable"
    elif all(mark.rule.check == LINK_DOWNS for mark in marks):
        counted = "began to count anew" if far in ports and ports[far].is_new else "counted nothing"
        cause = f"{part} port {far}, which {counted}: it was reset or restarted"
    else:
        cause = f"the transmitter of {part} port {far}, or the cable: only {faulty_end} counts errors"
    return LinkFault((pair,), part, cause, tuple(marks))
