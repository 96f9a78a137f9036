# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Juniper Junos and Junos Evolved on QFX: class of service as ``set`` lines (``show configuration | display set``).

Sources: Juniper's DCQCN configlet for QFX (Apstra 6.1, RNIC configurator guide), the statement pages of
[edit class-of-service] (classifiers, forwarding-classes, pfc-priority, congestion-notification-profile, schedulers,
drop-profiles, fill-level, priority, cable-length), "Configuring DSCP-based PFC for Layer 3 Untagged Traffic",
"Configure CoS PFC with Congestion Notification Profiles", "PFC Watchdog", [edit forwarding-options enhanced-hash-key],
apply-macro, and "Encapsulation Overhead by Encapsulation Type".

Forwarding classes and profiles: a forwarding class is a traffic class; its number and priority stand in its name
(``sailloft-tc3-pri3``), since a class that does not pause has no priority in Junos. Other users' classes are numbered
by their queue. Forwarding classes are the switch's. Classifier, scheduler map and congestion notification profile
belong to a port and are named after a digest of what they hold, so that ports that are alike share them. PFC is on for
a priority of a port where the class is ``no-loss`` with that ``pfc-priority``, all its DSCPs are in the profile's
input, and the profile's output stops the class's queue. As in Juniper's configlet, one ``dscp`` classifier is applied
to ``unit *``.

Thresholds are in percent of what a queue can fill. Only the switch's planner knows that number of bytes (B):
``Switch.queue_buffer_bytes``. It is written as ``apply-macro sailloft queue-buffer-bytes B``, which has no effect on a
switch, and read from there. render takes only thresholds that are whole percents of B (of which a part of a byte counts
as a byte): 0 <= lower < upper <= 99, as Juniper says "do not configure the last fill level as 100 percent". So the
values read back are exact. ``attainable`` makes such thresholds of others by rounding both down: marking starts
earlier, never later, and ECN still acts before PFC. render refuses thresholds that are not attainable, and names
attainable ones.

Headroom: Junos computes it from the cable's length (default 100 m) and the MRU, a packet's most bytes, which is
2500 by default (statement pages cable-length and mru of the profile's input). Both are written, the MRU as the port's
MTU. Where the MRU read is below the port's packets, headroom is for no cable: 0 m.
Watchdog: ``pfc-watchdog`` alone is 100 ms, 2 intervals, 200 ms of recovery and drop; other times are written as
multiples of that interval. Without an output a profile stops queue 3 for priority 3 and 4 for 4.

MTU: ``interfaces X mtu`` counts the Ethernet header, not the FCS: IP MTU + 14 (untagged; read as + 18 where the port
has vlan-tagging, + 22 with flexible-vlan-tagging), 9216 at most. A smaller ``family inet mtu`` is read as it stands.

From memory: the words ``recovery`` and ``watchdog-action``, and the aliases of code points. Not tried on a switch:
classes of this project on a queue that a default class (fcoe 3, no-loss 4) has too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    ECMP_FIELDS,
    BufferShares,
    Ecn,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)

SYSTEM = "junos"
NOT_HELD = {"headroom": "Junos computes it from cable length and MRU"}
# QFX5210 to QFX5240, QFX5120 and QFX5130, by their buffers: 42, 64, 112, 165, 32 and 132 MB (Juniper, "Understanding
# CoS Buffer Configuration", table 1).
ASICS = ("tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4")
# The default of [edit class-of-service shared-buffer ingress buffer-partition]; see the module.
DEFAULT_SHARES = BufferShares(lossless_percent=9, headroom_percent=45)
PORT_EXAMPLE = "et-0/0/1"
OURS = "sailloft-"
COS = ("class-of-service",)
PARTITIONS = (*COS, "shared-buffer", "ingress", "buffer-partition")
MACRO = (*COS, "apply-macro", "sailloft", "queue-buffer-bytes")
CLASS = re.compile(rf"{OURS}tc([0-7])-pri([0-7])")
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]]|[^\s\[\]"]+')
PORT = re.compile(r"(?:et|xe|ge|mge)-\d+/\d+/\d+(?::\d+)?")
ETHERNET_BYTES = 14
TAGGED_BYTES = {"vlan-tagging": 18, "flexible-vlan-tagging": 22}
MOST_MTU = 9216
DEFAULT_STOPPED = {3: {3}, 4: {4}}  # priority -> queues, in a profile without output
POLL_MS, DETECTION, RECOVERY_MS = 100, 2, 200
CABLE_M, MRU_BYTES, MTU_BYTES = 100, 2500, 1500  # where nothing is said; the MTU is the IP packet's
HASH = ("forwarding-options", "enhanced-hash-key")
HASH_MODE = (*HASH, "hash-mode", "layer2-payload")  # the default, written so that it is visible
NOT_HASHED = {
    "inet": {
        "source_ip": "no-ipv4-source-address",
        "destination_ip": "no-ipv4-destination-address",
        "source_port": "no-l4-source-port",
        "destination_port": "no-l4-destination-port",
        "protocol": "no-protocol",
    },
    "inet6": {
        "source_ip": "no-ipv6-source-address",
        "destination_ip": "no-ipv6-destination-address",
        "source_port": "no-l4-source-port",
        "destination_port": "no-l4-destination-port",
        "protocol": "no-next-header",
    },
}
ALIASES = {"be": 0, "ef": 46, "nc1": 48, "nc2": 56, **{f"cs{at}": 8 * at for at in range(1, 8)}}
ALIASES.update({f"af{at}{drop}": 8 * at + 2 * drop for at in range(1, 5) for drop in range(1, 4)})

Line = tuple[str, ...]  # the words after "set"


# Render


def attainable(qos: PortQos, queue_buffer_bytes: int) -> PortQos:
    """Return ``qos`` with thresholds that are whole percents of ``queue_buffer_bytes``, none above its earlier value.

    Raises FabricError where an upper threshold is below 1%.
    """
    return replace(
        qos,
        queues=tuple(
            queue and replace(queue, ecn=queue.ecn and _attainable(queue.ecn, queue_buffer_bytes))
            for queue in qos.queues
        ),
    )


def _attainable(ecn: Ecn, buffer: int) -> Ecn:
    high = min(ecn.maximum_bytes * 100 // buffer, 99)
    low = min(ecn.minimum_bytes * 100 // buffer, high - 1)
    if high < 1:
        raise FabricError(
            f"a threshold of {ecn.maximum_bytes} bytes",
            f"below 1% of a queue's {buffer} bytes, the least that Junos can tell from none",
            f"give {_bytes(1, buffer)} or more as maximum_bytes",
        )
    return Ecn(_bytes(low, buffer), _bytes(high, buffer), ecn.probability_percent)


def _bytes(percent: int, buffer: int) -> int:
    """Return that percentage of a buffer in bytes, rounded up: a queue of this many bytes is that full."""
    return -(-percent * buffer // 100)


def render(switch: Switch) -> str:
    """Return the lines of ``switch``; see the module. Raises FabricError for what Junos cannot hold."""
    return "".join(f"set {' '.join(line)}\n" for line in _lines(switch))


def _lines(switch: Switch) -> list[Line]:
    found: dict[Line, None] = {}  # in their order, each once
    ports: list[Line] = []
    by_qos: dict[int, list[Line]] = {}
    for port, wanted in switch.ports.items():
        if id(wanted) not in by_qos:
            shared, by_qos[id(wanted)] = _port_lines(switch, f"{switch.name}: {port}", wanted)
            found.update(dict.fromkeys(shared))
        ports += [tuple(port if word == "PORT" else word for word in line) for line in by_qos[id(wanted)]]
    lines: list[Line] = []
    if switch.queue_buffer_bytes is not None:
        lines.append((*MACRO, str(switch.queue_buffer_bytes)))
    lines += [*found, *ports]
    if switch.ecmp_fields is not None:
        lines.append(HASH_MODE)
        for family, words in NOT_HASHED.items():
            lines += [(*HASH, family, words[field]) for field in ECMP_FIELDS if field not in switch.ecmp_fields]
    _check_one_meaning(switch)
    return lines


def _check_one_meaning(switch: Switch) -> None:
    """Check that each class has one queue and one priority on all ports: forwarding classes are the switch's."""
    known: dict[str, int] = {}
    for wanted in {id(port): port for port in switch.ports.values()}.values():
        for at, (queue, priority) in enumerate(zip(wanted.class_to_queue, wanted.class_to_priority)):
            for what, number in ((f"queue of class {at}", queue), (f"priority of class {at}", priority)):
                if number is not None and known.setdefault(what, number) != number:
                    raise FabricError(
                        switch.name,
                        f"the {what} differs between its ports, and Junos keeps one for the whole switch",
                        "give all ports the same",
                    )


def _port_lines(switch: Switch, subject: str, wanted: PortQos) -> tuple[list[Line], list[Line]]:
    """Return the objects to which a port's settings refer, and the settings, in which PORT stands for its name."""
    shared: list[Line] = []
    own: list[Line] = []
    names = _class_names(subject, wanted)
    for at, name in names.items():
        line = (*COS, "forwarding-classes", "class", name)
        shared.append((*line, "queue-num", str(wanted.class_to_queue[at])))
        if wanted.class_to_priority[at] in wanted.pfc:
            shared += [(*line, "no-loss"), (*line, "pfc-priority", str(wanted.class_to_priority[at]))]
    if any(entry is not None for entry in wanted.dscp_to_class):
        code_points: list[Line] = []
        for dscp, led_to in enumerate(wanted.dscp_to_class):
            if led_to is not None:
                if led_to not in names:
                    raise FabricError(
                        subject, f"DSCP {dscp} leads to class {led_to}, which has no queue", "give it one"
                    )
                class_name = names[led_to]
                code_points.append(
                    ("forwarding-class", class_name, "loss-priority", "low", "code-points", f"{dscp:06b}")
                )
        name = _named(shared, (*COS, "classifiers", "dscp"), code_points)
        own.append((*COS, "interfaces", "PORT", "unit", "*", "classifiers", "dscp", name))
    content: list[Line] = []
    for at, forwarding_class in names.items():
        number = wanted.class_to_queue[at]
        queue = None if number is None else wanted.queues[number]
        if queue is not None:
            scheduler = _scheduler(switch, subject, queue, shared)
            content.append(("forwarding-class", forwarding_class, "scheduler", scheduler))
    if content:
        name = _named(shared, (*COS, "scheduler-maps"), content)
        own.append((*COS, "interfaces", "PORT", "scheduler-map", name))
    if wanted.pfc:
        name = _named(shared, (*COS, "congestion-notification-profile"), _pfc(subject, wanted))
        own.append((*COS, "interfaces", "PORT", "congestion-notification-profile", name))
    elif wanted.watchdog is not None:
        raise FabricError(subject, "a PFC watchdog without a lossless priority", "take it away")
    if wanted.ip_mtu_bytes is not None:
        mtu = wanted.ip_mtu_bytes + ETHERNET_BYTES
        if mtu > MOST_MTU:
            raise FabricError(
                subject,
                f"an IP MTU of {wanted.ip_mtu_bytes} needs {mtu} bytes with its Ethernet header; a QFX has {MOST_MTU}",
                f"give {MOST_MTU - ETHERNET_BYTES} or less as roce_policy's switch_mtu_bytes",
            )
        own.append(("interfaces", "PORT", "mtu", str(mtu)))
    return shared, own


def _class_names(subject: str, wanted: PortQos) -> dict[int, str]:
    """Return the forwarding class of each traffic class that has a queue."""
    names = {}
    queues = [queue for queue in wanted.class_to_queue if queue is not None]
    for at, queue in enumerate(wanted.class_to_queue):
        priority = wanted.class_to_priority[at]
        if queue is None and priority is None:
            continue
        if queue is None or priority is None or wanted.priority_to_queue[priority] != queue:
            raise FabricError(
                subject,
                f"class {at} has queue {queue} and priority {priority}, and a pause of that stops another queue",
                "give each class a queue and a priority, and the priority the same queue",
            )
        names[at] = f"{OURS}tc{at}-pri{priority}"
    priorities = [priority for priority in wanted.class_to_priority if priority is not None]
    missing = [at for at, queue in enumerate(wanted.queues) if queue is not None and at not in queues]
    stray = [at for at, queue in enumerate(wanted.priority_to_queue) if queue is not None and at not in priorities]
    if missing or stray or len(set(queues)) < len(queues) or not set(wanted.pfc) <= set(priorities):
        raise FabricError(
            subject, "not every queue and priority has one class of its own", "give each class of roce_policy its own"
        )
    return names


def _named(shared: list[Line], path: Line, content: Iterable[Line]) -> str:
    """Add an object of this content to ``shared`` and return its name, which is derived from the content."""
    content = list(content)
    name = OURS + hashlib.sha256(repr(content).encode()).hexdigest()[:8]
    shared += [(*path, name, *line) for line in content]
    return name


def _scheduler(switch: Switch, subject: str, queue: Queue, shared: list[Line]) -> str:
    content: list[Line] = []
    if queue.strict:
        content.append(("priority", "strict-high"))
    else:
        if queue.bandwidth_percent is None or not 1 <= queue.bandwidth_percent <= 100:
            raise FabricError(
                subject,
                f"a queue that is not strict has {queue.bandwidth_percent} as its share",
                "give it bandwidth_percent of 1 to 100",
            )
        content += [("priority", "low"), ("transmit-rate", "percent", str(queue.bandwidth_percent))]
    if queue.ecn is not None:
        profile = _named(shared, (*COS, "drop-profiles"), _drop_profile(switch, subject, queue.ecn))
        content += [
            ("drop-profile-map", "loss-priority", "any", "protocol", "any", "drop-profile", profile),
            ("explicit-congestion-notification",),
        ]
    return _named(shared, (*COS, "schedulers"), content)


def _drop_profile(switch: Switch, subject: str, ecn: Ecn) -> list[Line]:
    buffer = switch.queue_buffer_bytes
    if not buffer or buffer < 0:
        raise FabricError(
            subject,
            "Junos marks at percents of a queue's buffer, and how many bytes that has is not told",
            "give the switch its queue_buffer_bytes",
        )
    can = _attainable(ecn, buffer)
    if can != ecn:
        raise FabricError(
            subject,
            f"thresholds of {ecn.minimum_bytes} and {ecn.maximum_bytes} bytes are not whole percents, 1 to 99, of a "
            f"queue's {buffer} bytes",
            f"give {can.minimum_bytes} and {can.maximum_bytes}, or another buffer",
        )
    levels = [str(threshold * 100 // buffer) for threshold in (ecn.minimum_bytes, ecn.maximum_bytes)]
    return [
        *(("interpolate", "fill-level", level) for level in levels),
        *(("interpolate", "drop-probability", percent) for percent in ("0", str(ecn.probability_percent))),
    ]


def _pfc(subject: str, wanted: PortQos) -> list[Line]:
    """Return the contents of a congestion notification profile."""
    content: list[Line] = []
    mru = () if wanted.ip_mtu_bytes is None else ("mru", str(wanted.ip_mtu_bytes + ETHERNET_BYTES))
    for dscp, at in enumerate(wanted.dscp_to_class):
        if at is not None and wanted.class_to_priority[at] in wanted.pfc:
            content.append(("input", "dscp", "code-point", f"{dscp:06b}", "pfc", *mru))
    if wanted.cable_m:
        content.append(("input", "cable-length", str(wanted.cable_m)))
    for priority in wanted.pfc:
        queue = wanted.priority_to_queue[priority]
        content.append(("output", "ieee-802.1", "code-point", f"{priority:03b}", "flow-control-queue", str(queue)))
    if wanted.watchdog is None:
        return content
    dog = wanted.watchdog
    detection, rest = divmod(dog.detection_ms, POLL_MS)
    if rest:
        raise FabricError(
            subject,
            f"its PFC watchdog cannot wait {dog.detection_ms} ms: Junos counts polling intervals of {POLL_MS} ms",
            f"give a multiple of {POLL_MS} as detection_ms",
        )
    content.append(("pfc-watchdog",))
    if detection != DETECTION:
        content.append(("pfc-watchdog", "detection", str(detection)))
    if dog.restoration_ms != RECOVERY_MS:
        content.append(("pfc-watchdog", "recovery", str(dog.restoration_ms)))
    if dog.action != "drop":
        content.append(("pfc-watchdog", "watchdog-action", dog.action))
    return content


# Read


def parse(text: str, name: str) -> Switch:
    """Parse the switch ``name`` from ``show configuration | display set``, all of it or its class of service. Raises
    FabricError where it is none.

    ``ports`` are those of [edit class-of-service interfaces] and the physical ports of [edit interfaces]; wildcards
    count for the ports that are named somewhere. A DSCP that a classifier does not name has no class here.
    """
    return _Reader(text, name).switch()


def _words(text: str, name: str) -> tuple[list[Line], list[Line]]:
    """Return the lines that are set, with lists expanded, and the paths that are deactivated."""
    found: list[Line] = []
    inactive: list[Line] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = [word[1:-1] if word[0] == '"' and len(word) > 1 else word for word in WORD.findall(line)]
        if not words or words[0][0] == "#":
            continue
        if words[0] not in ("set", "deactivate", "activate", "protect") or len(words) < 2:
            raise FabricError(
                f"{name}: Junos configuration: line {number}",
                f"{line.strip()[:60]!r} is no set line",
                "give what `show configuration | display set | no-more` prints",
            )
        if words[0] == "deactivate":
            inactive.append(tuple(words[1:]))
        elif words[0] == "set":
            found += _apart(words[1:], f"{name}: Junos configuration: line {number}")
    if not found:
        raise FabricError(
            f"{name}: Junos configuration",
            "no set line in it",
            "give what `show configuration | display set | no-more` prints",
        )
    return found, inactive


def _apart(words: list[str], place: str) -> list[Line]:
    """Return a line for each element of a line's list."""
    if "[" not in words and "]" not in words:
        return [tuple(words)]
    start = words.index("[") if "[" in words else len(words)
    end = words.index("]") if "]" in words else -1
    if end <= start + 1 or "[" in words[start + 1 :]:
        raise FabricError(place, "a list that does not end, or nothing in it", "give the line as the switch shows it")
    return [
        line for each in words[start + 1 : end] for line in _apart([*words[:start], each, *words[end + 1 :]], place)
    ]


class _Reader:
    """A reader of one configuration, object by object."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        lines, inactive = _words(text, name)
        self.lines = [line for line in lines if not any(line[: len(path)] == path for path in inactive)]
        self.inactive = inactive
        self.cos: dict[str, list[Line]] = {}
        self.interfaces: dict[str, list[Line]] = {}
        self.hash: list[Line] = []
        for line in self.lines:
            if line[0] == "class-of-service" and len(line) > 2:
                self.cos.setdefault(line[1], []).append(line[2:])
            elif line[0] == "interfaces" and len(line) > 2:
                self.interfaces.setdefault(line[1], []).append(line[2:])
            elif line[:2] == HASH:
                self.hash.append(line[2:])
        self.buffer = self.read_buffer()
        self.aliases = dict(ALIASES)
        for _family, alias, bits in (line[:3] for line in self.cos.get("code-point-aliases", []) if len(line) > 2):
            self.aliases[alias] = self.code_point(bits)
        self.classes = self.read_classes()
        self.known: dict[tuple[Any, ...], Any] = {}

    # Small steps

    def refuse(self, where: str, why: str, mend: str = "compare it with the switch's configuration") -> FabricError:
        return FabricError(f"{self.name}: Junos configuration: {where}", why, mend)

    def under(self, section: str, *path: str) -> list[Line]:
        """Return the lines below a path of a section, in their order."""
        return [line[len(path) :] for line in self.cos.get(section, []) if line[: len(path)] == path]

    def object(self, section: str, *path: str, by: str) -> list[Line]:
        found = self.under(section, *path)
        if not found:
            raise self.refuse(by, f"{' '.join((section, *path))} is not there", "define it, or delete what names it")
        return [line for line in found if line]

    def number(self, words: Line, after: str, where: str, least: int, most: int) -> int | None:
        """Return the number after a word; None where the word is not there."""
        if after not in words:
            return None
        rest = words[words.index(after) + 1 :]
        if not rest or not rest[0].isdigit() or not least <= int(rest[0]) <= most:
            raise self.refuse(where, f"{after} {' '.join(rest[:1])!r} is not a number of {least} to {most}")
        return int(rest[0])

    def code_point(self, bits: str, digits: int = 6) -> int:
        if re.fullmatch(rf"[01]{{{digits}}}", bits):
            return int(bits, 2)
        if digits == 6 and bits in self.aliases:
            return self.aliases[bits]
        raise self.refuse("class-of-service", f"code point {bits!r} is neither {digits} bits nor a known alias")

    # The switch's

    def read_buffer(self) -> int | None:
        for line in self.lines:
            if line[: len(MACRO)] == MACRO:
                return self.number(line[len(MACRO) - 1 :], MACRO[-1], " ".join(MACRO[:-1]), 1, 1 << 40)
        return None

    def read_classes(self) -> dict[str, dict[str, Any]]:
        """Return, by name of a forwarding class, its number, queue, priority, and whether it is lossless."""
        found: dict[str, dict[str, Any]] = {}
        words: Line
        for line in self.cos.get("forwarding-classes", []):
            if line[0] == "queue" and len(line) > 2:  # the older words: queue NUMBER NAME
                name, words = line[2], ("queue-num", line[1])
            elif line[0] == "class" and len(line) > 2:
                name, words = line[1], line[2:]
            else:
                continue
            where = f"forwarding-classes class {name}"
            known = found.setdefault(name, {"queue": None, "priority": None, "lossless": False, "multicast": False})
            queue = self.number(words, "queue-num", where, 0, 11)
            if queue is not None:
                known["queue"], known["multicast"] = queue, queue >= CLASSES
            priority = self.number(words, "pfc-priority", where, 0, CLASSES - 1)
            known["priority"] = known["priority"] if priority is None else priority
            known["lossless"] = known["lossless"] or "no-loss" in words
        found = {name: each for name, each in found.items() if not each["multicast"]}
        taken: set[int] = set()
        for name, each in sorted(found.items(), key=lambda pair: not CLASS.fullmatch(pair[0])):  # ours first
            if each["queue"] is None:
                raise self.refuse(f"forwarding-classes class {name}", "it has no queue-num", "give it one")
            match = CLASS.fullmatch(name)
            number = int(match[1]) if match else each["queue"]
            free = [number, *(at for at in range(CLASSES) if at not in taken)]
            each["number"] = next((at for at in free if at not in taken), number)
            taken.add(each["number"])
            if match and not each["lossless"]:
                each["priority"] = int(match[2])
        return found

    def ecmp(self) -> tuple[str, ...] | None:
        if not self.hash or ("hash-mode", "layer2-header") in self.hash:
            return None
        found = [
            tuple(sorted(field for field, word in words.items() if (family, word) not in self.hash))
            for family, words in NOT_HASHED.items()
        ]
        return found[0] if found[0] == found[1] else None

    def switch(self) -> Switch:
        by_name: dict[str, list[Line]] = {}
        for line in self.cos.get("interfaces", []):
            by_name.setdefault(line[0], []).extend([line[1:]] if line[1:] else [])
        wild = {name: lines for name, lines in by_name.items() if "*" in name or name == "all"}
        ports = dict.fromkeys(name for name in by_name if name not in wild)
        ports.update(dict.fromkeys(name for name in self.interfaces if PORT.fullmatch(name)))
        found = {}
        for port in ports:
            lines = [
                line
                for name, each in wild.items()
                if name == "all" or fnmatchcase(port, name)
                for line in each
            ]  # fmt: skip
            found[port] = self.port(port, [*lines, *by_name.get(port, [])])
        return Switch(self.name, SYSTEM, found, self.ecmp(), self.buffer)

    # A port's

    def port(self, port: str, lines: list[Line]) -> PortQos:
        """Return a port's QoS. ``lines``: its lines below [edit class-of-service interfaces]; later lines override."""
        names: dict[str, str | None] = {"map": None, "pfc": None}
        units: dict[str, str] = {}
        rewrites = False
        for line in lines:
            if _rewrites(line):
                rewrites = True
            elif line[0] == "scheduler-map" and len(line) > 1:
                names["map"] = line[1]
            elif line[0] == "congestion-notification-profile" and len(line) > 1:
                names["pfc"] = line[1]
            elif line[0] == "unit" and line[2:4] == ("classifiers", "dscp") and len(line) > 4:
                units[line[1]] = line[4]
            elif line[:2] == ("classifiers", "dscp") and len(line) > 2:
                units.setdefault("*", line[2])
        classifiers = tuple(dict.fromkeys(units.values()))
        mtu = self.mtu(port)
        key = (classifiers, *names.values(), mtu, rewrites)
        if key not in self.known:
            qos = self.qos(f"class-of-service interfaces {port}", classifiers, names, mtu)
            self.known[key] = replace(qos, rewrites_dscp=rewrites)
        return self.known[key]

    def mtu(self, port: str) -> int | None:
        found = None
        header = ETHERNET_BYTES
        inner = []
        for line in self.interfaces.get(port, []):
            where = f"interfaces {port}"
            if line[0] == "mtu":
                found = self.number(line, "mtu", where, 256, 65535)
            elif line[0] in TAGGED_BYTES:
                header = TAGGED_BYTES[line[0]]
            elif line[0] == "unit" and line[2:5] in (("family", "inet", "mtu"), ("family", "inet6", "mtu")):
                inner.append(self.number(line, "mtu", where, 256, 65535))
        if found is None:
            return None
        return min([found - header, *(each for each in inner if each is not None)])

    def forwarding_class(self, name: str, by: str) -> dict[str, Any]:
        if name not in self.classes:
            raise self.refuse(by, f"forwarding class {name} is not there", "define it, or delete what names it")
        return self.classes[name]

    def qos(self, by: str, classifiers: Line, names: dict[str, str | None], mtu: int | None) -> PortQos:
        tables: list[list[str | None]] = []
        for name in classifiers:
            tables.append([None] * DSCPS)
            if name != "default":
                self.classifier(tables[-1], name, by, ())
        # Units may have classifiers of their own: only what is the same in all of them is the port's.
        dscps = [each[0] if len(set(each)) == 1 else None for each in zip(*tables)] or [None] * DSCPS
        schedulers = {}
        for line in self.object("scheduler-maps", names["map"], by=by) if names["map"] else []:
            if line[0] == "forwarding-class" and line[2:3] == ("scheduler",) and len(line) > 3:
                schedulers[line[1]] = line[3]
        used = dict.fromkeys([*(each for each in dscps if each is not None), *schedulers])
        classes = {name: self.forwarding_class(name, by) for name in used}
        class_to_queue: list[int | None] = [None] * CLASSES
        class_to_priority: list[int | None] = [None] * CLASSES
        priority_to_queue: list[int | None] = [None] * CLASSES
        queues: list[Queue | None] = [None] * CLASSES
        for name, each in classes.items():
            class_to_queue[each["number"]] = each["queue"]
            class_to_priority[each["number"]] = each["priority"]
            if name in schedulers:
                queues[each["queue"]] = self.scheduler(schedulers[name], by)
            elif queues[each["queue"]] is None:
                queues[each["queue"]] = Queue(False, 0)  # no scheduler: what others leave
            if each["priority"] is not None and not each["lossless"]:
                priority_to_queue[each["priority"]] = each["queue"]
        frame = (MTU_BYTES if mtu is None else mtu) + ETHERNET_BYTES
        pfc, watchdog, cable = self.pausing(names["pfc"], by, dscps, classes, priority_to_queue, frame)
        return PortQos(
            dscp_to_class=tuple(None if name is None else classes[name]["number"] for name in dscps),
            class_to_queue=tuple(class_to_queue),
            class_to_priority=tuple(class_to_priority),
            priority_to_queue=tuple(priority_to_queue),
            queues=tuple(queues),
            pfc=pfc,
            watchdog=watchdog,
            ip_mtu_bytes=mtu,
            cable_m=cable,
        )

    def classifier(self, dscps: list[str | None], name: str, by: str, above: Line) -> None:
        """Write the forwarding class of each DSCP that a classifier names."""
        if name in above:
            raise self.refuse(by, f"classifier {name} imports itself", "break the circle")
        lines = self.object("classifiers", "dscp", name, by=by)
        for line in lines:
            if line[0] == "import" and len(line) > 1 and line[1] != "default":
                self.classifier(dscps, line[1], f"classifiers dscp {name}", (*above, name))
        for line in lines:
            if line[0] == "forwarding-class" and "code-points" in line:
                points = line[line.index("code-points") + 1 :]
                if not points:
                    raise self.refuse(f"classifiers dscp {name}", "code-points without one")
                for bits in points:
                    dscps[self.code_point(bits)] = line[1]

    def scheduler(self, name: str, by: str) -> Queue:
        if ("scheduler", name) not in self.known:
            where = f"schedulers {name}"
            strict, percent, marks = False, 0, False
            profile = None
            for line in self.object("schedulers", name, by=by):
                if line[0] == "priority":
                    strict = line[1:2] == ("strict-high",)
                elif line[0] == "transmit-rate":
                    percent = self.number(line, "percent", where, 0, 100) or 0
                elif line[0] == "explicit-congestion-notification":
                    marks = True
                elif line[0] == "drop-profile-map" and "drop-profile" in line[:-1]:
                    loss = line[line.index("loss-priority") + 1] if "loss-priority" in line[:-1] else "any"
                    if loss in ("any", "low"):
                        profile = line[line.index("drop-profile") + 1]
            ecn = self.drop_profile(profile, where) if marks and profile is not None else None
            self.known["scheduler", name] = Queue(strict, None if strict else percent, ecn)
        return self.known["scheduler", name]

    def drop_profile(self, name: str, by: str) -> Ecn:
        where = f"drop-profiles {name}"
        levels: list[int] = []
        chances: list[int] = []
        for line in self.object("drop-profiles", name, by=by):
            words = line[1:] if line[0] == "interpolate" else line
            for at, word in enumerate(words):
                if word in ("fill-level", "drop-probability"):
                    percent = self.number(words[at:], word, where, 0, 100)
                    if percent is not None:
                        (levels if word == "fill-level" else chances).append(percent)
            if line[0] != "interpolate" and "fill-level" in line:
                raise self.refuse(where, "a profile of steps, not interpolated", "interpolate between two fill levels")
        if len(levels) != 2 or len(chances) != 2 or chances[0] != 0 or levels[0] >= levels[1]:
            raise self.refuse(
                where,
                f"fill levels {levels} with drop probabilities {chances} are no straight line from 0",
                "give two of each, rising, with 0 as the first probability",
            )
        if self.buffer is None:
            raise self.refuse(
                where,
                "its thresholds are percents of a queue's buffer, and how many bytes that has is not told",
                f"set {' '.join(MACRO)} BYTES on the switch; it has no effect there",
            )
        return Ecn(_bytes(levels[0], self.buffer), _bytes(levels[1], self.buffer), chances[1])

    def pausing(
        self,
        name: str | None,
        by: str,
        dscps: list[str | None],
        classes: dict[str, dict[str, Any]],
        priority_to_queue: list[int | None],
        frame_bytes: int,
    ) -> tuple[tuple[int, ...], Watchdog | None, int | None]:
        """Return (pfc, watchdog, cable_m), and write the queue that a pause of each priority stops."""
        if name is None:
            return (), None, None
        where = f"congestion-notification-profile {name}"
        points: dict[int, int] = {}  # to their MRU
        cable = CABLE_M
        stopped: dict[int, set[int]] = {}
        watched, action = False, "drop"
        times = {"poll-interval": POLL_MS, "detection": DETECTION, "recovery": RECOVERY_MS}
        for line in self.object("congestion-notification-profile", name, by=by):
            if line[:3] == ("input", "dscp", "code-point") and line[4:5] == ("pfc",):
                point = self.code_point(line[3])
                points[point] = self.number(line, "mru", where, 0, 65535) or points.get(point, MRU_BYTES)
            elif line[:2] == ("input", "cable-length"):
                cable = self.number(line, "cable-length", where, 0, 1 << 20) or CABLE_M
            elif line[:3] == ("output", "ieee-802.1", "code-point") and len(line) > 3:
                queue = self.number(line, "flow-control-queue", where, 0, 11)
                if queue is not None:
                    stopped.setdefault(self.code_point(line[3], 3), set()).add(queue)
            elif line[0] == "pfc-watchdog":
                watched = True
                for word, held in times.items():
                    times[word] = self.number(line, word, where, 1, 1 << 20) or held
                if line[1:2] == ("watchdog-action",) and len(line) > 2:
                    action = line[2]
        for priority, queues in (stopped or DEFAULT_STOPPED).items():
            priority_to_queue[priority] = min(queues)
        pfc = set()
        for class_name, each in classes.items():
            own = {dscp for dscp, at in enumerate(dscps) if at == class_name}
            pauses = each["lossless"] and each["priority"] is not None and own and own <= points.keys()
            if pauses and each["queue"] in (stopped or DEFAULT_STOPPED).get(each["priority"], ()):
                pfc.add(each["priority"])
                if any(points[dscp] < frame_bytes for dscp in own):
                    cable = 0
        watchdog = Watchdog(times["poll-interval"] * times["detection"], times["recovery"], action)
        return tuple(sorted(pfc)), watchdog if watched else None, cable if pfc else None


# Remediate


def remediation(running: str, wanted: Switch) -> str:
    """Return the lines (delete, activate, set; for one commit) that change a running configuration to ``wanted``; ""
    where nothing differs. They delete what is this project's and not wanted, and what contradicts the policy on a
    wanted port.
    """
    want = _lines(wanted)
    known, inactive = _words(running, wanted.name)
    off = [path for path in inactive if any(line[: len(path)] == path for line in want)]
    hidden = {f"deactivate {' '.join(path)}" for path in off}  # the lines that they hide return with them
    reader = _Reader(
        "\n".join(each for each in running.splitlines() if " ".join(each.split()) not in hidden), wanted.name
    )
    _check_partitions(reader, wanted)
    want = [_as_tagged(reader, line) for line in want]
    lines = [f"activate {' '.join(path)}" for path in off]
    lines += [f"delete {' '.join(path)}" for path in _unwanted(reader, wanted, set(want))]
    there = set(known)
    lines += [f"set {' '.join(line)}" for line in want if line not in there]
    return "".join(f"{line}\n" for line in lines)


def _check_partitions(reader: _Reader, wanted: Switch) -> None:
    """Refuse smaller partitions of the ingress buffer than those of the plan.

    They are not rendered: changing them stops the traffic of all ports (Juniper, "buffer-partition (Ingress)").
    """
    if wanted.shares is None:
        return
    for name, default, planned in (
        ("lossless", DEFAULT_SHARES.lossless_percent, wanted.shares.lossless_percent),
        ("lossless-headroom", DEFAULT_SHARES.headroom_percent, wanted.shares.headroom_percent or 0),
    ):
        path = (*PARTITIONS, name, "percent")
        seen = next((line[-1] for line in reader.lines if line[:-1] == path), str(default))
        if not seen.isdecimal() or int(seen) < planned:
            raise FabricError(
                f"{reader.name}: {' '.join(path)}",
                f"it is {seen}, and the plan reckons with {planned}",
                "describe the switch's pools in roce_asics (like, source, pool_bytes, headroom_pool_bytes), or set it "
                "when no traffic has to pass, for changing it stops all ports",
            )


def _as_tagged(reader: _Reader, line: Line) -> Line:
    """Return a wanted line, with the MTU for a port that tags its frames."""
    if line[0] != "interfaces":
        return line
    header = max(TAGGED_BYTES.get(each[0], ETHERNET_BYTES) for each in reader.interfaces.get(line[1], [("mtu",)]))
    mtu = int(line[-1]) - ETHERNET_BYTES + header
    if mtu > MOST_MTU:
        raise FabricError(
            f"{reader.name}: {line[1]}",
            f"it tags its frames, so its MTU would be {mtu} bytes; a QFX has {MOST_MTU}",
            f"give {MOST_MTU - header} or less as roce_policy's switch_mtu_bytes",
        )
    return (*line[:-1], str(mtu))


def _unwanted(reader: _Reader, wanted: Switch, kept: set[Line]) -> list[Line]:
    """Return the paths to delete, each once."""
    found: dict[Line, None] = {}
    for line in reader.lines:
        if line in kept:
            continue
        at = next((at for at, word in enumerate(line) if word.startswith(OURS)), None)
        if line[:1] == COS and line[1:2] != ("interfaces",) and at is not None and at <= 3:
            whole = line[: at + 1]
            found[whole if not any(each[: at + 1] == whole for each in kept) else line] = None
        elif line[:3] == MACRO[:3] or (line[:2] == HASH and line != HASH_MODE):
            found[line] = None
        elif line[: len(COS) + 1] == (*COS, "interfaces") and len(line) > 3:
            ports = [port for port in wanted.ports if _names(line[2], port)]
            if any(_contradicts(line, port, kept) for port in ports):
                found[line] = None
        elif line[0] == "interfaces" and len(line) > 1 and line[1] in wanted.ports and line[-2:-1] == ("mtu",):
            mtu = wanted.ports[line[1]].ip_mtu_bytes
            if line[2] == "unit" and mtu is not None and line[-1].isdigit() and int(line[-1]) < mtu:
                found[line] = None
    return list(found)


def _rewrites(line: Line) -> bool:
    """Return true where a line of a port, or of a unit of it, rewrites DSCPs of packets that leave."""
    rule = line[2:] if line[0] == "unit" else line
    return rule[:1] == ("rewrite-rules",) and rule[1:2] in (("dscp",), ("dscp-ipv6",), ("inet-precedence",))


def _names(pattern: str, port: str) -> bool:
    return pattern in (port, "all") or fnmatchcase(port, pattern)


def _contradicts(line: Line, port: str, kept: set[Line]) -> bool:
    """Return true where a line on a port (or on a pattern of ports) prevents the wanted setting from taking effect."""
    what = line[3]
    if _rewrites(line[3:]):
        return True
    has = {each[3] for each in kept if each[:3] == (*COS, "interfaces", port)}
    if what in ("scheduler-map", "congestion-notification-profile"):
        return what not in has  # else the port's setting replaces it
    if what in ("forwarding-class-set", "output-traffic-control-profile"):
        return "scheduler-map" in has  # hierarchical scheduling instead of the port's
    if what == "unit" and line[5:7] == ("classifiers", "dscp"):
        return line[4] != "*" or "unit" not in has
    return what == "classifiers"
