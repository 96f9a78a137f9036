# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read configurations of lines, nested as EOS and NX-OS print them or flat, and what both need to render them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    DSCPS,
    Ecn,
    Override,
    PortQos,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import QUEUE, Rules

OWN = "sailloft-"  # the prefix of the names of all rendered objects; objects with this prefix may be removed
OWN_NAME = re.compile(re.escape(OWN) + r"[a-z0-9-]+")

# Names of DSCPs: class selectors (RFC 2474), assured forwarding (RFC 2597), expedited forwarding (RFC 3246),
# VOICE-ADMIT (RFC 5865); "default" is NX-OS's word for 0.
DSCP_NAMES = {
    **{f"cs{number}": 8 * number for number in range(8)},
    **{f"af{tier}{drop}": 8 * tier + 2 * drop for tier in (1, 2, 3, 4) for drop in (1, 2, 3)},
    "ef": 46,
    "va": 44,
    "default": 0,
}
_UNIT_BYTES = {"bytes": 1, "kbytes": 1000, "mbytes": 1_000_000}
_RANGE = re.compile(
    r"(?P<kind>[A-Za-z][A-Za-z-]*)? ?(?P<slot>(?:\d+/)*)(?P<first>\d+)"
    r"(?: ?- ?(?:(?P=kind) ?)?(?:(?P=slot))?(?P<last>\d+))?(?P<sub>\.\d+)?"
)
_SPEED = re.compile(r"speed (?:forced |auto )?(\d+)(?:(g)\S*)?$")  # "100g-2", "forced 400gfull"; NX-OS: in Mbit/s
_LAG = re.compile(r"channel-group (\d+)\b")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AGAIN = "fetch the running configuration again, all of it"
_MOST_BYTES = 10**10  # of a threshold; more than the largest buffer of a switch, in HBM
_MOST_PORTS = 4096  # in a range; a longer one is an error


class CliLine:
    """One line: its number in the text (from 1), its content with single blanks, and the lines indented under it."""

    __slots__ = ("children", "number", "text")

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        self.children: list[CliLine] = []


class Settings:
    """The settings of a port, a profile or "system qos": by key, the value and the line that sets it.

    ``unread``: its overrides, each with what it can change. ``lag``: the number of its port channel.
    """

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, CliLine]] = {}
        self.unread: list[tuple[str, str]] = []
        self.speed_gbit_s: int | None = None
        self.lag: str | None = None

    def get(self, key: str) -> Any:
        """Return the value of ``key``; None where no line sets it."""
        return self.values[key][0] if key in self.values else None

    def lines_unlike(self, member: Settings) -> Iterator[str]:
        """Return a port channel's lines that ``member`` does not have, except routing and the MTU (``switch_of``)."""
        for key, (value, line) in self.values.items():
            if value != member.get(key) and key not in ("switchport", "mtu"):
                yield line.text


class CliReader:
    """A reader of one switch's text. Its refusals name the switch."""

    def __init__(self, name: str, rules: Rules) -> None:
        """Keep the switch's ``name``, which refusals mention, and the system's ``rules``."""
        self.name = name
        self.rules = rules
        self.overrides: dict[tuple[str, str], list[str]] = {}  # statement, effect -> ports, none for the whole switch

    def unread(self, unread: list[tuple[str, str]], text: str) -> None:
        """Add a statement that no field shows to ``unread``, if it can change something."""
        effect = self.rules.effect(text)
        if effect:
            unread.append((text, effect))

    def unread_of_port(self, settings: Settings, line: CliLine) -> None:
        """Read a port's speed and port channel, or add the line to its overrides if it can change something."""
        speed, lag = _SPEED.match(line.text), _LAG.match(line.text)
        if speed:
            settings.speed_gbit_s = int(speed[1]) // (1 if speed[2] else 1000)
        elif lag:
            settings.lag = lag[1]
        else:
            self.unread(settings.unread, line.text)
            for child in line.children:
                self.unread(settings.unread, f"{line.text} {child.text}")

    def unread_of_section(self, *lines: CliLine) -> None:
        """Record the overrides of the whole switch among the lines below the last of ``lines``, and that line."""
        text = " ".join(line.text for line in lines)
        effect = self.rules.effect(text)
        if effect:
            self.overrides[text, effect] = []
        for child in lines[-1].children:
            self.unread_of_section(*lines, child)

    def record(self, port: str, place: str, unread: Iterable[tuple[str, str]]) -> None:
        """Record the overrides of ``place`` ("qos profile p"; "" for the port itself) for a port."""
        for text, effect in unread:
            self.overrides.setdefault((f"{place} {text}".strip(), effect), []).append(port)

    def unread_of_classes(self, policy: CliLine | None) -> list[tuple[str, str]]:
        """Return the overrides among the actions of a policy map's classes."""
        unread: list[tuple[str, str]] = []
        for entry in policy.children if policy else ():
            for action in entry.children:
                self.unread(unread, f"class {entry.text.split(' ')[-1]} {action.text}")
        return unread

    def refuse(self, line: CliLine, cause: str, remedy: str) -> FabricError:
        """Return a FabricError that names the switch and the line."""
        return FabricError(f"{self.name}: line {line.number} {line.text!r}", cause, remedy)

    def tree(
        self, text: str, system: str, system_line: re.Pattern[str], foreign_line: re.Pattern[str]
    ) -> list[CliLine]:
        """Return the lines at the left margin, without comments ("!") and banners.

        Raises FabricError where ``text`` is not a configuration of ``system``. In any such configuration, some lines at
        the margin match ``system_line``, and none matches ``foreign_line``.
        """
        top = self.nest(text, system)
        for line in top:
            if foreign_line.match(line.text):
                raise self.refuse(line, f"not a line of {system}'s configuration", "correct the switch's system")
        if not any(system_line.match(line.text) for line in top):
            raise FabricError(f"{self.name}: configuration", f"it contains no line of {system}'s configuration", _AGAIN)
        return top

    def nest(self, text: str, system: str) -> list[CliLine]:
        """Return the lines at the left margin of any part of a configuration, without comments ("!") and banners."""
        top: list[CliLine] = []
        open_at: list[tuple[int, list[CliLine]]] = [(-1, top)]
        banner_end = ""
        for number, raw in enumerate(text.splitlines(), start=1):
            if banner_end:
                if banner_end in raw:
                    banner_end = ""
                continue
            line = CliLine(number, " ".join(raw.split()))
            if not line.text or line.text.startswith("!"):
                continue
            if line.text.startswith(("%", "--More--")) or _CONTROL.search(line.text):
                raise self.refuse(line, f"not a line of {system}'s configuration", _AGAIN)
            expanded = raw.expandtabs()
            indent = len(expanded) - len(expanded.lstrip())
            if indent == 0 and line.text.startswith("banner "):
                banner_end = _banner_end(line.text)
                continue
            while indent <= open_at[-1][0]:
                open_at.pop()
            open_at[-1][1].append(line)
            open_at.append((indent, line.children))
        if banner_end:
            raise FabricError(f"{self.name}: configuration", "it ends within a banner", _AGAIN)
        return top

    def number(self, line: CliLine, word: str, minimum: int, maximum: int) -> int:
        """Return ``word`` of ``line`` as a number of ``minimum`` to ``maximum``."""
        if not word.isdecimal() or not minimum <= int(word) <= maximum:
            raise self.refuse(line, f"{word!r} is not a number from {minimum} to {maximum}", "correct it on the switch")
        return int(word)

    def marking(
        self, line: CliLine, minimum: str, minimum_unit: str, maximum: str, maximum_unit: str, percent: str | None
    ) -> tuple[Ecn | None, str | None]:
        """Return the marking at these thresholds, or, where a unit has no known bytes, the thresholds in words.

        Arista's segments and Cisco's packets have none: the size of a segment depends on the chip, and is not
        published. Without ``percent``, all packets are marked at the upper threshold. Raises FabricError for
        thresholds or a probability that no queue can have.
        """
        probability_percent = int(percent or 100)
        units = [_UNIT_BYTES.get(unit) for unit in (minimum_unit, maximum_unit)]
        if units[0] is None or units[1] is None:
            return None, f"{minimum} {minimum_unit} to {maximum} {maximum_unit} at {probability_percent}%"
        ecn = Ecn(int(minimum) * units[0], int(maximum) * units[1], probability_percent)
        if not ecn.minimum_bytes <= ecn.maximum_bytes <= _MOST_BYTES or not 0 <= probability_percent <= 100:
            raise self.refuse(
                line,
                f"marking from {ecn.minimum_bytes} to {ecn.maximum_bytes} bytes with {probability_percent}% is not "
                "possible",
                "correct it on the switch",
            )
        return ecn, None

    def dscps(self, line: CliLine, listed: str) -> list[int]:
        """Return the DSCPs of a list such as "26", "24-31 48", "10,18" or "af31,cs6"."""
        values: list[int] = []
        for word in re.split(r"[ ,]+", listed.strip()):
            first, dash, last = word.partition("-")
            lowest = self._dscp(line, first)
            highest = self._dscp(line, last) if dash else lowest
            if highest < lowest:
                raise self.refuse(line, f"{word!r} is a descending range", "correct it on the switch")
            values += range(lowest, highest + 1)
        return values

    def _dscp(self, line: CliLine, word: str) -> int:
        named_dscp = DSCP_NAMES.get(word)
        return self.number(line, word, 0, DSCPS - 1) if named_dscp is None else named_dscp

    def ports_of(self, line: CliLine) -> list[str]:
        """Return the name in "interface Ethernet1/1", or each of a range such as "interface Ethernet1/1-4,1/7"."""
        names: list[str] = []
        kind, slot = "", ""
        for part in re.split(r" ?, ?", line.text[len("interface ") :]):
            match = _RANGE.fullmatch(part)
            if not match or not (match["kind"] or kind):
                raise self.refuse(line, f"{part!r} is neither a port nor a range of ports", "correct it")
            kind = match["kind"] or kind
            slot = match["slot"] or ("" if match["kind"] else slot)
            first = int(match["first"])
            last = int(match["last"] or first)
            if not first <= last < first + _MOST_PORTS:
                raise self.refuse(line, f"{part!r} is not a range of ports", "correct it")
            names += [f"{kind}{slot}{number}{match['sub'] or ''}" for number in range(first, last + 1)]
        return names


def _banner_end(text: str) -> str:
    """Return the end mark of the banner that ``text`` begins, "" if ``text`` ends it. EOS has EOF, NX-OS any sign."""
    parts = text.split(" ", 2)
    if len(parts) < 3:
        return "EOF"
    end_sign = parts[2][0]
    return "" if end_sign in parts[2][1:] else end_sign


def name_from_lines(kind: str, lines: Iterable[str]) -> str:
    """Return a name derived from ``lines``, so that a change makes a new object beside the one in use."""
    return f"{OWN}{kind}-{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:8]}"


def numbers(values: Iterable[int], separator: str) -> str:
    """Return ascending numbers as a list: "0 1 2 7"."""
    return separator.join(str(value) for value in sorted(values))


def mismatch_error(switch: Switch, port: str, setting: str, reason: str) -> FabricError:
    """Return the refusal of a port whose ``setting`` differs from the first port's, if the system has one for all."""
    first = next(iter(switch.ports))
    return FabricError(
        f"{switch.name}: port {port}",
        f"its {setting} differs from {first}'s, but {reason}",
        "plan both with one policy",
    )


def wanted_classes(switch: Switch, port: str, qos: PortQos) -> list[int]:
    """Return the traffic classes of the DSCPs. Raises FabricError where a DSCP or a class lacks what it needs."""
    subject = f"{switch.name}: port {port}"
    if None in qos.dscp_to_class:
        raise FabricError(
            subject, f"DSCP {qos.dscp_to_class.index(None)} has no traffic class", "give one to each of the 64"
        )
    classes = sorted({traffic_class for traffic_class in qos.dscp_to_class if traffic_class is not None})
    for traffic_class in classes:
        queue, priority = qos.class_to_queue[traffic_class], qos.class_to_priority[traffic_class]
        if queue is None or priority is None or qos.queues[queue] is None:
            raise FabricError(
                subject, f"traffic class {traffic_class} has no queue, priority or scheduler", "set all three"
            )
        if qos.priority_to_queue[priority] != queue:
            raise FabricError(
                subject,
                f"a pause of priority {priority} does not stop traffic class {traffic_class}'s queue {queue}",
                f"map priority {priority} to queue {queue}",
            )
    for priority in qos.pfc:
        if priority not in [qos.class_to_priority[traffic_class] for traffic_class in classes]:
            raise FabricError(subject, f"priority {priority} pauses, and no traffic class has it", "give it to one")
    if qos.ip_mtu_bytes is None:
        raise FabricError(subject, "no MTU is wanted", "set switch_mtu_bytes in the policy")
    return classes


def equal_except(seen: PortQos, wanted: PortQos, not_held: Collection[str]) -> bool:
    """Return true where two ports are alike in all fields except ``not_held``."""
    return all(getattr(seen, name) == value for name, value in vars(wanted).items() if name not in not_held)


class Parsed(Protocol):
    """A parsed configuration."""

    ports: dict[str, Any]
    ecmp_fields: tuple[str, ...]
    overrides: dict[tuple[str, str], list[str]]
    lag_prefix: str

    def port_qos(self, port: str) -> PortQos: ...

    def record_overrides(self) -> None: ...


def switch_of(model: Parsed, name: str, system: str) -> Switch:
    """Return the switch of a parsed configuration; ports that are alike share one object. Raises FabricError."""
    ports = {port: model.port_qos(port) for port in model.ports}
    distinct: dict[PortQos, PortQos] = {}
    shared = {id(qos): distinct.setdefault(qos, qos) for qos in {id(qos): qos for qos in ports.values()}.values()}
    model.record_overrides()
    lags: dict[str, tuple[str, ...]] = {}
    for port, settings in model.ports.items():
        if settings.lag:
            lag = f"{model.lag_prefix}{settings.lag}"
            lags[lag] = (*lags.get(lag, ()), port)
            for text in model.ports[lag].lines_unlike(settings) if lag in model.ports else ():
                model.overrides[f"interface {lag} {text}", QUEUE] = [lag]
    return Switch(
        name,
        system,
        {port: shared[id(qos)] for port, qos in ports.items()},
        model.ecmp_fields,
        overrides=tuple(Override(text, effect, tuple(names)) for (text, effect), names in model.overrides.items()),
        speeds_gbit_s={
            port: settings.speed_gbit_s for port, settings in model.ports.items() if settings.speed_gbit_s is not None
        },
        lags=lags,
        lag_ip_mtu_bytes={lag: mtu for lag in lags if lag in ports and (mtu := ports[lag].ip_mtu_bytes) is not None},
    )


def is_as_wanted(model: Parsed, port: str, qos: PortQos, not_held: Collection[str]) -> bool:
    """Return true where ``port`` has the wanted settings; a port that cannot be understood has not."""
    if port not in model.ports:
        return False
    try:
        return equal_except(model.port_qos(port), qos, not_held)
    except FabricError:
        return False


def padded(values: dict[int, int], length: int) -> tuple[int | None, ...]:
    """Return ``values`` by index as a tuple of ``length``, None where there is no value."""
    return tuple(values.get(index) for index in range(length))
