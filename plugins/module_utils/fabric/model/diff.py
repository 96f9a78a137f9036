# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QoS of a switch as plain data for people and templates, and the differences between two switches in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    Headroom,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)

SHOWN_PORTS = 3
UNKNOWN_ECN = "unknown_ecn"  # field of Queue that only a marking without known bytes has
TABLES = {  # field of PortQos -> (what it is indexed by, what it holds)
    "dscp_to_class": ("DSCP", "traffic class"),
    "class_to_queue": ("traffic class", "queue"),
    "class_to_priority": ("traffic class", "priority of pauses"),
    "priority_to_queue": ("paused priority", "queue"),
}
BY_NUMBER = {"queues": "queue", "headroom": "headroom of priority"}
BY_CLASS = (*(field for field in TABLES if field != "dscp_to_class"), *BY_NUMBER)  # no policy leaves a DSCP unused
UNUSED = "settings of classes that the policy does not use"
TITLES = {
    "pfc": "priorities with PFC",
    "watchdog": "PFC watchdog",
    "ip_mtu_bytes": "largest IP packet, in bytes",
    "cable_m": "longest cable, in metres",
}


def field_title(field: str) -> str:
    """Return the name of a field of PortQos in words."""
    if field in TABLES:
        index, content = TABLES[field]
        return f"{content} of {index}"
    if field in BY_NUMBER:
        return BY_NUMBER[field]
    return TITLES.get(field, field.replace("_", " "))


def to_data(switch: Switch) -> dict[str, Any]:
    """Return name, system, ecmp_fields and ports. Tables have only their set entries, by number as text ("26": 3)."""
    port_data = {id(qos): _port_data(qos) for qos in switch.distinct_ports()}
    return {
        "name": switch.name,
        "system": switch.system,
        "ecmp_fields": None if switch.ecmp_fields is None else list(switch.ecmp_fields),
        "ports": {name: port_data[id(qos)] for name, qos in switch.ports.items()},
    }


def _port_data(qos: PortQos) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for port_field in fields(qos):
        value = getattr(qos, port_field.name)
        if port_field.name in TABLES:
            data[port_field.name] = {str(number): entry for number, entry in enumerate(value) if entry is not None}
        elif port_field.name in BY_NUMBER:
            data[port_field.name] = {
                str(number): {key: content for key, content in asdict(entry).items() if key != UNKNOWN_ECN or content}
                for number, entry in enumerate(value)
                if entry is not None
            }
        elif port_field.name == "watchdog":
            data[port_field.name] = None if value is None else asdict(value)
        else:
            data[port_field.name] = list(value) if isinstance(value, tuple) else value
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
        hidden_count = len(self.ports) - SHOWN_PORTS
        prefix = f"{shown} and {hidden_count} more: " if hidden_count > 0 else f"{shown}: " if shown else ""
        return f"{prefix}{self.what}: wanted {self.wanted}, seen {self.seen}"


def differences(wanted: Switch, seen: Switch, not_held: Collection[str]) -> list[Difference]:
    """Return how ``seen`` differs from ``wanted`` in the settings that the system's configuration holds.

    Ports that are not wanted are ignored. A difference that several ports share is returned once, in the order of the
    ports.
    """
    ports_by_difference: dict[tuple[str, str, str], list[str]] = {}
    compared: dict[tuple[int, int], list[tuple[str, str, str]]] = {}
    for name, qos in wanted.ports.items():
        seen_qos = seen.ports.get(name)
        if seen_qos is None:
            ports_by_difference.setdefault(("the port", "configured", "not there"), []).append(name)
            continue
        key = id(qos), id(seen_qos)
        if key not in compared:
            compared[key] = list(port_differences(qos, seen_qos, not_held))
        for difference in compared[key]:
            ports_by_difference.setdefault(difference, []).append(name)
    result = [Difference(tuple(ports), *texts) for texts, ports in ports_by_difference.items()]
    if "ecmp_fields" not in not_held and wanted.ecmp_fields != seen.ecmp_fields:
        hashed = (
            "not set" if hash_fields is None else _text(hash_fields)
            for hash_fields in (wanted.ecmp_fields, seen.ecmp_fields)
        )
        result.append(Difference((), "what ECMP hashes", *hashed))
    return result


def port_differences(wanted: PortQos, seen: PortQos, not_held: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield how a port differs from the wanted one: the setting, its wanted and its seen value in words.

    What is set for classes that the policy does not use is one difference, except for strict queues: they can take the
    bandwidth of all others.
    """
    unused = {field: _unused(field, wanted, seen) for field in BY_CLASS if field not in not_held}
    unused = {field: numbers for field, numbers in unused.items() if numbers}
    for port_field in fields(PortQos):
        wanted_value, seen_value = getattr(wanted, port_field.name), getattr(seen, port_field.name)
        if port_field.name in not_held or wanted_value == seen_value:
            continue
        if port_field.name in TABLES or port_field.name in BY_NUMBER:
            yield from _table(port_field.name, wanted_value, seen_value, unused.get(port_field.name, ()))
        elif port_field.name != "cable_m" or wanted_value is not None:  # most systems are not given a cable length
            yield (field_title(port_field.name), *_texts(wanted_value, seen_value))
    if unused:
        names = [f"{field_title(field)} {format_ranges(numbers)}" for field, numbers in unused.items()]
        yield UNUSED, "none", "; ".join(names)


def _unused(field: str, wanted: PortQos, seen: PortQos) -> list[int]:
    """Return the numbers of entries that are set for a class, queue or priority that the policy does not use."""
    not_wanted = wanted.priority_to_queue if field == "headroom" else getattr(wanted, field)
    return [
        number
        for number, entry in enumerate(getattr(seen, field))
        if entry is not None and not_wanted[number] is None and not getattr(entry, "strict", False)
    ]


def _same_strictness(wanted: Any, seen: Any) -> bool:
    return getattr(wanted, "strict", False) == getattr(seen, "strict", False)


def _table(field: str, wanted: Any, seen: Any, unused: Collection[int]) -> Iterator[tuple[str, str, str]]:
    """Yield the differing entries of a table, those that differ in the same way as one: "DSCP 0-25,27-63".

    A strict queue changes the shares of all others, so queues that differ in this come first, as the cause.
    """
    numbers_by_change: dict[tuple[Any, Any], list[int]] = {}
    for number, pair in enumerate(zip(wanted, seen)):
        if pair[0] != pair[1] and number not in unused:
            numbers_by_change.setdefault(pair, []).append(number)
    for (wanted_entry, seen_entry), numbers in sorted(
        numbers_by_change.items(), key=lambda change: _same_strictness(*change[0])
    ):
        yield (f"{field_title(field)} {format_ranges(numbers)}", *_texts(wanted_entry, seen_entry))


def _texts(wanted: Any, seen: Any) -> tuple[str, str]:
    """Return two values in words; of two headrooms or watchdogs the numbers that differ."""
    if isinstance(wanted, (Headroom, Watchdog)) and type(seen) is type(wanted):
        names = [item.name for item in fields(wanted) if getattr(wanted, item.name) != getattr(seen, item.name)]
        wanted_text, seen_text = (
            ", ".join(f"{name} {getattr(value, name)}" for name in names) for value in (wanted, seen)
        )
        return wanted_text, seen_text
    return _text(wanted), _text(seen)


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, Queue):
        share = "no share" if value.bandwidth_percent is None else f"{value.bandwidth_percent}%"
        share = "strict" if value.strict else share
        if value.unknown_ecn:
            return f"{share}, ECN at unknown bytes ({value.unknown_ecn})"
        return f"{share}, {_text(value.ecn)}" if value.ecn else f"{share}, no ECN"
    if isinstance(value, Ecn):
        return f"ECN {value.minimum_bytes} to {value.maximum_bytes} bytes at {value.probability_percent}%"
    if is_dataclass(value) and not isinstance(value, type):
        return ", ".join(f"{name} {item}" for name, item in asdict(value).items())
    return str(value)
