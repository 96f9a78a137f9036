# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the class of service of any Junos configuration. Sources: ``systems.junos``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    Ecn,
    Override,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos_lines import (
    CABLE_M,
    CLASS,
    ETHERNET_BYTES,
    MACRO,
    MTU_BYTES,
    Line,
    Profile,
    effective,
    rewrites_dscps,
    set_lines,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos_overrides import (
    hashed_fields,
    lags,
    overrides,
    speeds_gbit_s,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.parts.junos_buffers import buffers
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import BUFFER, SIZE

SYSTEM = "junos"
PORT = re.compile(r"(?:et|xe|ge|mge)-\d+/\d+/\d+(?::\d+)?|ae\d+")
TAGGED_BYTES = {"vlan-tagging": 18, "flexible-vlan-tagging": 22}
DEFAULT_STOPPED = {3: {3}, 4: {4}}  # priority -> queues, in a profile without output
POLL_MS, DETECTION, RECOVERY_MS = 100, 2, 200
MRU_BYTES = 2500  # the default
ALIASES = {"be": 0, "ef": 46, "nc1": 48, "nc2": 56, **{f"cs{number}": 8 * number for number in range(1, 8)}}
ALIASES.update({f"af{tier}{drop}": 8 * tier + 2 * drop for tier in range(1, 5) for drop in range(1, 4)})


def bytes_of(percent: int, buffer: int) -> int:
    """Return a percentage of a buffer in bytes, rounded up, so that a queue of this many bytes reaches it."""
    return -(-percent * buffer // 100)


class JunosReader:
    """A reader of one configuration, object by object."""

    def __init__(self, text: str, name: str, queue_buffer_bytes: int | None = None) -> None:
        """Parse ``text``. ``queue_buffer_bytes``: the inventory's; None: that of the configuration."""
        self.name = name
        self.text = text
        lines, inactive = set_lines(effective(text), name)
        self.lines = [line for line in lines if not any(line[: len(path)] == path for path in inactive)]
        self.cos: dict[str, list[Line]] = {}
        self.interfaces: dict[str, list[Line]] = {}
        for line in self.lines:
            if line[0] == "class-of-service" and len(line) > 2:
                self.cos.setdefault(line[1], []).append(line[2:])
            elif line[0] == "interfaces" and len(line) > 2:
                self.interfaces.setdefault(line[1], []).append(line[2:])
        self.attached: dict[str, set[str | None]] = {}  # port -> its profiles, and the schedulers of its map
        self.short_mrus: dict[str, list[str]] = {}  # profile -> the ports whose packets can be longer than its MRU
        self.buffer = queue_buffer_bytes or self.read_buffer()
        self.aliases = dict(ALIASES)
        for _family, alias, bits in (line[:3] for line in self.cos.get("code-point-aliases", []) if len(line) > 2):
            self.aliases[alias] = self.code_point(bits)
        self.classes = self.read_classes()
        self.cache: dict[tuple[Any, ...], Any] = {}

    def refuse(self, path: str, cause: str, remedy: str = "compare it with the switch's configuration") -> FabricError:
        return FabricError(cause, remedy, subject=f"{self.name}: Junos configuration: {path}")

    def under(self, section: str, *path: str) -> list[Line]:
        """Return the lines below a path of a section, in their order."""
        return [line[len(path) :] for line in self.cos.get(section, []) if line[: len(path)] == path]

    def object(self, section: str, *path: str, by: str) -> list[Line]:
        lines = self.under(section, *path)
        if not lines:
            raise self.refuse(
                by, f"{' '.join((section, *path))} is not defined", "define it, or delete the reference to it"
            )
        return [line for line in lines if line]

    def number(self, words: Line, keyword: str, path: str, minimum: int, maximum: int) -> int | None:
        """Return the number after a word; None where the word is not there."""
        if keyword not in words:
            return None
        values = words[words.index(keyword) + 1 :]
        if not values or not values[0].isdecimal() or not minimum <= int(values[0]) <= maximum:
            raise self.refuse(path, f"{keyword} {' '.join(values[:1])!r} is not a number from {minimum} to {maximum}")
        return int(values[0])

    def code_point(self, bits: str, digits: int = 6) -> int:
        if re.fullmatch(rf"[01]{{{digits}}}", bits):
            return int(bits, 2)
        if digits == 6 and bits in self.aliases:
            return self.aliases[bits]
        raise self.refuse("class-of-service", f"code point {bits!r} is neither {digits} bits nor a known alias")

    def read_buffer(self) -> int | None:
        for line in self.lines:
            if line[: len(MACRO)] == MACRO:
                return self.number(line[len(MACRO) - 1 :], MACRO[-1], " ".join(MACRO[:-1]), 1, 1 << 40)
        return None

    def read_classes(self) -> dict[str, dict[str, Any]]:
        """Return, by name of a forwarding class, its number, queue, priority, and whether it is lossless."""
        classes: dict[str, dict[str, Any]] = {}
        words: Line
        for line in self.cos.get("forwarding-classes", []):
            if line[0] == "queue" and len(line) > 2:  # the older syntax: queue NUMBER NAME
                name, words = line[2], ("queue-num", line[1])
            elif line[0] == "class" and len(line) > 2:
                name, words = line[1], line[2:]
            else:
                continue
            path = f"forwarding-classes class {name}"
            traits = classes.setdefault(name, {"queue": None, "priority": None, "lossless": False, "multicast": False})
            queue = self.number(words, "queue-num", path, 0, 11)
            if queue is not None:
                traits["queue"], traits["multicast"] = queue, queue >= CLASSES
            priority = self.number(words, "pfc-priority", path, 0, CLASSES - 1)
            traits["priority"] = traits["priority"] if priority is None else priority
            traits["lossless"] = traits["lossless"] or "no-loss" in words
        classes = {name: traits for name, traits in classes.items() if not traits["multicast"]}
        taken_numbers: set[int] = set()
        for name, traits in sorted(classes.items(), key=lambda pair: not CLASS.fullmatch(pair[0])):  # ours first
            if traits["queue"] is None:
                raise self.refuse(f"forwarding-classes class {name}", "it has no queue-num", "set it")
            match = CLASS.fullmatch(name)
            number = int(match[1]) if match else traits["queue"]
            free = [number, *(free_number for free_number in range(CLASSES) if free_number not in taken_numbers)]
            traits["number"] = next((free_number for free_number in free if free_number not in taken_numbers), number)
            taken_numbers.add(traits["number"])
            if match and not traits["lossless"]:
                traits["priority"] = int(match[2])
        return classes

    def switch(self) -> Switch:
        by_name: dict[str, list[Line]] = {}
        for line in self.cos.get("interfaces", []):
            by_name.setdefault(line[0], []).extend([line[1:]] if line[1:] else [])
        wild = {name: lines for name, lines in by_name.items() if "*" in name or name == "all"}
        names = dict.fromkeys([*by_name, *filter(PORT.fullmatch, self.interfaces)])
        port_qos = {}
        for port in [name for name in names if name not in wild]:
            patterns = [name for name in wild if name == "all" or fnmatchcase(port, name)]
            lines = [line for name in patterns for line in wild[name]]
            port_qos[port] = self.port(port, [*lines, *by_name.get(port, [])])
        lag_mtus = {lag: self.mtu(lag) or MTU_BYTES for lag in lags(self.lines)}
        return Switch(
            self.name,
            SYSTEM,
            port_qos,
            hashed_fields(self.lines),
            self.buffer,
            overrides=(
                *overrides(self.lines, self.interfaces, self.attached),
                *self.no_headroom(),
                *(Override(f"{lag} mtu {mtu}", SIZE, (lag,), mtu) for lag, mtu in lag_mtus.items()),
            ),
            speeds_gbit_s=speeds_gbit_s(self.lines),
            lags=lags(self.lines),
            buffers=buffers(self.lines, self.text, self.name),
        )

    def port(self, port: str, lines: list[Line]) -> PortQos:
        """Return a port's QoS. ``lines``: its lines below [edit class-of-service interfaces]; later lines override."""
        names: dict[str, str | None] = {"map": None, "pfc": None}
        units: dict[str, str] = {}
        rewrites = False
        for line in lines:
            if rewrites_dscps(line):
                rewrites = True
            elif line[0] == "scheduler-map" and len(line) > 1:
                names["map"] = line[1]
            elif line[0] == "congestion-notification-profile" and len(line) > 1:
                names["pfc"] = line[1]
            elif line[0] == "unit" and line[2:4] == ("classifiers", "dscp") and len(line) > 4:
                units[line[1]] = line[4]
            elif line[:2] == ("classifiers", "dscp") and len(line) > 2:
                units.setdefault("*", line[2])
        schedulers = [line[-1] for line in self.under("scheduler-maps", str(names["map"])) if "scheduler" in line[:-1]]
        self.attached[port] = {*names.values(), *schedulers}
        classifiers = tuple(dict.fromkeys(units.values()))
        mtu = self.mtu(port)
        key = (classifiers, *names.values(), mtu, rewrites)
        if key not in self.cache:
            qos = self.qos(f"class-of-service interfaces {port}", classifiers, names, mtu)
            self.cache[key] = replace(qos, rewrites_dscp=rewrites)
        if names["pfc"] is not None and self.cache[key].cable_m == 0:
            self.short_mrus.setdefault(names["pfc"], []).append(port)
        return self.cache[key]

    def no_headroom(self) -> Iterator[Override]:
        """Yield the profiles whose MRU is less than a port's packets: the cause of a cable of 0 m."""
        for name, ports in self.short_mrus.items():
            path = f"class-of-service congestion-notification-profile {name}"
            mru = min(self.notification_profile(name, path).mru_bytes.values())
            yield Override(f"{path} input: mru {mru} is less than the port's mtu", BUFFER, tuple(ports))

    def mtu(self, port: str) -> int | None:
        """Return the largest IP packet that passes; None where the text has no interfaces."""
        frame_mtu, header, path = None, ETHERNET_BYTES, f"interfaces {port}"
        inner: list[int | None] = []
        for line in self.interfaces.get(port, []):
            if line[0] == "mtu":
                frame_mtu = self.number(line, "mtu", path, 256, 65535)
            elif line[0] in TAGGED_BYTES:
                header = TAGGED_BYTES[line[0]]
            elif line[0] == "unit" and line[2:5] in (("family", "inet", "mtu"), ("family", "inet6", "mtu")):
                inner.append(self.number(line, "mtu", path, 256, 65535))
        of_port = MTU_BYTES if frame_mtu is None else frame_mtu - header
        return min([of_port, *filter(None, inner)]) if self.interfaces else None

    def forwarding_class(self, name: str, by: str) -> dict[str, Any]:
        if name not in self.classes:
            raise self.refuse(by, f"forwarding class {name} is not defined", "define it, or delete the reference to it")
        return self.classes[name]

    def qos(self, by: str, classifiers: Line, names: dict[str, str | None], mtu: int | None) -> PortQos:
        tables: list[list[str | None]] = []
        for name in classifiers:
            tables.append([None] * DSCPS)
            if name != "default":
                self.classifier(tables[-1], name, by, ())
        # Units may have their own classifiers. The port has only the entries that are the same in all of them.
        dscps = [class_names[0] if len(set(class_names)) == 1 else None for class_names in zip(*tables)] or [
            None
        ] * DSCPS
        schedulers = {}
        for line in self.object("scheduler-maps", names["map"], by=by) if names["map"] else []:
            if line[0] == "forwarding-class" and line[2:3] == ("scheduler",) and len(line) > 3:
                schedulers[line[1]] = line[3]
        used = dict.fromkeys([*(class_name for class_name in dscps if class_name is not None), *schedulers])
        classes = {name: self.forwarding_class(name, by) for name in used}
        class_to_queue: list[int | None] = [None] * CLASSES
        class_to_priority: list[int | None] = [None] * CLASSES
        priority_to_queue: list[int | None] = [None] * CLASSES
        queues: list[Queue | None] = [None] * CLASSES
        for name, traits in classes.items():
            class_to_queue[traits["number"]] = traits["queue"]
            class_to_priority[traits["number"]] = traits["priority"]
            if name in schedulers:
                queues[traits["queue"]] = self.scheduler(schedulers[name], by)
            elif queues[traits["queue"]] is None:
                queues[traits["queue"]] = Queue(False, 0)  # without a scheduler it gets what others leave
            if traits["priority"] is not None and not traits["lossless"]:
                priority_to_queue[traits["priority"]] = traits["queue"]
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

    def classifier(self, dscps: list[str | None], name: str, by: str, importers: Line) -> None:
        """Write the forwarding class of each DSCP that a classifier names."""
        if name in importers:
            raise self.refuse(by, f"classifier {name} imports itself", "remove one of the imports")
        lines = self.object("classifiers", "dscp", name, by=by)
        for line in lines:
            if line[0] == "import" and len(line) > 1 and line[1] != "default":
                self.classifier(dscps, line[1], f"classifiers dscp {name}", (*importers, name))
        for line in lines:
            if line[0] == "forwarding-class" and "code-points" in line:
                points = line[line.index("code-points") + 1 :]
                if not points:
                    raise self.refuse(f"classifiers dscp {name}", "code-points is empty")
                for bits in points:
                    dscps[self.code_point(bits)] = line[1]

    def scheduler(self, name: str, by: str) -> Queue:
        if ("scheduler", name) not in self.cache:
            path = f"schedulers {name}"
            strict, percent, marks = False, 0, False
            profile = None
            for line in self.object("schedulers", name, by=by):
                if line[0] == "priority":
                    strict = line[1:2] == ("strict-high",)
                elif line[0] == "transmit-rate":
                    percent = self.number(line, "percent", path, 0, 100) or 0
                elif line[0] == "explicit-congestion-notification":
                    marks = True
                elif line[0] == "drop-profile-map" and "drop-profile" in line[:-1]:
                    loss = line[line.index("loss-priority") + 1] if "loss-priority" in line[:-1] else "any"
                    if loss in ("any", "low"):
                        profile = line[line.index("drop-profile") + 1]
            marking = self.drop_profile(profile, path) if marks and profile is not None else (None, None)
            self.cache["scheduler", name] = Queue(strict, None if strict else percent, *marking)
        return self.cache["scheduler", name]

    def drop_profile(self, name: str, by: str) -> tuple[Ecn | None, str | None]:
        """Return the marking at a profile's fill levels, or these in words where they are not known in bytes.

        Only a straight line from 0 has the two thresholds of ``Ecn``.
        """
        path = f"drop-profiles {name}"
        levels: list[int] = []
        chances: list[int] = []
        has_steps = False
        for line in self.object("drop-profiles", name, by=by):
            words = line[1:] if line[0] == "interpolate" else line
            for position, word in enumerate(words):
                if word in ("fill-level", "drop-probability"):
                    percent = self.number(words[position:], word, path, 0, 100)
                    if percent is not None:
                        (levels if word == "fill-level" else chances).append(percent)
            has_steps = has_steps or (line[0] != "interpolate" and "fill-level" in line)
        is_line = len(levels) == len(chances) == 2 and chances[0] == 0 and levels[0] < levels[1] and not has_steps
        if self.buffer is None or not is_line:
            form = "in steps, " if has_steps else ""
            return None, f"{form}fill levels {levels} % of a queue's buffer with probabilities {chances} %"
        return Ecn(bytes_of(levels[0], self.buffer), bytes_of(levels[1], self.buffer), chances[1]), None

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
        profile = self.notification_profile(name, by)
        for priority, queues in profile.stopped.items():
            priority_to_queue[priority] = min(queues)
        cable = profile.cable_m
        pfc = set()
        for class_name, traits in classes.items():
            dscps_of_class = {dscp for dscp, dscp_class in enumerate(dscps) if dscp_class == class_name}
            pauses = (
                traits["lossless"]
                and traits["priority"] is not None
                and dscps_of_class
                and dscps_of_class <= profile.mru_bytes.keys()
            )
            if pauses and traits["queue"] in profile.stopped.get(traits["priority"], ()):
                pfc.add(traits["priority"])
                if any(profile.mru_bytes[dscp] < frame_bytes for dscp in dscps_of_class):
                    cable = 0
        return tuple(sorted(pfc)), profile.watchdog, cable if pfc else None

    def notification_profile(self, name: str, by: str) -> Profile:
        """Return a congestion notification profile."""
        path = f"congestion-notification-profile {name}"
        profile = Profile()
        stopped: dict[int, set[int]] = {}
        lines = self.object("congestion-notification-profile", name, by=by)
        for line in lines:
            if line[:3] == ("input", "dscp", "code-point") and line[4:5] == ("pfc",):
                point = self.code_point(line[3])
                known_mru = profile.mru_bytes.get(point, MRU_BYTES)
                profile.mru_bytes[point] = self.number(line, "mru", path, 0, 65535) or known_mru
            elif line[:2] == ("input", "cable-length"):
                profile.cable_m = self.number(line, "cable-length", path, 0, 1 << 20) or CABLE_M
            elif line[:3] == ("output", "ieee-802.1", "code-point") and len(line) > 3:
                queue = self.number(line, "flow-control-queue", path, 0, 11)
                if queue is not None:
                    stopped.setdefault(self.code_point(line[3], 3), set()).add(queue)
        profile.stopped = stopped or DEFAULT_STOPPED
        profile.watchdog = self.watchdog([line for line in lines if line[0] == "pfc-watchdog"], path)
        return profile

    def watchdog(self, lines: list[Line], path: str) -> Watchdog | None:
        """Return the watchdog of a congestion notification profile; None without its lines."""
        times = {"poll-interval": POLL_MS, "detection": DETECTION, "recovery": RECOVERY_MS}
        action = "drop"
        for line in lines:
            for word, default in times.items():
                times[word] = self.number(line, word, path, 1, 1 << 20) or default
            if line[1:2] == ("watchdog-action",) and len(line) > 2:
                action = line[2]
        return Watchdog(times["poll-interval"] * times["detection"], times["recovery"], action) if lines else None
