# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Look at the whole fleet: the state of each host, what differs in lines, and all in one sentence. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import failures
from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    ACCEPTANCE,
    DIFFERS,
    FABRIC,
    FAILING,
    FAULT,
    NONE,
    NOTED,
    OK,
    STATES,
    UNKNOWN,
    Datum,
    datum,
    state_at,
    worst,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.hosts import FleetHost
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.proofs import Proved
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.readings import HostReading

# What to run for a kind of data that nobody has read.
NEVER = {
    "health": "never read: run fleet.yml with -e fleet_refresh=true",
    "image": "never read: run fleet.yml with -e fleet_refresh=true",
    "drift": "never compared: run fleet.yml with -e fleet_refresh=true",
    "proof": "no proof: run the playbook that writes proofs/NAME.json",
    "fabric": "never compared: run fabric_drift.yml",
}
WORDS = {
    FAULT: ("has a fault", "have faults"),
    DIFFERS: ("differs", "differ"),
    UNKNOWN: ("is not known", "are not known"),
    NOTED: ("has notes only", "have notes only"),
    OK: ("is as planned", "are as planned"),
    NONE: ("is not read by any playbook", "are not read by any playbook"),
}
SHOWN_LINES = 40


@dataclass(frozen=True)
class HostLook:
    """A host with its reading and all of its data."""

    host: FleetHost
    reading: HostReading
    data: tuple[Datum, ...]

    def state(self, now_s: float) -> str:
        """Return its worst state."""
        return worst(state_at(entry, now_s) for entry in self.data)

    def shown(self, now_s: float) -> dict[str, str]:
        """Return what the log compares: a text by kind of data, and what a person said."""
        texts: dict[str, str] = {}
        for entry in self.data:
            earlier = f"{texts[entry.kind]}; " if entry.kind in texts else ""
            texts[entry.kind] = f"{earlier}{state_at(entry, now_s)}: {entry.text}"
        reasons = {"drained": self.reading.drain, "in maintenance": self.reading.maintenance}
        return {**texts, **{word: reason for word, reason in reasons.items() if reason}}


@dataclass(frozen=True)
class Look:
    """The hosts in the order of the inventory, and the proofs of fabrics, at a time in seconds since 1970.

    ``links``: what fails of links between two hosts, by their names in alphabetical order.
    """

    hosts: tuple[HostLook, ...]
    fabrics: Mapping[str, Datum]
    now_s: float
    links: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def by_state(self) -> dict[str, list[str]]:
        """Return the names of hosts by state, worst first."""
        groups: dict[str, list[str]] = {state: [] for state in STATES}
        for host_look in self.hosts:
            groups[host_look.state(self.now_s)].append(host_look.host.name)
        return groups

    @property
    def holds(self) -> bool:
        """Return True if nothing differs and all is known, of hosts outside of a maintenance and of fabrics.

        A host in maintenance must be known all the same.
        """
        failing = (
            state_at(entry, self.now_s)
            for look in self.hosts
            for entry in look.data
            if not (look.reading.maintenance and state_at(entry, self.now_s) != UNKNOWN)
        )
        of_fabrics = (state_at(fabric, self.now_s) for fabric in self.fabrics.values())
        states = {*failing, *of_fabrics}
        return any(look.data for look in self.hosts) and not states & set(FAILING)

    @property
    def summary(self) -> str:
        """Return the look in one sentence."""
        groups = self.by_state()
        parts = [f"{len(groups[OK])} of {_hosts(len(self.hosts))} {WORDS[OK][len(groups[OK]) != 1]}"]
        for state in (FAULT, DIFFERS, UNKNOWN, NOTED, NONE):
            if groups[state]:
                parts.append(f"{len(groups[state])} {WORDS[state][len(groups[state]) != 1]}")
        for word, reasons in (
            ("drained", [host_look for host_look in self.hosts if host_look.reading.drain]),
            ("in maintenance", [host_look for host_look in self.hosts if host_look.reading.maintenance]),
        ):
            if reasons:
                parts.append(f"{len(reasons)} {word}")
        failing = [name for name, fabric in self.fabrics.items() if state_at(fabric, self.now_s) in FAILING]
        if failing:
            parts.append(f"proofs that do not hold or are old: {', '.join(failing)}")
        return ", ".join(parts)

    def lines(self) -> list[str]:
        """Return the lines for a terminal: equal states of several hosts in one, worst first."""
        groups: dict[tuple[int, str, str], list[str]] = {}
        for look in self.hosts:
            for entry in look.data:
                state = state_at(entry, self.now_s)
                if state in (*FAILING, NOTED):
                    key = (STATES.index(state), entry.kind, failures.common(_aged(entry, state), [look.host.name]))
                    groups.setdefault(key, []).append(look.host.name)
            for word, reason in (("drained", look.reading.drain), ("in maintenance", look.reading.maintenance)):
                if reason:
                    groups.setdefault((len(STATES), word, reason), []).append(look.host.name)
        for name, fabric in self.fabrics.items():
            state = state_at(fabric, self.now_s)
            if state in FAILING:
                groups.setdefault((STATES.index(state), f"proof {name}", _aged(fabric, state)), [])
        ordered = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0]))
        lines = [
            ": ".join(filter(None, (_hosts(len(names)) if names else "", kind, text, fold(names))))
            for (_state, kind, text), names in ordered
        ]
        hidden = len(lines) - SHOWN_LINES
        return [*lines[:SHOWN_LINES], *([f"and {hidden} more lines on the page"] if hidden > 0 else [])]


def look_at(hosts: Sequence[FleetHost], readings: Mapping[str, HostReading], proved: Proved, now_s: float) -> Look:
    """Return the look. What a host's playbooks can read, but did not, is a datum that is not known."""
    looks = []
    for host in hosts:
        reading = readings.get(host.name, HostReading())
        entries = [entry for entry in reading.data if entry.kind in host.reads]
        entries += [
            entry for entry in proved.hosts.get(host.name, ()) if entry.kind in (*host.reads, ACCEPTANCE, FABRIC)
        ]
        missing = [
            datum(kind, UNKNOWN, NEVER[kind]) for kind in host.reads if all(entry.kind != kind for entry in entries)
        ]
        looks.append(HostLook(host, reading, tuple(sorted([*entries, *missing], key=lambda entry: entry.kind))))
    return Look(tuple(looks), proved.fabrics, now_s, proved.links)


def _aged(entry: Datum, state: str) -> str:
    return entry.text if state == entry.state else f"too old to be known: {entry.text}"


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"


def to_dict(look: Look) -> dict[str, Any]:
    """Return the result of a module."""
    counts = Counter({state: len(names) for state, names in look.by_state().items()})
    return {"holds": look.holds, "summary": look.summary, "lines": look.lines(), "counts": dict(counts)}
