# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arista EOS: QoS profiles on ports, and the maps of the whole switch.

Sources. Lines: the schema and the templates of Arista's pyavd 6.4 (eos_cli_config_gen: qos, qos_profiles,
priority_flow_control, ethernet_interfaces), with which the tests compare this module. Where no line sets anything else,
DSCPs 0 to 7 go to class 1, 8 to 15 to class 0, each further block of eight to the next class, class n to queue n, and a
routed port trusts the DSCP, a switched port the CoS: Arista user manual, "Quality of Service" (only from quotations).
Class 7 always goes to queue 7, which is the control plane's (Arista, "Support for tx-queue 7", 4.33). ``mtu`` is the
largest IP packet, 68 to 9214, without Ethernet's header (Arista user manual, "Support for Layer 3 MTU"), so
``ip_mtu_bytes`` is written unchanged; it applies on routed ports. The hash over equal paths uses addresses and ports
where nothing is configured, and then no line shows it (annetutil/annet, its Arista example).

From memory, not checked: PFC's priority is the traffic class's number; a queue is strict where no line sets it, and
weighted below a weighted one; max-mark-probability is 100 where it is left out; without a timeout no watchdog acts, and
none sooner than its polling interval; the hash includes the protocol with the ports; the words of ``port-channel
load-balance``; ``default`` removes the line that follows it (seen only for ``mtu``). On some chips the watchdog is said
to watch only queues with guaranteed bandwidth, which is not written here.

Thresholds are written in bytes, from 1 to 256,000,000. In lines that are read, kbytes and mbytes are powers of 1000.
Segments cannot be read, because their size depends on the chip. The watchdog's times are hundredths of a second up to
60 s, and it drops. The queues are Trident's and Tomahawk's ``uc-tx-queue``; Jericho's ``tx-queue`` is only read.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    ECMP_FIELDS,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.eos import (
    INPUT,
    OWN_MAP,
    PROFILE,
    ROUTED,
    EosConfiguration,
    settings_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.eos_settings import EosSettings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import (
    MTU,
    OWN_NAME,
    CliLine,
    mismatch_error,
    name_from_lines,
    numbers,
    wanted_classes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.interfaces import is_as_wanted, switch_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.eos_restoration import restoration

NOT_HELD = {
    "headroom": "EOS sizes the headroom of a lossless priority itself",
    "cable_m": "EOS's configuration has no setting for cable lengths",
}
SYSTEM = "eos"
LEAST_MTU_BYTES, MOST_MTU_BYTES = 68, 9214
MOST_THRESHOLD_BYTES = 256_000_000
WATCHDOG_STEP_MS, MOST_WATCHDOG_MS = 10, 60_000
FIXED = 7  # the class and the queue that are assigned to each other
PORT = re.compile(r"(Ethernet\d+(/\d+)*|Port-Channel\d+)")


def render(switch: Switch) -> str:
    """Return the lines of ``switch``, as the running configuration shows them. FabricError for what EOS cannot hold."""
    wanted = _WantedEos(switch)
    text = ["!", *wanted.maps()]
    for name, lines in wanted.profiles.items():
        text += ["!", f"qos profile {name}", *lines]
    for port, name in wanted.attached.items():
        text += ["!", f"interface {port}", f"   mtu {switch.ports[port].ip_mtu_bytes}", f"   service-profile {name}"]
    return "\n".join([*text, "!", ""])


def parse(text: str, name: str) -> Switch:
    """Parse all Ethernet ports and port channels of a running configuration. Raises FabricError if it is invalid."""
    return switch_of(EosConfiguration(text, name), name, SYSTEM)


def remediation(running: str, wanted: Switch) -> str:
    """Return the lines that change ``running`` to ``wanted``, indented as in a configuration; "" if nothing differs.

    A port whose settings already mean the same keeps them, under any name. Profiles come first, then the maps of the
    whole switch, then the ports, and last the removal of this project's profiles that nothing uses any more. Other
    lines are removed where they contradict the policy: settings of a wanted port, rewriting of DSCPs, a hash of fewer
    than all fields.
    """
    plan = _WantedEos(wanted)
    model = EosConfiguration(running, wanted.name)
    maps = _adopt(model, wanted, plan)
    settings = {name: _settings(name, lines) for name, lines in plan.profiles.items()}
    profiles: dict[str, list[str]] = {}
    ports: list[str] = []
    used = {port_settings.get(PROFILE) for port, port_settings in model.ports.items() if port not in wanted.ports}
    for port, name in plan.attached.items():
        if is_as_wanted(model, port, wanted.ports[port], NOT_HELD):
            used.add(model.ports[port].get(PROFILE))
            continue
        used.add(name)
        if name not in profiles:
            profiles[name] = _profile_changes(model, name, plan.profiles[name], settings[name])
        ports += _port_changes(model, port, name, settings[name], wanted.ports[port].ip_mtu_bytes)
    unused = [name for name in model.profiles if OWN_NAME.fullmatch(name) and name not in used]
    lines = [
        *(line for lines in profiles.values() for line in lines),
        *maps,
        *ports,
        *(f"no qos profile {name}" for name in unused),
    ]
    return "".join(f"{line}\n" for line in lines)


class _WantedEos:
    """The settings that a switch needs: each port's profile by name, the profiles' lines, and the maps of all ports."""

    def __init__(self, switch: Switch) -> None:
        if switch.ecmp_fields not in (None, ECMP_FIELDS):
            raise FabricError(
                "EOS has a different command for the hash's fields on each chip family, so none is written",
                "set all five in ecmp_fields, which is what EOS uses by default",
                subject=switch.name,
            )
        self.profiles: dict[str, list[str]] = {}
        self.attached: dict[str, str] = {}
        self.first = PortQos()  # the first port, whose maps all must have
        self.classes: list[int] = []
        names: dict[int, str] = {}  # by the identity of a PortQos, because most ports share it
        for port, qos in switch.ports.items():
            if not PORT.fullmatch(port):
                raise FabricError(
                    "not a valid port name on EOS",
                    "write it out, as in Ethernet1/1",
                    subject=f"{switch.name}: port {port}",
                )
            if id(qos) not in names:
                self._check(switch, port, qos)
                lines = _profile_lines(qos)
                names[id(qos)] = name_from_lines("roce", lines)
                self.profiles[names[id(qos)]] = lines
            self.attached[port] = names[id(qos)]

    def maps(self) -> list[str]:
        """Return the lines that map DSCPs to classes, and classes to queues."""
        queues = {number: self.first.class_to_queue[number] for number in self.classes if number != FIXED}
        return [
            *(self.dscp_line(_dscps_of(self.first, number), number) for number in self.classes),
            *(self.queue_line(number, queue) for number, queue in queues.items()),
        ]

    @staticmethod
    def dscp_line(dscps: list[int], traffic_class: int) -> str:
        """Return the line that gives ``dscps`` a class."""
        return f"qos map dscp {numbers(dscps, ' ')} to traffic-class {traffic_class}"

    @staticmethod
    def queue_line(traffic_class: int, queue: int | None) -> str:
        """Return the line that gives a class its queue."""
        return f"qos map traffic-class {traffic_class} to tx-queue {queue}"

    def _check(self, switch: Switch, port: str, qos: PortQos) -> None:
        subject = f"{switch.name}: port {port}"
        classes = wanted_classes(switch, port, qos)
        if not self.profiles:
            self.first, self.classes = qos, classes
        if qos.dscp_to_class != self.first.dscp_to_class:
            raise mismatch_error(switch, port, "map of DSCPs", "EOS has one for the switch")
        if qos.class_to_queue != self.first.class_to_queue:
            raise mismatch_error(switch, port, "map of classes to queues", "EOS has one for the switch")
        for traffic_class in classes:
            queue = qos.class_to_queue[traffic_class]
            if (traffic_class == FIXED) != (queue == FIXED):
                raise FabricError(
                    f"traffic class {traffic_class} needs queue {queue}, but EOS ties class 7 to queue 7",
                    "choose other numbers",
                    subject=subject,
                )
            priority = qos.class_to_priority[traffic_class]
            if priority != traffic_class:
                raise FabricError(
                    f"EOS pauses traffic class {traffic_class} as priority {traffic_class}, not {priority}",
                    "give class and priority the same number",
                    subject=subject,
                )
        _check_queues(subject, qos.queues)
        _check_watchdog(subject, qos.watchdog)
        if not LEAST_MTU_BYTES <= (qos.ip_mtu_bytes or 0) <= MOST_MTU_BYTES:
            raise FabricError(
                f"an MTU of {qos.ip_mtu_bytes} bytes is outside EOS's range of {LEAST_MTU_BYTES} to {MOST_MTU_BYTES}",
                f"set switch_mtu_bytes to {MOST_MTU_BYTES} or less",
                subject=subject,
            )


def _dscps_of(qos: PortQos, traffic_class: int) -> list[int]:
    return [dscp for dscp, number in enumerate(qos.dscp_to_class) if number == traffic_class]


def _check_queues(subject: str, queues: tuple[Queue | None, ...]) -> None:
    weighted = [number for number, queue in enumerate(queues) if queue and not queue.strict]
    for number, queue in enumerate(queues):
        if queue is None:
            continue
        if queue.strict and number < max(weighted, default=-1):
            raise FabricError(
                f"queue {number} is strict and below queue {max(weighted)}, which is weighted, so EOS weights both",
                "give the strict class a higher queue",
                subject=subject,
            )
        if not queue.strict and queue.bandwidth_percent is None:
            raise FabricError(
                f"queue {number} is weighted, but has no share", "give it bandwidth_percent", subject=subject
            )
        if queue.ecn and not 1 <= queue.ecn.minimum_bytes <= queue.ecn.maximum_bytes <= MOST_THRESHOLD_BYTES:
            raise FabricError(
                f"queue {number}'s ECN thresholds {queue.ecn.minimum_bytes} and {queue.ecn.maximum_bytes} are outside "
                f"1 to {MOST_THRESHOLD_BYTES} bytes",
                "set others in ecn",
                subject=subject,
            )


def _check_watchdog(subject: str, watchdog: Watchdog | None) -> None:
    if watchdog is None:
        return
    for time_ms in (watchdog.detection_ms, watchdog.restoration_ms):
        if time_ms % WATCHDOG_STEP_MS or not WATCHDOG_STEP_MS <= time_ms <= MOST_WATCHDOG_MS:
            raise FabricError(
                f"EOS's watchdog does not support a time of {time_ms} ms",
                f"set a multiple of {WATCHDOG_STEP_MS} up to {MOST_WATCHDOG_MS} in pfc_watchdog",
                subject=subject,
            )
    if watchdog.action != "drop":
        raise FabricError(
            f"EOS's watchdog cannot {watchdog.action} a stuck queue's packets", "set action to drop", subject=subject
        )


def _profile_lines(qos: PortQos) -> list[str]:
    """Return the lines of the profile of ports that are like ``qos``."""
    lines = ["   qos trust dscp"]
    if qos.pfc:
        lines.append("   priority-flow-control on")
        lines += [f"   priority-flow-control priority {priority} no-drop" for priority in qos.pfc]
    if qos.watchdog:
        lines += [
            "   priority-flow-control pause watchdog",
            f"   priority-flow-control pause watchdog port timer timeout {_seconds(qos.watchdog.detection_ms)}"
            f" polling-interval auto recovery-time {_seconds(qos.watchdog.restoration_ms)}",
            f"   priority-flow-control pause watchdog port action {qos.watchdog.action}",
        ]
    for number, queue in enumerate(qos.queues):
        if queue is None:
            continue
        lines += ["   !", f"   uc-tx-queue {number}"]
        if queue.strict:
            lines.append("      priority strict")
        else:
            lines += ["      no priority", f"      bandwidth percent {queue.bandwidth_percent}"]
        if queue.ecn:
            lines.append(
                f"      random-detect ecn minimum-threshold {queue.ecn.minimum_bytes} bytes"
                f" maximum-threshold {queue.ecn.maximum_bytes} bytes"
                f" max-mark-probability {queue.ecn.probability_percent} weight 0"
            )
    return lines


def _seconds(time_ms: int) -> str:
    """Return a time as pyavd's examples write it: "0.2", "60"."""
    return f"{time_ms / 1000:.2f}".rstrip("0").rstrip(".")


def _settings(name: str, lines: list[str]) -> EosSettings:
    return settings_of("\n".join([f"qos profile {name}", *lines]))


def _adopt(model: EosConfiguration, switch: Switch, plan: _WantedEos) -> list[str]:
    """Return the lines that bring the whole switch's settings to the wanted ones, and update ``model`` with them."""
    lines: list[str] = []
    if not plan.attached:
        return lines
    for traffic_class in plan.classes:
        wanted = _dscps_of(plan.first, traffic_class)
        changed = [dscp for dscp in wanted if model.dscp_map[dscp] != traffic_class or dscp in model.coloured]
        if changed:
            lines.append(plan.dscp_line(changed, traffic_class))
        for dscp in wanted:
            model.dscp_map[dscp] = traffic_class
    for traffic_class in plan.classes:
        queue = plan.first.class_to_queue[traffic_class]
        if model.queue_map[traffic_class] != queue and queue is not None:
            lines.append(plan.queue_line(traffic_class, queue))
            model.queue_map[traffic_class] = queue
    if model.rewrites_dscp:
        lines.append("no qos rewrite dscp")
        model.rewrites_dscp = False
    if model.pfc_off and any(qos.pfc for qos in switch.ports.values()):
        lines.append("no priority-flow-control all off")
        model.pfc_off = False
    for hashed in model.hashes.values() if switch.ecmp_fields else ():
        if hashed.fields != switch.ecmp_fields:
            lines.append(f"no {hashed.head}")
    return lines


def _profile_changes(model: EosConfiguration, name: str, lines: list[str], wanted: EosSettings) -> list[str]:
    """Return the lines that make profile ``name`` hold ``lines``: all, or the difference where the profile exists."""
    existing = model.profiles.get(name)
    if existing is None:
        return [f"qos profile {name}", *(line for line in lines if line.strip() != "!")]
    own_lines, queues = _removals(existing, wanted, changed=False)
    # A profile's own lines come before those of its queues. Lines are sent without indentation, so a line after a
    # queue's lines would belong to the queue.
    changes = [
        *own_lines,
        *(f"   {line.text}" for key, (value, line) in wanted.values.items() if existing.get(key) != value),
        *queues,
    ]
    for queue, settings in wanted.queues.items():
        existing_queue = existing.queues.get(queue, {})
        missing = [
            line.text
            for key, (value, line) in settings.items()
            if key not in existing_queue or existing_queue[key][0] != value
        ]
        if missing:
            changes += [f"   {wanted.heads[queue]}", *(f"      {text}" for text in missing)]
    return [f"qos profile {name}", *changes] if changes else []


def _port_changes(
    model: EosConfiguration, port: str, name: str, profile: EosSettings, mtu_bytes: int | None
) -> list[str]:
    """Return the lines that leave ``port`` with only the profile ``name``."""
    existing = model.ports.get(port)
    changes, queues = _removals(existing, profile, changed=True) if existing else ([], [])
    if existing is None or existing.get(MTU) != mtu_bytes:
        changes.append(f"   mtu {mtu_bytes}")
    if existing is None or existing.get(PROFILE) != name:
        changes.append(f"   service-profile {name}")
    changes += queues
    return [f"interface {port}", *changes] if changes else []


def _removals(existing: EosSettings, wanted: EosSettings, changed: bool) -> tuple[list[str], list[str]]:
    """Return the lines that remove what only ``existing`` sets; if ``changed``, also what it sets to another value.

    The lines of ``existing`` itself and those of its queues are returned separately.
    """

    def stays(key: str, value: object, wanted_values: dict[str, tuple[Any, CliLine]]) -> bool:
        return key in wanted_values and (not changed or wanted_values[key][0] == value)

    lines = []
    for key, (value, line) in existing.values.items():
        if key in (MTU, PROFILE, ROUTED) or stays(key, value, wanted.values):
            continue
        lines.append(f"   no {line.text}" if key in (INPUT, OWN_MAP) else f"   default {key}")
    queues = []
    for queue, settings in existing.queues.items():
        wanted_queue = wanted.queues.get(queue, {})
        removed = [key for key, (value, _line) in settings.items() if not stays(key, value, wanted_queue)]
        if removed:
            queues += [f"   {existing.heads[queue]}", *(f"      default {key}" for key in removed)]
    return lines, queues


EOS = SwitchSystem(
    name=SYSTEM,
    render=render,
    parse=parse,
    remediation=remediation,
    restoration=restoration,
    port=PORT,
    port_example="Ethernet1/1, or Port-Channel1",
    not_held=NOT_HELD,
    # From sonic-buildimage's device/arista: 7260X3, 7060X4, X5 and X6, 7050X3 and X4.
    asics=("tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4"),
    not_asics={
        "jericho2": "EOS has the queues of Jericho 2 as tx-queue, which are not rendered: only Trident's and "
        "Tomahawk's uc-tx-queue are",
    },
    sizes_headroom=True,  # EOS is given neither bytes nor cables
)
