# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the QoS of any EOS configuration, and derive each port's QoS from it. Sources: systems/eos.py."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, NamedTuple

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
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.eos_settings import EosSettings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax import class_maps
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.class_maps import Classification, Taken
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import (
    MTU,
    CliLine,
    CliReader,
    padded,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import EOS, QUEUE

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
ROUTED = "switchport"
STRICT, PERCENT, ECN = "priority", "bandwidth percent", "random-detect ecn"  # of a queue

# DSCPs 0 to 7 go to class 1 and 8 to 15 to class 0; each further block of eight goes to the next class.
DEFAULT_DSCP_MAP = tuple({0: 1, 1: 0}.get(dscp // 8, dscp // 8) for dscp in range(DSCPS))
_REMEDY = "correct it on the switch"
_KNOWN = re.compile(r"(interface |qos |hostname |end$)")
_FOREIGN = re.compile(r"(system qos$|feature |vdc |vrf context |policy-map type (network-qos|queuing) )")
_WHOLE = "! Command: show running-config"  # text that includes this ends with "end"
_STRAY = re.compile(r"(service-profile|(uc-|mc-)?tx-queue|qos trust|priority-flow-control (on|mode|priority)|mtu)\b")
_DSCP_MAP = re.compile(r"qos map dscp ([\d ,-]+) to traffic-class (\d+)( drop-precedence \d+)?")
_QUEUE_MAP = re.compile(r"qos map traffic-class ([\d ,-]+) to (?:uc-)?tx-queue (\d+)")
_ECN = re.compile(
    r"random-detect ecn minimum-threshold (\d+) (\w+) maximum-threshold (\d+) (\w+)"
    r"(?: max-mark-probability (\d+))?(?: weight (\d+))?"
)
_TIMER = re.compile(
    r"priority-flow-control pause watchdog port timer timeout (\d+(?:\.\d+)?) polling-interval (auto|\d+(?:\.\d+)?)"
    r" recovery-time (\d+(?:\.\d+)?)(?: forced)?"
)
_DEFAULT_TIME = re.compile(
    r"priority-flow-control pause watchdog default (timeout|polling-interval|recovery-time) (\d+(?:\.\d+)?)"
)
_QUEUE = re.compile(r"(?:uc-)?tx-queue (\d+)")
_PRIORITY = re.compile(r"priority-flow-control priority (\d+) (no-drop|drop)")
_ACTION = re.compile(rf"{WATCHDOG_ACTION} (drop|notify-only|errdisable)")
_NAMED = re.compile(rf"({INPUT}|{OWN_MAP}|{PROFILE}) \S+")
_HASH = re.compile(r"(ip load-sharing \S+ fields (ip|ipv6)) (.+)")
_MATCH = re.compile(r"match (?:(?:ip )?dscp ((?!.* ecn ).+)|(?:ip|ipv6) access-group (\S+))")
_HASH_FIELDS = {
    "source-ip": "source_ip",
    "destination-ip": "destination_ip",
    "source-port": "source_port",
    "destination-port": "destination_port",
}


class Hash(NamedTuple):
    """The fields that ECMP hashes of one family's packets: the line, its words before the fields, and the fields."""

    head: str
    fields: tuple[str, ...]
    text: str


class EosConfiguration(CliReader):
    """A running configuration, parsed. Raises FabricError for a line of QoS that cannot be understood."""

    lag_prefix = "Port-Channel"

    def __init__(self, text: str, name: str) -> None:
        super().__init__(name, EOS)
        self.dscp_map = list(DEFAULT_DSCP_MAP)
        self.coloured: set[int] = set()  # DSCPs whose packets also get a drop precedence
        self.queue_map = list(range(CLASSES))
        self.profiles: dict[str, EosSettings] = {}
        self.ports: dict[str, EosSettings] = {}
        self.class_maps: dict[str, CliLine] = {}
        self.policy_maps: dict[str, CliLine] = {}
        self.hashes: dict[str, Hash] = {}  # by family
        self.rewrites_dscp = False
        self.pfc_off = False
        self._watchdog_ms: dict[str, int] = {}
        self._watchdog_action = "errdisable"
        self._watchdog_drops = False
        self._alike: dict[tuple[Any, ...], PortQos] = {}  # by the values of a port's lines: most ports have the same
        self._classified: dict[int, Classification] = {}  # by the line number of a policy map
        lines = self.tree(text, "EOS", _KNOWN, _FOREIGN)
        if text.lstrip().startswith(_WHOLE) and lines[-1].text != "end":
            raise FabricError(
                'it stops before its "end"', "fetch it again, all of it", subject=f"{name}: configuration"
            )
        for line in lines:
            self._read(line)

    def port_qos(self, port: str) -> PortQos:
        """Return the QoS of ``port``.

        Raises FabricError where it refers to a missing object, or to a value that is not in bytes or DSCPs.
        """
        settings = self.ports[port]
        contents = settings.contents()
        if contents not in self._alike:
            self._alike[contents] = self.qos_of(settings)
        return self._alike[contents]

    def record_overrides(self) -> None:
        """Record the overrides of all ports, with those of their profiles and policy maps."""
        policies = {name: self.unread_of_classes(policy) for name, policy in self.policy_maps.items()}
        for port, settings in self.ports.items():
            if "." in port and settings.is_shut:
                continue
            self.record(port, "", settings.unread)
            profile = self._profile(settings)
            if profile:
                self.record(port, profile.line.text, profile.unread)
            name = str(settings.get(INPUT) or (profile.get(INPUT) if profile else ""))
            self.record(port, f"policy-map {name}", policies.get(name, ()))
            if name in self.policy_maps:
                conditions = self._classification(self.policy_maps[name]).conditions
                self.record(port, f"policy-map {name}", self.with_effects(conditions))

    @property
    def ecmp_fields(self) -> tuple[str, ...]:
        """Return what ECMP hashes of the packets of both families: all where no line says otherwise."""
        return tuple(
            field for field in ECMP_FIELDS if all(field in algorithm.fields for algorithm in self.hashes.values())
        )

    def qos_of(self, settings: EosSettings) -> PortQos:
        """Return the QoS of an interface with ``settings``. Raises FabricError as ``port_qos``."""
        merged = settings.merged_onto(self._profile(settings))
        if OWN_MAP in merged.values:
            raise self.refuse(
                merged.values[OWN_MAP][1], "a port has a map of its own", "map DSCPs for the whole switch"
            )
        policy = self._policy(merged)
        classes: tuple[int | None, ...] = (None,) * DSCPS
        used: list[int] = []
        if self._trust(merged) == "dscp":
            classification = self._classification(policy) if policy else None
            classes = classification.classes if classification else tuple(self.dscp_map)
            used = sorted(classification.used if classification else {*self.dscp_map})
        pfc = self._pfc(merged)
        queue_of = {traffic_class: self.queue_map[traffic_class] for traffic_class in {*used, *pfc}}
        mtu = merged.get(MTU)
        if mtu is None and ROUTED in merged.values:
            mtu = self.default_mtu_bytes
        return PortQos(
            dscp_to_class=classes,
            rewrites_dscp=self.rewrites_dscp or _sets_dscp(policy),
            class_to_queue=padded({traffic_class: self.queue_map[traffic_class] for traffic_class in used}, CLASSES),
            class_to_priority=padded({traffic_class: traffic_class for traffic_class in used}, CLASSES),
            priority_to_queue=padded(queue_of, CLASSES),
            queues=self._queues(merged, {self.queue_map[traffic_class] for traffic_class in used}),
            pfc=pfc,
            watchdog=self._watchdog(merged),
            ip_mtu_bytes=mtu,
        )

    def _profile(self, settings: EosSettings) -> EosSettings | None:
        name = settings.get(PROFILE)
        if name is None:
            return None
        if name not in self.profiles:
            raise self.refuse(settings.values[PROFILE][1], f"there is no qos profile {name}", "define it, or detach it")
        return self.profiles[name]

    def _trust(self, merged: EosSettings) -> str | None:
        """Return what the port trusts. By default, a routed port trusts the DSCP and a switched port the CoS."""
        if TRUST in merged.values:
            return merged.get(TRUST)
        return "dscp" if ROUTED in merged.values else "cos"

    def _pfc(self, merged: EosSettings) -> tuple[int, ...]:
        if not merged.get(PFC) or self.pfc_off:
            return ()
        return tuple(priority for priority in range(CLASSES) if merged.get(f"{PFC_PRIORITY}{priority}") == "no-drop")

    def _queues(self, merged: EosSettings, used: set[int]) -> tuple[Queue | None, ...]:
        """Return the queues that classes lead to, and those that lines configure."""
        weighted = [queue for queue, lines in merged.queues.items() if STRICT in lines and not lines[STRICT][0]]
        queues: list[Queue | None] = []
        for queue in range(CLASSES):
            lines = merged.queues.get(queue, {})
            if queue not in used and not lines:
                queues.append(None)
                continue
            strict = lines[STRICT][0] if STRICT in lines else queue > max(weighted, default=-1)
            percent = None if strict or PERCENT not in lines else lines[PERCENT][0]
            marking: tuple[Ecn | None, str | None] = (None, None)
            if ECN in lines:
                fields, line = lines[ECN]
                marking = self.marking(line, *fields)
            queues.append(Queue(strict, percent, *marking))
        return tuple(queues)

    def _watchdog(self, merged: EosSettings) -> Watchdog | None:
        """Return the watchdog. It acts where a line or the switch's default enables it and there is a timeout.

        It cannot act sooner than it looks at the queues.
        """
        times = ("timeout", "polling-interval", "recovery-time")
        detection, polling, restoration = merged.get(WATCHDOG_TIMER) or (
            self._watchdog_ms.get(time, 0) for time in times
        )
        on = merged.get(WATCHDOG) if WATCHDOG in merged.values else "timeout" in self._watchdog_ms
        if not on or not detection:
            return None
        action = "drop" if self._watchdog_drops else merged.get(WATCHDOG_ACTION) or self._watchdog_action
        return Watchdog(max(detection, polling), max(restoration, polling), action)

    def _policy(self, merged: EosSettings) -> CliLine | None:
        if INPUT not in merged.values:
            return None
        name, line = merged.values[INPUT]
        if name not in self.policy_maps:
            raise self.refuse(line, f"there is no policy-map {name}", "define it, or detach it")
        return self.policy_maps[name]

    def _classification(self, policy: CliLine) -> Classification:
        """Return the classes that a policy map gives DSCPs: those of the switch's map where no class sets one."""
        if policy.number not in self._classified:
            self._classified[policy.number] = class_maps.classified(
                self, policy, self._taken, "set traffic-class ", self.dscp_map
            )
        return self._classified[policy.number]

    def _taken(self, entry: CliLine, name: str) -> tuple[Taken, list[str]]:
        if name not in self.class_maps:
            raise self.refuse(entry, f"there is no class-map {name}", "define it, or remove the class")
        matches = [line for line in self.class_maps[name].children if line.text.startswith("match ")]
        return class_maps.together([(line.text, self._match(line)) for line in matches], all_of=False)

    def _match(self, line: CliLine) -> Taken:
        match = _MATCH.fullmatch(line.text)
        if match and match[1]:
            return class_maps.exactly(self.dscps(line, match[1]))
        return class_maps.of_access_list(self.access_lists.get(match[2], ())) if match else class_maps.NOT_UNDERSTOOD

    def _read(self, line: CliLine) -> None:
        words = line.text.split(" ")
        if words[0] == "interface":
            if line.text.startswith(("interface Ethernet", "interface Port-Channel")):
                for name in self.ports_of(line):
                    self._settings(self.ports.setdefault(name, EosSettings(line)), line)
            else:
                self.read_beside_ports(line)
        elif line.text.startswith("qos profile ") and len(words) == 3:
            self._settings(self.profiles.setdefault(words[2], EosSettings(line)), line)
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

    def _read_global(self, line: CliLine) -> None:
        dscp_map, queue_map = _DSCP_MAP.fullmatch(line.text), _QUEUE_MAP.fullmatch(line.text)
        time, hashed = _DEFAULT_TIME.fullmatch(line.text), _HASH.fullmatch(line.text)
        if dscp_map:
            number = self.number(line, dscp_map[2], 0, CLASSES - 1)
            if dscp_map[3]:
                self.overrides[line.text, QUEUE] = []
            for dscp in self.dscps(line, dscp_map[1]):
                self.dscp_map[dscp] = number
                (self.coloured.add if dscp_map[3] else self.coloured.discard)(dscp)
        elif queue_map:
            number = self.number(line, queue_map[2], 0, CLASSES - 1)
            for traffic_class in self.numbers_of(line, queue_map[1]):
                self.queue_map[traffic_class] = number
        elif time:
            self._watchdog_ms[time[1]] = _milliseconds(time[2])
        elif hashed:
            self.hashes[hashed[2]] = Hash(hashed[1], _hash_fields(hashed[3].split(" ")), line.text)
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
        else:
            self.read_beside_ports(line)

    def _settings(self, settings: EosSettings, line: CliLine) -> None:
        for child in line.children:
            settings.notice(child.text)
            queue = _QUEUE.fullmatch(child.text)
            if queue:
                number = self.number(child, queue[1], 0, CLASSES - 1)
                settings.heads[number] = child.text
                for setting in child.children:
                    if not self._queue_setting(settings.queues.setdefault(number, {}), setting):
                        self.unread(settings.unread, f"{child.text} {setting.text}")
            elif not self._setting(settings.values, child):
                self.unread_of_port(settings, child)

    def _setting(self, settings: dict[str, tuple[Any, CliLine]], line: CliLine) -> bool:
        """Read a line of a port or a profile. Return false if it is none that a field shows."""
        text = line.text
        if text.startswith("mtu "):
            settings[MTU] = (self.number(line, text.split(" ")[1], 68, 65535), line)
        elif _NAMED.fullmatch(text):
            key, _blank, name = text.rpartition(" ")
            settings[key] = (name, line)
        elif text in ("qos trust dscp", "qos trust cos", "no qos trust"):
            settings[TRUST] = (None if text.startswith("no ") else text.split(" ")[2], line)
        elif text in ("priority-flow-control on", "priority-flow-control mode on"):
            settings[PFC] = (True, line)
        elif text in ("no priority-flow-control", "no priority-flow-control on", "no priority-flow-control mode on"):
            settings[PFC] = (False, line)
        elif priority := _PRIORITY.fullmatch(text):
            settings[f"{PFC_PRIORITY}{self.number(line, priority[1], 0, CLASSES - 1)}"] = (priority[2], line)
        elif text in (WATCHDOG, f"no {WATCHDOG}"):
            settings[WATCHDOG] = (text == WATCHDOG, line)
        elif timer := _TIMER.fullmatch(text):
            polling = 0 if timer[2] == "auto" else _milliseconds(timer[2])
            settings[WATCHDOG_TIMER] = ((_milliseconds(timer[1]), polling, _milliseconds(timer[3])), line)
        elif _ACTION.fullmatch(text):
            settings[WATCHDOG_ACTION] = (text.split(" ")[-1], line)
        elif text == "no switchport":
            settings[ROUTED] = (True, line)
        elif text.startswith((TRUST, PFC, INPUT, PROFILE)):
            raise self.refuse(line, "not a setting of EOS's QoS", _REMEDY)
        else:
            return False
        return True

    def _queue_setting(self, settings: dict[str, tuple[Any, CliLine]], line: CliLine) -> bool:
        """Read a line of a queue, as ``_setting`` does."""
        text = line.text
        ecn = _ECN.fullmatch(text)
        if text in ("no priority", "priority strict"):
            settings[STRICT] = (text == "priority strict", line)
        elif text.startswith(f"{PERCENT} "):
            settings[PERCENT] = (self.number(line, text.split(" ", 2)[2], 1, 100), line)
        elif ecn:
            settings[ECN] = (ecn.groups(), line)
        elif text.startswith((ECN, STRICT, "bandwidth ")) and not re.fullmatch(
            rf"{ECN} count|bandwidth guaranteed( percent)? \d+.*", text
        ):
            raise self.refuse(line, "not a setting of EOS's queues", _REMEDY)
        else:
            return False
        return True


def _sets_dscp(policy: CliLine | None) -> bool:
    entries = policy.children if policy else []
    return any(line.text.startswith("set dscp ") for entry in entries for line in entry.children)


def _hash_fields(names: list[str]) -> tuple[str, ...]:
    """Return the hash's fields. The protocol is included with the ports."""
    fields = {_HASH_FIELDS[word] for word in names if word in _HASH_FIELDS}
    if any(field.endswith("_port") for field in fields):
        fields.add("protocol")
    return tuple(sorted(fields))


def _milliseconds(seconds: str) -> int:
    return int(Decimal(seconds) * 1000)


def settings_of(text: str) -> EosSettings:
    """Return the settings of one profile's text ("qos profile NAME" and its lines), for comparison with another's."""
    model = EosConfiguration(text, "profile")
    return next(iter(model.profiles.values()))
