# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QoS of a switch as plain data for people and templates, and the differences between two switches in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, PortQos, Queue, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.given.ranges import format_ranges

SHOWN_PORTS = 3
TABLES = {  # field of PortQos -> (what it is indexed by, what it holds)
    "dscp_to_class": ("DSCP", "traffic class"),
    "class_to_queue": ("traffic class", "queue"),
    "class_to_priority": ("traffic class", "priority of pauses"),
    "priority_to_queue": ("paused priority", "queue"),
}
BY_NUMBER = {"queues": "queue", "headroom": "headroom of priority"}
WORDS = {
    "pfc": "priorities with PFC",
    "watchdog": "PFC watchdog",
    "ip_mtu_bytes": "largest IP packet, in bytes",
    "cable_m": "longest cable, in metres",
}


def title(field: str) -> str:
    """Return the name of a field of PortQos in words."""
    if field in TABLES:
        index, held = TABLES[field]
        return f"{held} of {index}"
    return WORDS.get(field, field.replace("_", " "))


def to_data(switch: Switch) -> dict[str, Any]:
    """Return name, system, ecmp_fields and ports. Tables have only their set entries, by number as text ("26": 3)."""
    made = {id(qos): _port_data(qos) for qos in switch.distinct_ports()}
    return {
        "name": switch.name,
        "system": switch.system,
        "ecmp_fields": None if switch.ecmp_fields is None else list(switch.ecmp_fields),
        "ports": {name: made[id(qos)] for name, qos in switch.ports.items()},
    }


def _port_data(qos: PortQos) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for each in fields(qos):
        value = getattr(qos, each.name)
        if each.name in TABLES:
            data[each.name] = {str(at): held for at, held in enumerate(value) if held is not None}
        elif each.name in BY_NUMBER:
            data[each.name] = {str(at): asdict(held) for at, held in enumerate(value) if held is not None}
        elif each.name == "watchdog":
            data[each.name] = None if value is None else asdict(value)
        else:
            data[each.name] = list(value) if isinstance(value, tuple) else value
    return data


@dataclass(frozen=True)
class Difference:
    """A setting of a switch that is not as wanted. ``ports`` are all that share it; empty for the switch as a whole."""

    ports: tuple[str, ...]
    what: str
    wanted: str
    seen: str

    def __str__(self) -> str:
        shown = ", ".join(self.ports[:SHOWN_PORTS])
        more = len(self.ports) - SHOWN_PORTS
        where = f"{shown} and {more} more: " if more > 0 else f"{shown}: " if shown else ""
        return f"{where}{self.what}: wanted {self.wanted}, seen {self.seen}"


def differences(wanted: Switch, seen: Switch, not_held: Collection[str]) -> list[Difference]:
    """Return how ``seen`` differs from ``wanted`` in the settings that the system's configuration holds.

    Ports that are not wanted are ignored. A difference that several ports share is returned once, in the order of the
    ports.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    compared: dict[tuple[int, int], list[tuple[str, str, str]]] = {}
    for name, qos in wanted.ports.items():
        other = seen.ports.get(name)
        if other is None:
            found.setdefault(("the port", "configured", "not there"), []).append(name)
            continue
        key = id(qos), id(other)
        if key not in compared:
            compared[key] = list(_port_differences(qos, other, not_held))
        for each in compared[key]:
            found.setdefault(each, []).append(name)
    result = [Difference(tuple(ports), *what) for what, ports in found.items()]
    if "ecmp_fields" not in not_held and wanted.ecmp_fields != seen.ecmp_fields:
        hashed = ("not set" if each is None else _words(each) for each in (wanted.ecmp_fields, seen.ecmp_fields))
        result.append(Difference((), "what ECMP hashes", *hashed))
    return result


def _port_differences(wanted: PortQos, seen: PortQos, not_held: Collection[str]) -> Iterator[tuple[str, str, str]]:
    for each in fields(PortQos):
        here, there = getattr(wanted, each.name), getattr(seen, each.name)
        if each.name in not_held or here == there:
            continue
        if each.name in TABLES:
            yield from _table(*TABLES[each.name], here, there)
        elif each.name in BY_NUMBER:
            # A strict queue changes the shares of all others, so queues that differ in this come first, as the cause.
            pairs = sorted(enumerate(zip(here, there)), key=lambda pair: _as_strict(*pair[1]))
            for at, (one, other) in pairs:
                if one != other:
                    yield f"{BY_NUMBER[each.name]} {at}", _words(one), _words(other)
        elif each.name != "cable_m" or here is not None:  # most systems are not given a cable length
            yield title(each.name), _words(here), _words(there)


def _as_strict(one: Any, other: Any) -> bool:
    return getattr(one, "strict", False) == getattr(other, "strict", False)


def _table(index: str, held: str, wanted: Any, seen: Any) -> Iterator[tuple[str, str, str]]:
    """Return the differing entries of a table, those that differ in the same way as one: "DSCP 0-25,27-63"."""
    ways: dict[tuple[Any, Any], list[int]] = {}
    for at, pair in enumerate(zip(wanted, seen)):
        if pair[0] != pair[1]:
            ways.setdefault(pair, []).append(at)
    for (one, other), numbers in ways.items():
        yield f"{held} of {index} {format_ranges(numbers)}", _words(one), _words(other)


def _words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, Queue):
        share = "strict" if value.strict else f"{_words(value.bandwidth_percent)}%"
        return f"{share}, {_words(value.ecn)}" if value.ecn else f"{share}, no ECN"
    if isinstance(value, Ecn):
        return f"ECN {value.minimum_bytes} to {value.maximum_bytes} bytes at {value.probability_percent}%"
    if is_dataclass(value) and not isinstance(value, type):
        return ", ".join(f"{name} {held}" for name, held in asdict(value).items())
    return str(value)
