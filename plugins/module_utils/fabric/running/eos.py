# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the QoS of any EOS configuration, and derive each port's QoS from it. Sources: systems/eos.py."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    ECMP_FIELDS,
    Ecn,
    PortQos,
    Queue,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import Line, Reader, padded

# Settings of a port or a profile, by the words with which ``default`` removes them.
TRUST = "qos trust"
PFC = "priority-flow-control"
PFC_PRIORITY = "priority-flow-control priority "  # followed by the priority
WATCHDOG = "priority-flow-control pause watchdog"
WATCHDOG_TIMER = "priority-flow-control pause watchdog port timer"
WATCHDOG_ACTION = "priority-flow-control pause watchdog port action"
INPUT = "service-policy type qos input"
OWN_MAP = "qos map dscp to traffic-class"
PROFILE = "service-profile"
MTU = "mtu"
ROUTED = "switchport"
STRICT, PERCENT, ECN = "priority", "bandwidth percent", "random-detect ecn"  # of a queue

# DSCPs 0 to 7 go to class 1 and 8 to 15 to class 0; each further block of eight goes to the next class.
DEFAULT_DSCP_MAP = tuple({0: 1, 1: 0}.get(dscp // 8, dscp // 8) for dscp in range(DSCPS))
_DEFAULT_MTU_BYTES = 1500  # of a routed port
_UNIT_BYTES = {"bytes": 1, "kbytes": 1000, "mbytes": 1_000_000}
_REMEDY = "correct it on the switch"
_KNOWN = re.compile(r"(interface |qos |hostname |end$)")
_FOREIGN = re.compile(r"(system qos$|feature |vdc |vrf context |policy-map type (network-qos|queuing) )")
_WHOLE = "! Command: show running-config"  # text that includes this ends with "end"
_STRAY = re.compile(r"(service-profile|(uc-|mc-)?tx-queue|qos trust|priority-flow-control (on|mode|priority)|mtu)\b")
_DSCP_MAP = re.compile(r"qos map dscp ([\d ,-]+) to traffic-class (\d+)( drop-precedence \d+)?")
_QUEUE_MAP = re.compile(r"qos map traffic-class ([\d ,-]+) to (?:uc-)?tx-queue (\d+)")
_ECN = re.compile(
    r"random-detect ecn minimum-threshold (\d+) (\w+) maximum-threshold (\d+) (\w+)"
    r"(?: max-mark-probability (\d+))?(?: weight \d+)?"
)
_TIMER = re.compile(
    r"priority-flow-control pause watchdog port timer timeout (\d+(?:\.\d+)?) polling-interval (?:auto|\d+(?:\.\d+)?)"
    r" recovery-time (\d+(?:\.\d+)?)(?: forced)?"
)
_DEFAULT_TIME = re.compile(r"priority-flow-control pause watchdog default (timeout|recovery-time) (\d+(?:\.\d+)?)")
_HASH = re.compile(r"ip load-sharing (\S+) fields ip (.+)")
_HASH_FIELDS = {
    "source-ip": "source_ip",
    "destination-ip": "destination_ip",
    "source-port": "source_port",
    "destination-port": "destination_port",
}


class Settings:
    """The settings of a port or a profile: by key, the value and the line that sets it; and the same for each queue."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.values: dict[str, tuple[Any, Line]] = {}
        self.queues: dict[int, dict[str, tuple[Any, Line]]] = {}
        self.heads: dict[int, str] = {}  # "uc-tx-queue 3", or the chip's word

    def over(self, other: Settings | None) -> Settings:
        """Return these settings, completed with those of ``other``: a port's lines override its profile's."""
        if other is None:
            return self
        both = Settings(self.line)
        both.values = {**other.values, **self.values}
        for queue in {*other.queues, *self.queues}:
            both.queues[queue] = {**other.queues.get(queue, {}), **self.queues.get(queue, {})}
        return both

    def contents(self) -> tuple[Any, ...]:
        """Return all values, without the lines that set them."""
        own = [(key, value) for key, (value, _line) in self.values.items()]
        queues = [(at, [(key, value[0]) for key, value in lines.items()]) for at, lines in self.queues.items()]
        return (*own, *((at, *lines) for at, lines in queues))

    def get(self, key: str) -> Any:
        """Return the value of ``key``; None where no line sets it."""
        return self.values[key][0] if key in self.values else None


class Model(Reader):
    """A running configuration, parsed. Raises FabricError for a line of QoS that cannot be understood."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(name)
        self.dscp_map = list(DEFAULT_DSCP_MAP)
        self.coloured: set[int] = set()  # DSCPs whose packets also get a drop precedence
        self.queue_map = list(range(CLASSES))
        self.profiles: dict[str, Settings] = {}
        self.ports: dict[str, Settings] = {}
        self.class_maps: dict[str, Line] = {}
        self.policy_maps: dict[str, Line] = {}
        self.ecmp_fields: tuple[str, ...] = ECMP_FIELDS
        self.hash_chip = ""
        self.rewrites_dscp = False
        self.pfc_off = False
        self._watchdog_ms: dict[str, int] = {}
        self._watchdog_action = "errdisable"
        self._watchdog_drops = False
        self._alike: dict[tuple[Any, ...], PortQos] = {}  # by the values of a port's lines: most ports have the same
        lines = self.tree(text, "EOS", _KNOWN, _FOREIGN)
        if text.lstrip().startswith(_WHOLE) and lines[-1].text != "end":
            raise FabricError(f"{name}: configuration", 'it stops before its "end"', "fetch it again, all of it")
        for line in lines:
            self._read(line)

    def port_qos(self, port: str) -> PortQos:
        """Return the QoS of ``port``.

        Raises FabricError where it refers to a missing object, or to a value that is not in bytes or DSCPs.
        """
        own = self.ports[port]
        contents = own.contents()
        if contents not in self._alike:
            self._alike[contents] = self._port_qos(own)
        return self._alike[contents]

    def _port_qos(self, own: Settings) -> PortQos:
        both = own.over(self._profile(own))
        if OWN_MAP in both.values:
            raise self.refuse(both.values[OWN_MAP][1], "a port has a map of its own", "map DSCPs for the whole switch")
        classes: tuple[int | None, ...] = (None,) * DSCPS
        if self._trust(both) == "dscp":
            classes = self._classes(both)
        used = sorted({each for each in classes if each is not None})
        pfc = self._pfc(both)
        queue_of = {each: self.queue_map[each] for each in {*used, *pfc}}
        mtu = both.get(MTU)
        if mtu is None and ROUTED in both.values:
            mtu = _DEFAULT_MTU_BYTES
        return PortQos(
            dscp_to_class=classes,
            rewrites_dscp=self.rewrites_dscp or self._sets_dscp(both),
            class_to_queue=padded({each: self.queue_map[each] for each in used}, CLASSES),
            class_to_priority=padded({each: each for each in used}, CLASSES),
            priority_to_queue=padded(queue_of, CLASSES),
            queues=self._queues(both, {self.queue_map[each] for each in used}),
            pfc=pfc,
            watchdog=self._watchdog(both),
            ip_mtu_bytes=mtu,
        )

    def _profile(self, own: Settings) -> Settings | None:
        name = own.get(PROFILE)
        if name is None:
            return None
        if name not in self.profiles:
            raise self.refuse(own.values[PROFILE][1], f"there is no qos profile {name}", "define it, or detach it")
        return self.profiles[name]

    def _trust(self, both: Settings) -> str | None:
        """Return what the port trusts. By default, a routed port trusts the DSCP and a switched port the CoS."""
        if TRUST in both.values:
            return both.get(TRUST)
        return "dscp" if ROUTED in both.values else "cos"

    def _pfc(self, both: Settings) -> tuple[int, ...]:
        if not both.get(PFC) or self.pfc_off:
            return ()
        return tuple(each for each in range(CLASSES) if both.get(f"{PFC_PRIORITY}{each}") == "no-drop")

    def _queues(self, both: Settings, used: set[int]) -> tuple[Queue | None, ...]:
        """Return the queues that classes lead to, and those that lines configure."""
        weighted = [at for at, lines in both.queues.items() if STRICT in lines and not lines[STRICT][0]]
        queues: list[Queue | None] = []
        for at in range(CLASSES):
            lines = both.queues.get(at, {})
            if at not in used and not lines:
                queues.append(None)
                continue
            strict = lines[STRICT][0] if STRICT in lines else at > max(weighted, default=-1)
            percent = None if strict or PERCENT not in lines else lines[PERCENT][0]
            queues.append(Queue(strict, percent, self._ecn(*lines[ECN]) if ECN in lines else None))
        return tuple(queues)

    def _ecn(self, words: tuple[str, str, str, str, str | None], line: Line) -> Ecn:
        least, unit, most, most_unit, percent = words
        for each in (unit, most_unit):
            if each not in _UNIT_BYTES:
                raise self.refuse(
                    line, f"the size of {each} in bytes depends on the chip", "write the thresholds in bytes"
                )
        return Ecn(int(least) * _UNIT_BYTES[unit], int(most) * _UNIT_BYTES[most_unit], int(percent or 100))

    def _watchdog(self, both: Settings) -> Watchdog | None:
        """Return the watchdog. It acts where a line or the switch's default enables it and there is a timeout."""
        detection, restoration = both.get(WATCHDOG_TIMER) or (
            self._watchdog_ms.get("timeout", 0),
            self._watchdog_ms.get("recovery-time", 0),
        )
        on = both.get(WATCHDOG) if WATCHDOG in both.values else "timeout" in self._watchdog_ms
        if not on or not detection:
            return None
        action = "drop" if self._watchdog_drops else both.get(WATCHDOG_ACTION) or self._watchdog_action
        return Watchdog(detection, restoration, action)

    def _classes(self, both: Settings) -> tuple[int, ...]:
        """Return the class of each DSCP: the switch's map, overridden by what a policy map sets."""
        classes = list(self.dscp_map)
        if INPUT not in both.values:
            return tuple(classes)
        name, line = both.values[INPUT]
        if name not in self.policy_maps:
            raise self.refuse(line, f"there is no policy-map {name}", "define it, or detach it")
        left = set(range(DSCPS))
        for entry in self.policy_maps[name].children:
            words = entry.text.split(" ")
            if words[0] != "class":
                continue
            matched = left if words[-1] == "class-default" else left & self._matched(entry, words[-1])
            for action in entry.children:
                if action.text.startswith("set traffic-class "):
                    number = self.number(action, action.text.split(" ")[2], 0, CLASSES - 1)
                    for dscp in matched:
                        classes[dscp] = number
            left = left - matched
        return tuple(classes)

    def _sets_dscp(self, both: Settings) -> bool:
        policy = self.policy_maps.get(both.get(INPUT))
        entries = policy.children if policy else []
        return any(line.text.startswith("set dscp ") for entry in entries for line in entry.children)

    def _matched(self, entry: Line, name: str) -> set[int]:
        if name not in self.class_maps:
            raise self.refuse(entry, f"there is no class-map {name}", "define it, or remove the class")
        found: set[int] = set()
        for line in self.class_maps[name].children:
            match = re.fullmatch(r"match (?:ip )?dscp (.+)", line.text)
            if match:
                found.update(self.dscps(line, match[1]))
            elif line.text.startswith("match "):
                raise self.refuse(line, "the class depends on more than the DSCP", "match only DSCPs")
        return found

    def _read(self, line: Line) -> None:
        words = line.text.split(" ")
        if words[0] == "interface":
            if line.text.startswith(("interface Ethernet", "interface Port-Channel")):
                for name in self.ports_of(line):
                    self._settings(self.ports.setdefault(name, Settings(line)), line)
        elif line.text.startswith("qos profile ") and len(words) == 3:
            self._settings(self.profiles.setdefault(words[2], Settings(line)), line)
        elif line.text.startswith("class-map type qos "):
            self.class_maps[words[-1]] = line
        elif line.text.startswith("policy-map type quality-of-service ") or line.text.startswith(
            "policy-map type qos "
        ):
            self.policy_maps[words[-1]] = line
        elif _STRAY.match(line.text):
            raise self.refuse(line, "it is not in an interface or a profile", "keep the indentation of the text")
        else:
            self._read_global(line)

    def _read_global(self, line: Line) -> None:
        dscp_map, queue_map = _DSCP_MAP.fullmatch(line.text), _QUEUE_MAP.fullmatch(line.text)
        time, fields = _DEFAULT_TIME.fullmatch(line.text), _HASH.fullmatch(line.text)
        if dscp_map:
            number = self.number(line, dscp_map[2], 0, CLASSES - 1)
            for dscp in self.dscps(line, dscp_map[1]):
                self.dscp_map[dscp] = number
                (self.coloured.add if dscp_map[3] else self.coloured.discard)(dscp)
        elif queue_map:
            number = self.number(line, queue_map[2], 0, CLASSES - 1)
            for word in queue_map[1].replace(",", " ").split():
                first, _dash, last = word.partition("-")
                least = self.number(line, first, 0, CLASSES - 1)
                for each in range(least, self.number(line, last or first, least, CLASSES - 1) + 1):
                    self.queue_map[each] = number
        elif time:
            self._watchdog_ms[time[1]] = _milliseconds(time[2])
        elif fields:
            self.hash_chip = fields[1]
            self.ecmp_fields = _hash_fields(fields[2].split(" "))
        elif line.text.startswith("priority-flow-control pause watchdog action "):
            self._watchdog_action = line.text.split(" ")[-1]
        elif line.text == "priority-flow-control pause watchdog override action drop":
            self._watchdog_drops = True
        elif line.text == "priority-flow-control all off":
            self.pfc_off = True
        elif line.text == "qos rewrite dscp":
            self.rewrites_dscp = True
        elif re.match(r"qos map (dscp \d|traffic-class .* to (uc-)?tx-queue)", line.text):
            raise self.refuse(line, "not a map of EOS", _REMEDY)

    def _settings(self, to: Settings, line: Line) -> None:
        for child in line.children:
            queue = re.fullmatch(r"(?:uc-)?tx-queue (\d+)", child.text)
            if queue:
                at = self.number(child, queue[1], 0, CLASSES - 1)
                to.heads[at] = child.text
                for each in child.children:
                    self._queue_setting(to.queues.setdefault(at, {}), each)
            else:
                self._setting(to.values, child)

    def _setting(self, to: dict[str, tuple[Any, Line]], line: Line) -> None:
        text = line.text
        timer = _TIMER.fullmatch(text)
        priority = re.fullmatch(r"priority-flow-control priority (\d+) (no-drop|drop)", text)
        if text in ("qos trust dscp", "qos trust cos", "no qos trust"):
            to[TRUST] = (None if text.startswith("no ") else text.split(" ")[2], line)
        elif text in ("priority-flow-control on", "priority-flow-control mode on"):
            to[PFC] = (True, line)
        elif text in ("no priority-flow-control", "no priority-flow-control on", "no priority-flow-control mode on"):
            to[PFC] = (False, line)
        elif priority:
            to[f"{PFC_PRIORITY}{self.number(line, priority[1], 0, CLASSES - 1)}"] = (priority[2], line)
        elif text in (WATCHDOG, f"no {WATCHDOG}"):
            to[WATCHDOG] = (text == WATCHDOG, line)
        elif timer:
            to[WATCHDOG_TIMER] = ((_milliseconds(timer[1]), _milliseconds(timer[2])), line)
        elif re.fullmatch(rf"{WATCHDOG_ACTION} (drop|notify-only|errdisable)", text):
            to[WATCHDOG_ACTION] = (text.split(" ")[-1], line)
        elif re.fullmatch(rf"({INPUT}|{OWN_MAP}|{PROFILE}) \S+", text):
            key, _blank, name = text.rpartition(" ")
            to[key] = (name, line)
        elif text.startswith("mtu "):
            to[MTU] = (self.number(line, text.split(" ")[1], 68, 65535), line)
        elif text == "no switchport":
            to[ROUTED] = (True, line)
        elif text.startswith((TRUST, PFC, INPUT, PROFILE)):
            raise self.refuse(line, "not a setting of EOS's QoS", _REMEDY)

    def _queue_setting(self, to: dict[str, tuple[Any, Line]], line: Line) -> None:
        text = line.text
        ecn = _ECN.fullmatch(text)
        if text in ("no priority", "priority strict"):
            to[STRICT] = (text == "priority strict", line)
        elif text.startswith(f"{PERCENT} "):
            to[PERCENT] = (self.number(line, text.split(" ", 2)[2], 1, 100), line)
        elif ecn:
            to[ECN] = (ecn.groups(), line)
        elif text.startswith((ECN, STRICT, "bandwidth ")) and not re.fullmatch(
            rf"{ECN} count|bandwidth guaranteed( percent)? \d+.*", text
        ):
            raise self.refuse(line, "not a setting of EOS's queues", _REMEDY)


def _hash_fields(words: list[str]) -> tuple[str, ...]:
    """Return the hash's fields. The protocol is included with the ports."""
    fields = {_HASH_FIELDS[word] for word in words if word in _HASH_FIELDS}
    if any(field.endswith("_port") for field in fields):
        fields.add("protocol")
    return tuple(sorted(fields))


def _milliseconds(seconds: str) -> int:
    return int(Decimal(seconds) * 1000)


def settings_of(text: str) -> Settings:
    """Return the settings of one profile's text ("qos profile NAME" and its lines), for comparison with another's."""
    model = Model(text, "profile")
    return next(iter(model.profiles.values()))
