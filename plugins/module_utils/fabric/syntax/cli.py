# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read configurations of lines, nested as EOS and NX-OS print them or flat, and what both need to render them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    Ecn,
    PortQos,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import OverrideRules

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
MTU = "mtu"  # key of a setting
_UNIT_BYTES = {"bytes": 1, "kbytes": 1000, "mbytes": 1_000_000}
_RANGE = re.compile(
    r"(?P<kind>[A-Za-z][A-Za-z-]*)? ?(?P<slot>(?:\d+/)*)(?P<first>\d+)"
    r"(?: ?- ?(?:(?P=kind) ?)?(?:(?P=slot))?(?P<last>\d+))?(?P<sub>\.\d+)?"
)
_SPEED = re.compile(r"speed (?:forced |auto )?(\d+)(?:(g)\S*)?$")  # "100g-2", "forced 400gfull"; NX-OS: in Mbit/s
_LAG = re.compile(r"channel-group (\d+)\b")
_VLAN = re.compile(r"interface Vlan ?(\d+)")
_ACCESS_LIST = re.compile(r"(?:ip|ipv6) access-list (\S+)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AGAIN = "fetch the running configuration again, all of it"
_MOST_BYTES = 10**10  # of a threshold; more than the largest buffer of a switch, in HBM
_MOST_WEIGHT = 15
_MOST_PORTS = 4096  # in a range; a longer one is an error


class CliLine:
    """One line: its number in the text (from 1), its content with single blanks, and the lines indented under it."""

    __slots__ = ("children", "number", "text")

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        self.children: list[CliLine] = []


class CliSettings:
    """The settings of an interface, a profile or "system qos": by key, the value and the line that sets it.

    ``unread``: its overrides, each with what it can change. ``lag``: the number of its port channel. ``switchport``:
    the lines that say which VLANs it carries. ``routes``: whether it has a line of IP.
    """

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, CliLine]] = {}
        self.unread: list[tuple[str, str]] = []
        self.speed_gbit_s: int | None = None
        self.lag: str | None = None
        self.switchport: list[str] = []
        self.routes = False
        self.is_shut = False
        self.is_up = False  # by a line

    def notice(self, text: str) -> None:
        """Keep what a line says of the interface's VLANs, addresses and state."""
        if text == "shutdown":
            self.is_shut = True
        elif text == "no shutdown":
            self.is_up = True
        elif text.startswith(("ip ", "ipv6 ")):
            self.routes = True
        elif text == "no switchport" or text.startswith("switchport "):
            self.switchport.append(text)

    def merged_onto(self, below: Any) -> Any:
        """Return these settings, completed with those of ``below``."""
        merged = CliSettings()
        merged.values = {**below.values, **self.values}
        return merged

    def get(self, key: str) -> Any:
        """Return the value of ``key``; None where no line sets it."""
        return self.values[key][0] if key in self.values else None

    def lines_unlike(self, member: CliSettings) -> Iterator[str]:
        """Return a port channel's lines that ``member`` does not have, except routing and the MTU (``switch_of``)."""
        for key, (value, line) in self.values.items():
            if value != member.get(key) and key not in ("switchport", "mtu"):
                yield line.text


class CliReader:
    """A reader of one switch's text. Its refusals name the switch."""

    def __init__(self, name: str, rules: OverrideRules) -> None:
        """Keep the switch's ``name``, which refusals mention, and the system's ``rules``."""
        self.name = name
        self.rules = rules
        self.overrides: dict[tuple[str, str], list[str]] = {}  # statement, effect -> ports, none for the whole switch
        self.access_lists: dict[str, list[str]] = {}  # lines by name
        self.vlan_interfaces: dict[int, CliSettings] = {}
        self.lag_hashes: list[str] = []  # lines that say by what port channels spread packets
        self.default_mtu_bytes = 1500  # of an interface that routes

    def unread(self, unread: list[tuple[str, str]], text: str) -> None:
        """Add a statement that no field shows to ``unread``, if it can change something."""
        unread += self.with_effects([text])

    def unread_of_port(self, settings: CliSettings, line: CliLine) -> None:
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

    def read_beside_ports(self, line: CliLine) -> None:
        """Read a line at the margin that neither a port nor QoS has."""
        vlan, access_list = _VLAN.fullmatch(line.text), _ACCESS_LIST.fullmatch(line.text)
        if vlan or line.text == "interface defaults":
            settings = CliSettings()
            for child in line.children:
                settings.notice(child.text)
                if child.text.startswith("mtu "):
                    settings.values[MTU] = (self.number(child, child.text[len("mtu ") :], 68, 65535), child)
            if vlan:
                self.vlan_interfaces[int(vlan[1])] = settings
            else:
                self.default_mtu_bytes = settings.get(MTU) or self.default_mtu_bytes
        elif access_list:
            self.access_lists.setdefault(access_list[1], []).extend(child.text for child in line.children)
        elif line.text.startswith("port-channel load-balance "):
            self.lag_hashes.append(line.text)
            return
        self.unread_of_section(line)

    def record(self, port: str, place: str, unread: Iterable[tuple[str, str]]) -> None:
        """Record the overrides of ``place`` ("qos profile p"; "" for the port itself) for a port.

        Those of a subinterface concern the packets of its port.
        """
        parent, dot, _number = port.partition(".")
        place_name = f"interface {port} {place}" if dot else place
        for text, effect in unread:
            self.overrides.setdefault((f"{place_name.strip()} {text}".strip(), effect), []).append(parent)

    def unread_of_classes(self, policy: CliLine | None) -> list[tuple[str, str]]:
        """Return the overrides among the actions of a policy map's classes."""
        entries = policy.children if policy else ()
        return self.with_effects(
            f"class {entry.text.split(' ')[-1]} {action.text}" for entry in entries for action in entry.children
        )

    def with_effects(self, texts: Iterable[str]) -> list[tuple[str, str]]:
        """Return the statements that can change something, each with what it can change."""
        return [(text, effect) for text in texts if (effect := self.rules.effect(text))]

    def refuse(self, line: CliLine, cause: str, remedy: str) -> FabricError:
        """Return a FabricError that names the switch and the line."""
        return FabricError(cause, remedy, subject=f"{self.name}: line {line.number} {line.text!r}")

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
            raise FabricError(
                f"it contains no line of {system}'s configuration", _AGAIN, subject=f"{self.name}: configuration"
            )
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
            raise FabricError("it ends within a banner", _AGAIN, subject=f"{self.name}: configuration")
        return top

    def number(self, line: CliLine, word: str, minimum: int, maximum: int) -> int:
        """Return ``word`` of ``line`` as a number of ``minimum`` to ``maximum``."""
        if not word.isdecimal() or not minimum <= int(word) <= maximum:
            raise self.refuse(line, f"{word!r} is not a number from {minimum} to {maximum}", "correct it on the switch")
        return int(word)

    def numbers_of(self, line: CliLine, listed: str) -> list[int]:
        """Return the numbers of a list such as "3", "0,6-7" or "0 2-4" of classes or priorities."""
        values: list[int] = []
        for word in listed.replace(",", " ").split():
            first, _dash, last = word.partition("-")
            lowest = self.number(line, first, 0, CLASSES - 1)
            values += range(lowest, self.number(line, last or first, lowest, CLASSES - 1) + 1)
        return values

    def marking(
        self,
        line: CliLine,
        minimum: str,
        minimum_unit: str,
        maximum: str,
        maximum_unit: str,
        percent: str | None,
        weight: str | None,
    ) -> tuple[Ecn | None, str | None]:
        """Return the marking at these thresholds, or the thresholds in words where they are not bytes of the queue.

        Arista's segments and Cisco's packets are no bytes: the size of a segment depends on the chip, and is not
        published. With a ``weight`` above 0, the thresholds are those of an average, which moves to the queue's length
        by 2^-weight each time: at 15, it follows a burst long after PFC. Without ``percent``, all packets are marked at
        the upper threshold. Raises FabricError for thresholds, a weight or a probability that no queue can have.
        """
        probability_percent = int(percent or 100)
        units = [_UNIT_BYTES.get(unit) for unit in (minimum_unit, maximum_unit)]
        averaged = self.number(line, weight or "0", 0, _MOST_WEIGHT)
        if units[0] is None or units[1] is None or averaged:
            text = f"{minimum} {minimum_unit} to {maximum} {maximum_unit} at {probability_percent}%"
            return None, f"{text}, average of weight {averaged}" if averaged else text
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
        f"its {setting} differs from {first}'s, but {reason}",
        "plan both with one policy",
        subject=f"{switch.name}: port {port}",
    )


def wanted_classes(switch: Switch, port: str, qos: PortQos) -> list[int]:
    """Return the traffic classes of the DSCPs. Raises FabricError where a DSCP or a class lacks what it needs."""
    subject = f"{switch.name}: port {port}"
    if None in qos.dscp_to_class:
        raise FabricError(
            f"DSCP {qos.dscp_to_class.index(None)} has no traffic class", "give one to each of the 64", subject=subject
        )
    classes = sorted({traffic_class for traffic_class in qos.dscp_to_class if traffic_class is not None})
    for traffic_class in classes:
        queue, priority = qos.class_to_queue[traffic_class], qos.class_to_priority[traffic_class]
        if queue is None or priority is None or qos.queues[queue] is None:
            raise FabricError(
                f"traffic class {traffic_class} has no queue, priority or scheduler", "set all three", subject=subject
            )
        if qos.priority_to_queue[priority] != queue:
            raise FabricError(
                f"a pause of priority {priority} does not stop traffic class {traffic_class}'s queue {queue}",
                f"map priority {priority} to queue {queue}",
                subject=subject,
            )
    for priority in qos.pfc:
        if priority not in [qos.class_to_priority[traffic_class] for traffic_class in classes]:
            raise FabricError(
                f"priority {priority} pauses, and no traffic class has it", "give it to one", subject=subject
            )
    if qos.ip_mtu_bytes is None:
        raise FabricError("no MTU is wanted", "set switch_mtu_bytes in the policy", subject=subject)
    return classes


def padded(values: dict[int, int], length: int) -> tuple[int | None, ...]:
    """Return ``values`` by index as a tuple of ``length``, None where there is no value."""
    return tuple(values.get(index) for index in range(length))
