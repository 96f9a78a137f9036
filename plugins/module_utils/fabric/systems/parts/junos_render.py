# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Render the class of service of a switch as Junos ``set`` lines. Sources: ``systems.junos``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    ECMP_FIELDS,
    Ecn,
    PortQos,
    Queue,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.thresholds import MARKED_PERCENT
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos import (
    DETECTION,
    POLL_MS,
    RECOVERY_MS,
    bytes_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos_lines import (
    COS,
    ETHERNET_BYTES,
    HASH,
    HASH_MODE,
    MACRO,
    NOT_HASHED,
    OURS,
    Line,
)

MOST_MTU = 9216
# Of a queue, where marking begins and ends: at 0% an empty queue is marked, and Juniper says not to use 100%.
LEAST_PERCENT, MOST_PERCENT = 1, 99


def attainable(qos: PortQos, queue_buffer_bytes: int) -> PortQos:
    """Return ``qos`` with thresholds that are whole percents of ``queue_buffer_bytes``, rounded down, but above 0.

    A queue at which MARKED_PERCENT of packets are marked is not longer than before. Raises FabricError where there are
    no such thresholds.
    """
    return replace(
        qos,
        queues=tuple(
            queue and replace(queue, ecn=queue.ecn and _attainable(queue.ecn, queue_buffer_bytes))
            for queue in qos.queues
        ),
    )


def _attainable(ecn: Ecn, buffer: int) -> Ecn:
    low, high = ecn.minimum_bytes * 100 // buffer, min(ecn.maximum_bytes * 100 // buffer, MOST_PERCENT)
    if low < LEAST_PERCENT:
        # Marking begins later, so it ends earlier: MARKED_PERCENT are marked at the same queue as with ``ecn``.
        share = min(Fraction(MARKED_PERCENT, ecn.probability_percent), Fraction(1))
        marked_bytes = ecn.minimum_bytes + share * (ecn.maximum_bytes - ecn.minimum_bytes)
        low = LEAST_PERCENT
        high = min(high, int(low + (marked_bytes * 100 / buffer - low) / share))
    low = min(low, high - 1)
    if low < LEAST_PERCENT:
        raise FabricError(
            f"Junos has whole percents of a queue's {buffer} bytes, and from 0% on, an empty queue is marked",
            f"give {bytes_of(LEAST_PERCENT, buffer)} and {bytes_of(LEAST_PERCENT + 1, buffer)} or more",
            subject=f"thresholds of {ecn.minimum_bytes} and {ecn.maximum_bytes} bytes",
        )
    return Ecn(bytes_of(low, buffer), bytes_of(high, buffer), ecn.probability_percent)


def wanted_lines(switch: Switch) -> list[Line]:
    shared_lines: dict[Line, None] = {}  # in their order, each once
    ports: list[Line] = []
    by_qos: dict[int, list[Line]] = {}
    for port, wanted in switch.ports.items():
        if id(wanted) not in by_qos:
            shared, by_qos[id(wanted)] = _port_lines(switch, f"{switch.name}: {port}", wanted)
            shared_lines.update(dict.fromkeys(shared))
        ports += [tuple(port if word == "PORT" else word for word in line) for line in by_qos[id(wanted)]]
    lines: list[Line] = []
    if switch.queue_buffer_bytes is not None:
        lines.append((*MACRO, str(switch.queue_buffer_bytes)))
    lines += [*shared_lines, *ports]
    if switch.ecmp_fields is not None:
        lines.append(HASH_MODE)
        for family, words in NOT_HASHED.items():
            lines += [(*HASH, family, words[field]) for field in ECMP_FIELDS if field not in switch.ecmp_fields]
    _check_one_meaning(switch)
    return lines


def _check_one_meaning(switch: Switch) -> None:
    """Check that each class has one queue and one priority on all ports: a switch has one set of forwarding classes."""
    numbers_found: dict[str, int] = {}
    for wanted in switch.distinct_ports():
        for traffic_class, (queue, priority) in enumerate(zip(wanted.class_to_queue, wanted.class_to_priority)):
            for setting, number in (
                (f"queue of class {traffic_class}", queue),
                (f"priority of class {traffic_class}", priority),
            ):
                if number is not None and numbers_found.setdefault(setting, number) != number:
                    raise FabricError(
                        f"the {setting} differs between its ports, but Junos keeps one for the whole switch",
                        "give all ports the same value",
                        subject=switch.name,
                    )


def _port_lines(switch: Switch, subject: str, wanted: PortQos) -> tuple[list[Line], list[Line]]:
    """Return the objects to which a port's settings refer, and the settings, with PORT in place of its name."""
    shared: list[Line] = []
    own_lines: list[Line] = []
    names = _class_names(subject, wanted)
    for traffic_class, name in names.items():
        line = (*COS, "forwarding-classes", "class", name)
        shared.append((*line, "queue-num", str(wanted.class_to_queue[traffic_class])))
        if wanted.class_to_priority[traffic_class] in wanted.pfc:
            shared += [(*line, "no-loss"), (*line, "pfc-priority", str(wanted.class_to_priority[traffic_class]))]
    if any(entry is not None for entry in wanted.dscp_to_class):
        code_points: list[Line] = []
        for dscp, led_to in enumerate(wanted.dscp_to_class):
            if led_to is not None:
                if led_to not in names:
                    raise FabricError(
                        f"DSCP {dscp} leads to class {led_to}, which has no queue", "give it one", subject=subject
                    )
                class_name = names[led_to]
                code_points.append(
                    ("forwarding-class", class_name, "loss-priority", "low", "code-points", f"{dscp:06b}")
                )
        name = _named(shared, (*COS, "classifiers", "dscp"), code_points)
        own_lines.append((*COS, "interfaces", "PORT", "unit", "*", "classifiers", "dscp", name))
    content: list[Line] = []
    for traffic_class, forwarding_class in names.items():
        number = wanted.class_to_queue[traffic_class]
        queue = None if number is None else wanted.queues[number]
        if queue is not None:
            scheduler = _scheduler(switch, subject, queue, shared)
            content.append(("forwarding-class", forwarding_class, "scheduler", scheduler))
    if content:
        name = _named(shared, (*COS, "scheduler-maps"), content)
        own_lines.append((*COS, "interfaces", "PORT", "scheduler-map", name))
    if wanted.pfc:
        name = _named(shared, (*COS, "congestion-notification-profile"), _pfc(subject, wanted))
        own_lines.append((*COS, "interfaces", "PORT", "congestion-notification-profile", name))
    elif wanted.watchdog is not None:
        raise FabricError("it has a PFC watchdog, but no lossless priority", "remove it", subject=subject)
    if wanted.ip_mtu_bytes is not None:
        mtu = wanted.ip_mtu_bytes + ETHERNET_BYTES
        if mtu > MOST_MTU:
            raise FabricError(
                f"an IP MTU of {wanted.ip_mtu_bytes} needs {mtu} bytes with its Ethernet header, "
                f"but a QFX has at most {MOST_MTU}",
                f"give {MOST_MTU - ETHERNET_BYTES} or less as roce_policy's switch_mtu_bytes",
                subject=subject,
            )
        own_lines.append(("interfaces", "PORT", "mtu", str(mtu)))
    return shared, own_lines


def _class_names(subject: str, wanted: PortQos) -> dict[int, str]:
    """Return the forwarding class of each traffic class that has a queue."""
    names = {}
    queues = [queue for queue in wanted.class_to_queue if queue is not None]
    for number, queue in enumerate(wanted.class_to_queue):
        priority = wanted.class_to_priority[number]
        if queue is None and priority is None:
            continue
        if queue is None or priority is None or wanted.priority_to_queue[priority] != queue:
            raise FabricError(
                f"class {number} has queue {queue} and priority {priority}, whose pause stops another queue",
                "give each class a queue and a priority, and the priority the same queue",
                subject=subject,
            )
        names[number] = f"{OURS}tc{number}-pri{priority}"
    priorities = [priority for priority in wanted.class_to_priority if priority is not None]
    missing = [number for number, queue in enumerate(wanted.queues) if queue is not None and number not in queues]
    stray = [
        number
        for number, queue in enumerate(wanted.priority_to_queue)
        if queue is not None and number not in priorities
    ]
    if missing or stray or len(set(queues)) < len(queues) or not set(wanted.pfc) <= set(priorities):
        raise FabricError(
            "not every queue and priority has one class of its own",
            "give each class of roce_policy its own",
            subject=subject,
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
                f"a queue that is not strict has {queue.bandwidth_percent} as its share",
                "give it bandwidth_percent of 1 to 100",
                subject=subject,
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
            "Junos marks at percentages of a queue's buffer, whose size in bytes is not known",
            "set the switch's queue_buffer_bytes",
            subject=subject,
        )
    can = _attainable(ecn, buffer)
    if can != ecn:
        raise FabricError(
            f"thresholds of {ecn.minimum_bytes} and {ecn.maximum_bytes} bytes are not whole percentages, 1 to 99, of "
            f"a queue's {buffer} bytes",
            f"give {can.minimum_bytes} and {can.maximum_bytes}, or another buffer",
            subject=subject,
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
    for dscp, traffic_class in enumerate(wanted.dscp_to_class):
        if traffic_class is not None and wanted.class_to_priority[traffic_class] in wanted.pfc:
            content.append(("input", "dscp", "code-point", f"{dscp:06b}", "pfc", *mru))
    if wanted.cable_m:
        content.append(("input", "cable-length", str(wanted.cable_m)))
    for priority in wanted.pfc:
        queue = wanted.priority_to_queue[priority]
        content.append(("output", "ieee-802.1", "code-point", f"{priority:03b}", "flow-control-queue", str(queue)))
    if wanted.watchdog is None:
        return content
    watchdog = wanted.watchdog
    detection, remainder = divmod(watchdog.detection_ms, POLL_MS)
    if remainder:
        raise FabricError(
            f"its PFC watchdog cannot wait {watchdog.detection_ms} ms: Junos counts polling intervals of {POLL_MS} ms",
            f"give a multiple of {POLL_MS} as detection_ms",
            subject=subject,
        )
    content.append(("pfc-watchdog",))
    if detection != DETECTION:
        content.append(("pfc-watchdog", "detection", str(detection)))
    if watchdog.restoration_ms != RECOVERY_MS:
        content.append(("pfc-watchdog", "recovery", str(watchdog.restoration_ms)))
    if watchdog.action != "drop":
        content.append(("pfc-watchdog", "watchdog-action", watchdog.action))
    return content
