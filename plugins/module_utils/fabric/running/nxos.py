# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the QoS of any NX-OS configuration, and derive each port's QoS from it. Sources: ``nxos``."""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    ECMP_FIELDS,
    Ecn,
    PortQos,
    Queue,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax import class_maps
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.class_maps import Classification, Taken
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import (
    MTU,
    CliLine,
    CliReader,
    CliSettings,
    padded,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import LINK, NXOS

# Settings of a port or of "system qos", by the words that they begin with.
INPUT = "service-policy type qos input"
OUTPUT = "service-policy type queuing output"
NETWORK = "service-policy type network-qos"
PFC_MODE = "priority-flow-control mode"
WATCHDOG = "priority-flow-control watch-dog-interval"  # of a port, and of the switch
# Settings of the watchdog, of the switch.
INTERVAL = "priority-flow-control watch-dog interval"
SHUTDOWN = "priority-flow-control watch-dog shutdown-multiplier"
RESTORE = "priority-flow-control auto-restore multiplier"
LOAD_SHARING = "ip load-sharing address source-destination port source-destination"

WATCHDOG_DEFAULTS = {INTERVAL: 100, SHUTDOWN: 1, RESTORE: 10}
_DEFAULT_MTU_BYTES = 1500
_REMEDY = "correct it on the switch"
_KNOWN = re.compile(r"(interface |class-map |policy-map |system qos$|hostname |feature |vdc |version )")
_FOREIGN = re.compile(r"(qos (map|profile|rewrite|random-detect)\b|transceiver qsfp |service routing protocols )")
_STRAY = re.compile(
    r"(service-policy|priority-flow-control mode|mtu|pause|random-detect|bandwidth|set qos-group|match)\b"
)
_CLASS_MAP = re.compile(r"class-map (?:type (\S+) )?(?:match-(any|all|first) )?(\S+)")
_POLICY_MAP = re.compile(r"policy-map (?:type (\S+) )?(\S+)")
_ATTACHED = re.compile(
    r"service-policy (?:type (qos|queuing|network-qos) )?(?:(input|output) )?(\S+)(?: no-stats)?",
)
_WATCHDOG = re.compile(
    r"priority-flow-control watch-dog-interval (on|off)( disable-action)?(?: interface-multiplier (\d+))?"
)
_ECN = re.compile(
    r"random-detect minimum-threshold (\d+) (\w+) maximum-threshold (\d+) (\w+) drop-probability (\d+)"
    r"(?: weight (\d+))? ecn"
)
_SHARING = re.compile(
    r"ip load-sharing address (source-destination|destination)(?: port (source-destination|destination))?( .*)?"
)
_BREAKOUT = re.compile(r"interface breakout module (\d+) port ([\d,-]+) map (\d+)g-(\d)x")
_PAUSE = re.compile(r"pause (?:no-drop )?(?:buffer-size .*)?pfc-cos ([\d,-]+)( receive)?")
_PRECEDENCES = ("routine", "priority", "immediate", "flash", "flash-override", "critical", "internet", "network")
_OTHER_PROTOCOLS = ("arp", "cdp", "clns", "clns_es", "clns_is", "dhcp", "isis", "ldp", "netbios")  # not RoCE's
_BUILT_IN_QUEUE = re.compile(r"c-out-(?:8q-)?q(?:([0-7])|-default)")
_BUILT_IN_NETWORK = re.compile(r"c-(?:8q-)?nq(?:([0-7])|-default)")


class _Paused(NamedTuple):
    """A qos-group that is never dropped: its priorities, whether it also sends pauses, and its largest packet."""

    priorities: list[int]
    sends: bool
    mtu_bytes: int


class NxosConfiguration(CliReader):
    """A running configuration, parsed. Raises FabricError for a line of QoS that cannot be understood."""

    lag_prefix = "port-channel"

    def __init__(self, text: str, name: str) -> None:
        super().__init__(name, NXOS)
        self.class_maps: dict[tuple[str, str], CliLine] = {}  # by type and name
        self.policy_maps: dict[tuple[str, str], CliLine] = {}
        self.system = CliSettings()
        self.ports: dict[str, CliSettings] = {}
        self.breakouts: dict[str, re.Match[str]] = {}  # by line
        self.watchdog_on = False
        self.watchdog = dict(WATCHDOG_DEFAULTS)
        self.ecmp_fields: tuple[str, ...] = ECMP_FIELDS
        self._alike: dict[frozenset[str], PortQos] = {}  # by a port's lines: most ports have the same
        self._classified: dict[int, Classification] = {}  # by the line number of a policy map
        for line in self.tree(text, "NX-OS", _KNOWN, _FOREIGN):
            self._read(line)

    def port_qos(self, port: str) -> PortQos:
        """Return the QoS of ``port``.

        Raises FabricError where it refers to a missing object, or to a value that is not in bytes or DSCPs.
        """
        settings = self.ports[port]
        lines = frozenset(line.text for _value, line in settings.values.values())
        if lines not in self._alike:
            self._alike[lines] = self.qos_of(settings)
        return self._alike[lines]

    def record_overrides(self) -> None:
        """Record the overrides of all ports, with those of the policy maps that apply to them."""
        for text, breakout in self.breakouts.items():
            self._record_breakout(text, breakout)
        policies = {key: self.unread_of_classes(policy) for key, policy in self.policy_maps.items()}
        attached = self.names_of(self.system)
        for port, settings in self.ports.items():
            if "." in port and settings.is_shut:
                continue
            self.record(port, "", settings.unread)
            policy_names = self.names_of(settings)
            replaced = {kind for kind, _name in policy_names}
            of_system = set() if "." in port else {policy for policy in attached if policy[0] not in replaced}
            for kind, name in sorted(policy_names | of_system):
                place = f"policy-map type {kind} {name}"
                self.record(port, place, policies.get((kind, name), ()))
                if kind == "qos" and (kind, name) in self.policy_maps:
                    conditions = self._classification(self.policy_maps[kind, name]).conditions
                    self.record(port, place, self.with_effects(conditions))
        for text, effect in self.system.unread:
            self.overrides[f"system qos {text}", effect] = []

    def _record_breakout(self, text: str, breakout: re.Match[str]) -> None:
        """Record that ports are split, and the speed of their parts (Ethernet1/1/1 of Ethernet1/1)."""
        module, listed, speed, count = breakout.groups()
        line = CliLine(0, f"interface Ethernet{module}/{listed.replace(',', f',{module}/')}")
        names = self.ports_of(line)
        self.overrides[text, LINK] = names
        for part in (f"{name}/{number}" for name in names for number in range(1, int(count) + 1)):
            if part in self.ports and self.ports[part].speed_gbit_s is None:
                self.ports[part].speed_gbit_s = int(speed)

    def qos_of(self, settings: CliSettings) -> PortQos:
        """Return the QoS of an interface with ``settings``. Raises FabricError as ``port_qos``."""
        policy = self._policy("qos", INPUT, settings, self.system)
        classification = self._classification(policy) if policy else None
        used = sorted(classification.used if classification else ())
        paused = self._paused()
        sending = [group for group in paused.values() if group.sends and settings.get(PFC_MODE) == "on"]
        pfc = sorted({priority for group in sending for priority in group.priorities})
        priority_of = {group: paused[group].priorities[0] if group in paused else group for group in used}
        queue_of = {priority_of[group]: group for group in used}
        queue_of.update(
            {
                priority: group
                for group, paused_group in paused.items()
                for priority in paused_group.priorities
                if priority in pfc
            }
        )
        mtu = settings.get(MTU) or _DEFAULT_MTU_BYTES
        # The headroom of a class has no capacity for a packet larger than the class's MTU.
        mtu = min([mtu, *(group.mtu_bytes for group in sending)])
        return PortQos(
            dscp_to_class=classification.classes if classification else (None,) * DSCPS,
            rewrites_dscp=_sets_dscp(policy),
            class_to_queue=padded({group: group for group in used}, CLASSES),
            class_to_priority=padded(priority_of, CLASSES),
            priority_to_queue=padded(queue_of, CLASSES),
            queues=self._queues(settings, set(used)),
            pfc=tuple(pfc),
            watchdog=self._watchdog(settings),
            ip_mtu_bytes=mtu,
        )

    def names_of(self, settings: CliSettings) -> set[tuple[str, str]]:
        """Return the policy maps that ``settings`` attach, by type and name."""
        kinds = {INPUT: "qos", OUTPUT: "queuing", NETWORK: "network-qos"}
        return {(kind, settings.get(key)) for key, kind in kinds.items() if key in settings.values}

    def _policy(self, kind: str, key: str, *places: CliSettings) -> CliLine | None:
        """Return the policy map of the first of ``places`` that has one; None for none or a system policy."""
        for settings in places:
            if key in settings.values:
                name, line = settings.values[key]
                if (kind, name) in self.policy_maps:
                    return self.policy_maps[kind, name]
                if name.startswith("default-"):
                    return None
                raise self.refuse(line, f"there is no policy-map type {kind} {name}", "define it, or detach it")
        return None

    def _classification(self, policy: CliLine) -> Classification:
        """Return the qos-groups that a policy map gives DSCPs: 0 where no class sets one."""
        if policy.number not in self._classified:
            self._classified[policy.number] = class_maps.classified(
                self, policy, self._taken, "set qos-group ", (0,) * DSCPS
            )
        return self._classified[policy.number]

    def _taken(self, entry: CliLine, name: str) -> tuple[Taken, list[str]]:
        if ("qos", name) not in self.class_maps:
            raise self.refuse(entry, f"there is no class-map type qos {name}", "define it, or remove the class")
        class_map = self.class_maps["qos", name]
        matches = [(line.text, self._match(line)) for line in class_map.children if line.text.startswith("match ")]
        return class_maps.together(matches, "match-any" not in class_map.text)

    def _match(self, line: CliLine) -> Taken:
        text = line.text[len("match ") :]
        kind, _blank, value = text[len("not ") :].partition(" ") if text.startswith("not ") else text.partition(" ")
        match = class_maps.NOT_UNDERSTOOD
        if kind == "dscp":
            match = class_maps.exactly(self.dscps(line, value))
        elif kind == "precedence":
            words = value.replace(",", " ").split()
            listed = [str(_PRECEDENCES.index(word)) if word in _PRECEDENCES else word for word in words]
            tiers = self.numbers_of(line, " ".join(listed))
            match = class_maps.exactly(8 * tier + low for tier in tiers for low in range(8))
        elif kind == "protocol" and value in _OTHER_PROTOCOLS:
            match = class_maps.NOT_ROCE
        elif kind == "access-group":
            match = class_maps.of_access_list(self.access_lists.get(value[len("name ") :], ()))
        return class_maps.complement(match) if text.startswith("not ") else match

    def _group(self, entry: CliLine, kind: str, name: str, built_in: re.Pattern[str]) -> int:
        """Return the qos-group that a class of a queuing or network-qos policy is for."""
        match = built_in.fullmatch(name)
        if match or name == "class-default":
            return int((match and match[1]) or 0)
        if (kind, name) not in self.class_maps:
            raise self.refuse(entry, f"there is no class-map type {kind} {name}", "define it, or remove the class")
        for line in self.class_maps[kind, name].children:
            if line.text.startswith("match qos-group "):
                return self.number(line, line.text.split(" ")[2], 0, CLASSES - 1)
        raise self.refuse(entry, f"class-map {name} matches no qos-group", "match one")

    def _groups(self, policy: CliLine | None, kind: str, built_in: re.Pattern[str]) -> dict[int, CliLine]:
        entries: dict[int, CliLine] = {}
        for entry in policy.children if policy else ():
            match = re.fullmatch(r"class (?:type \S+ )?(\S+)", entry.text)
            if match:
                entries[self._group(entry, kind, match[1], built_in)] = entry
        return entries

    def _paused(self) -> dict[int, _Paused]:
        """Return the qos-groups that are never dropped."""
        paused: dict[int, _Paused] = {}
        policy = self._policy("network-qos", NETWORK, self.system)
        for group, entry in self._groups(policy, "network-qos", _BUILT_IN_NETWORK).items():
            mtu, sends = _DEFAULT_MTU_BYTES, True
            priorities: list[int] = []
            for line in entry.children:
                pause = _PAUSE.fullmatch(line.text)
                if pause:
                    priorities += self.numbers_of(line, pause[1])
                    sends = sends and not pause[2]
                elif line.text.startswith("mtu "):
                    mtu = self.number(line, line.text.split(" ")[1], 576, 9216)
                elif line.text.startswith("pause") and line.text != "pause no-drop":
                    raise self.refuse(line, "not a pause command of NX-OS", _REMEDY)
            if priorities:
                paused[group] = _Paused(priorities, sends, mtu)
        return paused

    def _queues(self, settings: CliSettings, used: set[int]) -> tuple[Queue | None, ...]:
        """Return the queues that qos-groups lead to, and those that a policy configures."""
        policy = self._policy("queuing", OUTPUT, settings, self.system)
        if policy is None:  # default-8q-out-policy: all to the default queue
            return (Queue(False, 100), *(None,) * (CLASSES - 1))
        entries = self._groups(policy, "queuing", _BUILT_IN_QUEUE)
        queues: list[Queue | None] = []
        for queue_number in range(CLASSES):
            queue = self._queue(entries[queue_number]) if queue_number in entries else Queue(False, 0)
            is_configured = queue.strict or queue.bandwidth_percent or queue.ecn or queue.unknown_ecn
            queues.append(queue if is_configured or queue_number in used else None)
        return tuple(queues)

    def _queue(self, entry: CliLine) -> Queue:
        strict, percent = False, 0
        marking: tuple[Ecn | None, str | None] = None, None
        for line in entry.children:
            bandwidth = re.fullmatch(r"bandwidth (?:remaining )?percent (\d+)", line.text)
            if re.fullmatch(r"priority(?: level \d)?", line.text):
                strict = True
            elif bandwidth:
                percent = self.number(line, bandwidth[1], 0, 100)
            elif line.text.startswith("random-detect"):
                marking = self._marking(line)
            elif line.text.startswith(("bandwidth", "priority")):
                raise self.refuse(line, "not a setting of NX-OS's queues", _REMEDY)
        return Queue(strict, None if strict else percent, *marking)

    def _marking(self, line: CliLine) -> tuple[Ecn | None, str | None]:
        """Return the marking, or the line where NX-OS chooses its thresholds; neither where it drops packets."""
        if not line.text.endswith(" ecn"):
            return None, None
        match = _ECN.fullmatch(line.text)
        return self.marking(line, *match.groups()) if match else (None, line.text)

    def _watchdog(self, settings: CliSettings) -> Watchdog | None:
        """Return the watchdog. It acts where both the switch's and the port's are on."""
        on, no_action, multiplier = settings.get(WATCHDOG) or (False, False, None)
        if not (on and self.watchdog_on):
            return None
        interval_ms = self.watchdog[INTERVAL]
        return Watchdog(
            interval_ms * (multiplier or self.watchdog[SHUTDOWN]),
            interval_ms * self.watchdog[RESTORE],
            "disable-action" if no_action else "drop",
        )

    def _read(self, line: CliLine) -> None:
        words = line.text.split(" ")
        if words[0] == "interface":
            if breakout := _BREAKOUT.fullmatch(line.text):
                self.breakouts[line.text] = breakout
            elif re.match(r"interface (Ethernet|port-channel)", line.text):
                for name in self.ports_of(line):
                    self._settings(self.ports.setdefault(name, CliSettings()), line)
            else:
                self.read_beside_ports(line)
        elif words[0] == "class-map":
            match = _CLASS_MAP.fullmatch(line.text)
            if not match:
                raise self.refuse(line, "not a class map", _REMEDY)
            self.class_maps[match[1] or "qos", match[3]] = line
        elif words[0] == "policy-map":
            match = _POLICY_MAP.fullmatch(line.text)
            if match:
                self.policy_maps[match[1] or "qos", match[2]] = line
        elif line.text == "system qos":
            self._settings(self.system, line)
        elif _STRAY.match(line.text):
            raise self.refuse(line, "it is not in a section that it could belong to", "keep the text's indentation")
        else:
            self._read_global(line)

    def _read_global(self, line: CliLine) -> None:
        if line.text in (f"{WATCHDOG} on", f"{WATCHDOG} off"):
            self.watchdog_on = line.text.endswith(" on")
        elif line.text.startswith((INTERVAL, SHUTDOWN, RESTORE)):
            key, _blank, number = line.text.rpartition(" ")
            if key not in self.watchdog:
                raise self.refuse(line, "not a setting of the watchdog", _REMEDY)
            self.watchdog[key] = self.number(line, number, 0, 1000)
        elif line.text.startswith("ip load-sharing address "):
            match = _SHARING.fullmatch(line.text)
            if not match:
                raise self.refuse(line, "not a load-sharing method of NX-OS", _REMEDY)
            self.ecmp_fields = _fields(match[1], match[2])
        else:
            self.read_beside_ports(line)

    def _settings(self, settings: CliSettings, line: CliLine) -> None:
        for child in line.children:
            text = child.text
            settings.notice(text)
            attached, watchdog = _ATTACHED.fullmatch(text), _WATCHDOG.fullmatch(text)
            if attached:
                kind, direction = attached[1] or "qos", attached[2]
                key = NETWORK if kind == "network-qos" else f"service-policy type {kind} {direction or 'input'}"
                settings.values[key] = (attached[3], child)
                if key not in (INPUT, OUTPUT, NETWORK):
                    self.unread(settings.unread, text)
            elif watchdog:
                multiplier = self.number(child, watchdog[3], 1, 10) if watchdog[3] else None
                settings.values[WATCHDOG] = ((watchdog[1] == "on", bool(watchdog[2]), multiplier), child)
            elif re.fullmatch(rf"{PFC_MODE} (on|off|auto)(?: send-tlv)?", text):
                settings.values[PFC_MODE] = (text.split(" ")[2], child)
            elif text.startswith("mtu "):
                settings.values[MTU] = (self.number(child, text.split(" ")[1], 68, 65535), child)
            elif text.startswith(("service-policy", "priority-flow-control ")):
                raise self.refuse(child, "not a setting of NX-OS's QoS", _REMEDY)
            else:
                self.unread_of_port(settings, child)


def _sets_dscp(policy: CliLine | None) -> bool:
    entries = policy.children if policy else []
    return any(line.text.startswith(("set dscp ", "set precedence ")) for entry in entries for line in entry.children)


def _fields(addresses: str, ports: str | None) -> tuple[str, ...]:
    """Return the hash's fields. The protocol is included with the ports."""
    fields = {"destination_ip"}
    if addresses == "source-destination":
        fields.add("source_ip")
    if ports:
        fields |= {"destination_port", "protocol"}
    if ports == "source-destination":
        fields.add("source_port")
    return tuple(sorted(fields))
