# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Marks on the links of a fabric: the worst state that a proof found at each, and the devices with the most. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, LinkEnd

# The states from the worst to that of a link as planned.
STATES = ("no route", "missing", "wrong", "slow", "misrouted", "not read", "as planned")
NOT_READ, AS_PLANNED = STATES[-2:]


class Mark(NamedTuple):
    """A state, and the sentence that says why."""

    state: str
    reason: str = ""


class Worst(NamedTuple):
    """A device with links in one state: their number, and the reason of the first."""

    device: str
    state: str
    links: int
    reason: str


@dataclass
class Marks:
    """The worst mark of each end. ``read`` is False if no cable was read, so that an end without a mark is not read."""

    by_end: dict[LinkEnd, Mark] = field(default_factory=dict)
    read: bool = True

    def add(self, state: str, ends: Iterable[LinkEnd], reason: str) -> None:
        """Mark some ends that have no worse mark yet."""
        for end in ends:
            present = self.by_end.get(end)
            if not present or STATES.index(state) < STATES.index(present.state):
                self.by_end[end] = Mark(state, reason)

    def of_link(self, *ends: LinkEnd) -> Mark:
        """Return the worse mark of the two ends of a link."""
        unmarked = Mark(AS_PLANNED if self.read else NOT_READ)
        return worst(self.by_end.get(end, unmarked) for end in ends)

    def worst_first(self, fabric: Fabric) -> list[Worst]:
        """Return devices from the worst state, and within it from the most links, so that each link is in one line."""
        by_state: dict[str, list[tuple[set[str], str]]] = {}
        for ends in fabric.links:
            mark = self.of_link(*ends)
            if mark.state not in (AS_PLANNED, NOT_READ):
                by_state.setdefault(mark.state, []).append(({end[0] for end in ends}, mark.reason))
        return [line for state in STATES for line in _devices(state, by_state.get(state, []))]


def worst(marks: Iterable[Mark]) -> Mark:
    """Return the worst of some marks."""
    return min(marks, key=lambda mark: STATES.index(mark.state))


def _devices(state: str, links: list[tuple[set[str], str]]) -> list[Worst]:
    """Return the devices of links, given by (devices of both ends, reason): each time the one with the most."""
    lines = []
    while links:
        counts: dict[str, int] = {}
        for devices, _reason in links:
            for device in devices:
                counts[device] = counts.get(device, 0) + 1
        device = min(counts, key=lambda name: (-counts[name], name))
        reason = next(reason for devices, reason in links if device in devices)
        lines.append(Worst(device, state, counts[device], reason))
        links = [link for link in links if device not in link[0]]
    return lines
