# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read configurations of lines, nested as EOS and NX-OS print them or flat, and what both need to render them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from typing import Any, Protocol

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import DSCPS, PortQos, Switch

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
_RANGE = re.compile(
    r"(?P<kind>[A-Za-z][A-Za-z-]*)? ?(?P<slot>(?:\d+/)*)(?P<first>\d+)"
    r"(?: ?- ?(?:(?P=kind) ?)?(?:(?P=slot))?(?P<last>\d+))?(?P<sub>\.\d+)?"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AGAIN = "fetch the running configuration again, all of it"
_MOST_PORTS = 4096  # in a range; a longer one is an error


class Line:
    """One line: its number in the text (from 1), its content with single blanks, and the lines indented under it."""

    __slots__ = ("children", "number", "text")

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        self.children: list[Line] = []


class Reader:
    """A reader of one switch's text. Its refusals name the switch."""

    def __init__(self, name: str) -> None:
        """Keep the switch's ``name``, which refusals mention."""
        self.name = name

    def refuse(self, line: Line, why: str, remedy: str) -> FabricError:
        """Return a FabricError that names the switch and the line."""
        return FabricError(f"{self.name}: line {line.number} {line.text!r}", why, remedy)

    def tree(self, text: str, system: str, known: re.Pattern[str], foreign: re.Pattern[str]) -> list[Line]:
        """Return the lines at the left margin, without comments ("!") and banners.

        Raises FabricError where ``text`` is not a configuration of ``system``. In any such configuration, some lines at
        the margin match ``known``, and none matches ``foreign``.
        """
        top = self.nest(text, system)
        for line in top:
            if foreign.match(line.text):
                raise self.refuse(line, f"not a line of {system}'s configuration", "correct the switch's system")
        if not any(known.match(line.text) for line in top):
            raise FabricError(f"{self.name}: configuration", f"it contains no line of {system}'s configuration", _AGAIN)
        return top

    def nest(self, text: str, system: str) -> list[Line]:
        """Return the lines at the left margin of any part of a configuration, without comments ("!") and banners."""
        top: list[Line] = []
        open_at: list[tuple[int, list[Line]]] = [(-1, top)]
        banner_end = ""
        for number, raw in enumerate(text.splitlines(), start=1):
            if banner_end:
                if banner_end in raw:
                    banner_end = ""
                continue
            line = Line(number, " ".join(raw.split()))
            if not line.text or line.text.startswith("!"):
                continue
            if line.text.startswith("%") or _CONTROL.search(line.text):
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

    def number(self, line: Line, word: str, least: int, most: int) -> int:
        """Return ``word`` of ``line`` as a number of ``least`` to ``most``."""
        if not word.isdecimal() or not least <= int(word) <= most:
            raise self.refuse(line, f"{word!r} is not a number from {least} to {most}", "correct it on the switch")
        return int(word)

    def dscps(self, line: Line, words: str) -> list[int]:
        """Return the DSCPs of a list such as "26", "24-31 48", "10,18" or "af31,cs6"."""
        found: list[int] = []
        for word in re.split(r"[ ,]+", words.strip()):
            first, dash, last = word.partition("-")
            least = self._dscp(line, first)
            most = self._dscp(line, last) if dash else least
            if most < least:
                raise self.refuse(line, f"{word!r} is a descending range", "correct it on the switch")
            found += range(least, most + 1)
        return found

    def _dscp(self, line: Line, word: str) -> int:
        named = DSCP_NAMES.get(word)
        return self.number(line, word, 0, DSCPS - 1) if named is None else named

    def ports_of(self, line: Line) -> list[str]:
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
            names += [f"{kind}{slot}{at}{match['sub'] or ''}" for at in range(first, last + 1)]
        return names


def _banner_end(text: str) -> str:
    """Return the end mark of the banner that ``text`` begins, "" if ``text`` ends it. EOS has EOF, NX-OS any sign."""
    words = text.split(" ", 2)
    if len(words) < 3:
        return "EOF"
    sign = words[2][0]
    return "" if sign in words[2][1:] else sign


def own_name(kind: str, lines: Iterable[str]) -> str:
    """Return a name derived from ``lines``, so that a change makes a new object beside the one in use."""
    return f"{OWN}{kind}-{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:8]}"


def numbers(values: Iterable[int], between: str) -> str:
    """Return ascending numbers as a list: "0 1 2 7"."""
    return between.join(str(value) for value in sorted(values))


def unlike(switch: Switch, port: str, what: str, why: str) -> FabricError:
    """Return the refusal of a port whose ``what`` differs from the first port's, if the system has one for all."""
    first = next(iter(switch.ports))
    return FabricError(
        f"{switch.name}: port {port}", f"its {what} differs from {first}'s, but {why}", "plan both with one policy"
    )


def wanted_classes(switch: Switch, port: str, qos: PortQos) -> list[int]:
    """Return the traffic classes of the DSCPs. Raises FabricError where a DSCP or a class lacks what it needs."""
    subject = f"{switch.name}: port {port}"
    if None in qos.dscp_to_class:
        raise FabricError(
            subject, f"DSCP {qos.dscp_to_class.index(None)} has no traffic class", "give one to each of the 64"
        )
    classes = sorted({each for each in qos.dscp_to_class if each is not None})
    for each in classes:
        queue, priority = qos.class_to_queue[each], qos.class_to_priority[each]
        if queue is None or priority is None or qos.queues[queue] is None:
            raise FabricError(subject, f"traffic class {each} has no queue, priority or scheduler", "set all three")
        if qos.priority_to_queue[priority] != queue:
            raise FabricError(
                subject,
                f"a pause of priority {priority} does not stop traffic class {each}'s queue {queue}",
                f"map priority {priority} to queue {queue}",
            )
    for each in qos.pfc:
        if each not in [qos.class_to_priority[at] for at in classes]:
            raise FabricError(subject, f"priority {each} pauses, and no traffic class has it", "give it to one")
    if qos.ip_mtu_bytes is None:
        raise FabricError(subject, "no MTU is wanted", "set switch_mtu_bytes in the policy")
    return classes


def same(seen: PortQos, wanted: PortQos, not_held: Collection[str]) -> bool:
    """Return true where two ports are alike in all fields except ``not_held``."""
    return all(getattr(seen, name) == value for name, value in vars(wanted).items() if name not in not_held)


class Parsed(Protocol):
    """A parsed configuration."""

    ports: dict[str, Any]
    ecmp_fields: tuple[str, ...]

    def port_qos(self, port: str) -> PortQos: ...


def switch_of(model: Parsed, name: str, system: str) -> Switch:
    """Return the switch of a parsed configuration; ports that are alike share one object. Raises FabricError."""
    seen: dict[PortQos, PortQos] = {}
    ports = {port: model.port_qos(port) for port in model.ports}
    return Switch(name, system, {port: seen.setdefault(qos, qos) for port, qos in ports.items()}, model.ecmp_fields)


def is_as_wanted(model: Parsed, port: str, qos: PortQos, not_held: Collection[str]) -> bool:
    """Return true where ``port`` has the wanted settings; a port that cannot be understood has not."""
    if port not in model.ports:
        return False
    try:
        return same(model.port_qos(port), qos, not_held)
    except FabricError:
        return False


def padded(values: dict[int, int], length: int) -> tuple[int | None, ...]:
    """Return ``values`` by index as a tuple of ``length``, None where there is no value."""
    return tuple(values.get(at) for at in range(length))
