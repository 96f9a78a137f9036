# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cisco NX-OS on Nexus 9000: class maps and policy maps of its three types, attached to the system and to ports.

Structure: a policy of type qos on a port puts DSCPs in qos-groups. The queuing policy of qos-group n is for queue n
(c-out-8q-qn, 0 is c-out-8q-q-default), which no line can change. The network-qos policy, one for the switch, defines
which qos-groups are never dropped (c-8q-nqn) and as which priorities they pause. A port obeys it where its PFC mode is
on.

Sources. Lines: Cisco Nexus 9000 NX-OS QoS configuration guide 10.5 ("Configuring Priority Flow Control"), Microsoft's
Azure Local reference for Nexus 9000, Cisco's own roce_enable.py for NX-OS. ``mtu`` does not include Ethernet's header
and FCS (Cisco Live BRKDCN-1100), so ``ip_mtu_bytes`` is written unchanged; it is 576 to 9216, also in a network-qos
class (CiscoDevNet/terraform-provider-nxos, ipqosSetMTU), whose headroom is made for it. The watchdog's interval is 100
to 1000 ms (Cisco NDFC, PFC_WATCH_INT). It acts after the interval times a shutdown multiplier of 1 to 10, 1000 ms at
most (Cisco Intersight, fabric.PfcWatchDog), and ends after the interval times the restore multiplier; in between,
packets are dropped. ``ip load-sharing``: Cisco Nexus 9000 NX-OS interfaces configuration guide 10.3. ``pause`` with
``receive`` is "receive only mode" (terraform-provider-nxos, ipqosPause).

From memory, not checked: the words of ``match precedence``, ``match protocol`` and ``port-channel load-balance``, and
``priority-flow-control override-interface``; how the watchdog's interval and restore multiplier are spelled; the
multipliers' defaults 1 and 10 and the restore multiplier's range of 1 to 100; that thresholds may be written in bytes
and that a kbyte is 1000 bytes; that the hash uses both addresses and ports where nothing is configured, and the
protocol with the ports; that a watchdog acts on a port only where it is also on there; default-8q-nq-policy's name;
that a service policy of the system replaces the one before it; and that the MTU of a network-qos class limits no packet
where the class never pauses. A switched port accepts only an MTU of 1500 or the system's jumbo MTU. This is not
checked, because nothing here shows which ports are switched.

Thresholds are written in kbytes where both are whole kbytes, as in all sources, else in bytes, so that any number is
exact. Thresholds in packets cannot be read.
"""

from __future__ import annotations

import re
from collections import Counter

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    ECMP_FIELDS,
    Ecn,
    PortQos,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.nxos import (
    INPUT,
    INTERVAL,
    LOAD_SHARING,
    NETWORK,
    OUTPUT,
    PFC_MODE,
    RESTORE,
    SHUTDOWN,
    WATCHDOG,
    NxosConfiguration,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import (
    MTU,
    CliSettings,
    mismatch_error,
    name_from_lines,
    wanted_classes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.interfaces import is_as_wanted, switch_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.nxos_change import (
    NOT_HELD,
    Tree,
    kind_and_name,
    leftovers,
    lines_of,
    object_changes,
    port_changes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.nxos_restoration import restoration

SYSTEM = "nxos"
MOST_CABLE_M = 100
LEAST_MTU_BYTES, MOST_MTU_BYTES = 576, 9216
LEAST_INTERVAL_MS, MOST_DETECTION_MS = 100, 1000
MOST_RESTORE = 100  # the shutdown multiplier cannot exceed NX-OS's maximum, 10: 1000 ms / 100 ms
NO_PAUSE = "default-8q-nq-policy"  # the system's own: nothing is paused
PORT = re.compile(r"(Ethernet\d+(/\d+)+|port-channel\d+)")


def check_cable(subject: str, cable_m: int | None) -> None:
    """Raise FabricError for ``subject`` where a lossless port's cable needs more headroom than NX-OS reserves itself.

    Beyond 100 m, Cisco requires `pause buffer-size BYTES pause-threshold BYTES resume-threshold BYTES` in an input
    queuing policy (guide 10.5, "Guidelines and Limitations for Priority Flow Control"). Their limits depend on the
    chip, and Cisco publishes them for none.
    """
    if cable_m is None:
        raise FabricError(
            f"cable_m is missing, and NX-OS keeps headroom for {MOST_CABLE_M} m of cable", "set it", subject=subject
        )
    if cable_m > MOST_CABLE_M:
        raise FabricError(
            f"a cable of {cable_m} m needs `pause buffer-size` and its thresholds, which NX-OS requires beyond "
            f"{MOST_CABLE_M} m and for which Cisco publishes no numbers",
            f"take a cable of {MOST_CABLE_M} m or less, or make the classes lossy",
            subject=subject,
        )


def render(switch: Switch) -> str:
    """Return the lines of ``switch``, as a running configuration shows them. FabricError for what NX-OS cannot hold."""
    wanted = _WantedNxos(switch)
    lines = ["!", *wanted.watchdog_lines(), *([LOAD_SHARING] if switch.ecmp_fields else [])]
    lines += lines_of({**wanted.class_maps, **wanted.policy_maps})
    if switch.ports:
        lines += ["system qos", *(f"  {key} {name}" for key, name in wanted.system.items())]
    for port, settings in wanted.ports.items():
        lines += ["!", f"interface {port}", *(f"  {key} {value}" for key, value in settings.items())]
    return "\n".join([*lines, "!", ""])


def parse(text: str, name: str) -> Switch:
    """Parse all Ethernet ports and port channels of a running configuration. Raises FabricError if it is invalid."""
    return switch_of(NxosConfiguration(text, name), name, SYSTEM)


def remediation(running: str, wanted: Switch) -> str:
    """Return the lines that change ``running`` to ``wanted``, indented as in a configuration; "" if nothing differs.

    If every port's settings already mean the same, under any names, only this project's unused objects are removed.
    Else the watchdog comes first (a port has a line of the same words, and lines are sent without indentation), then
    new objects, then the system's policies, then the ports, where each policy is detached before another is attached.
    Last, this project's objects that nothing uses any more are removed: NX-OS keeps objects that are in use.
    """
    return "".join(
        f"{line}\n" for line in _remedy(_WantedNxos(wanted), NxosConfiguration(running, wanted.name), wanted)
    )


def _remedy(plan: _WantedNxos, model: NxosConfiguration, wanted: Switch) -> list[str]:
    lines: list[str] = []
    if wanted.ecmp_fields and model.ecmp_fields != ECMP_FIELDS:
        lines.append(LOAD_SHARING)
    if all(is_as_wanted(model, port, qos, NOT_HELD) for port, qos in wanted.ports.items()):
        places = [model.system, *model.ports.values()]
        return lines + leftovers(model, set().union(*(model.names_of(place) for place in places)))
    lines += [line for line in plan.watchdog_lines() if line not in _watchdog_lines(model.watchdog_on, model.watchdog)]
    for head, tree in {**plan.class_maps, **plan.policy_maps}.items():
        lines += object_changes(model, head, tree)
    system = [f"  {key} {name}" for key, name in plan.system.items() if model.system.get(key) != name]
    lines += ["system qos", *system] if system else []
    for port, settings in plan.ports.items():
        changes = port_changes(model.ports.get(port, CliSettings()), settings)
        lines += [f"interface {port}", *changes] if changes else []
    unplanned = [settings for port, settings in model.ports.items() if port not in wanted.ports]
    used = {kind_and_name(head) for head in (*plan.policy_maps, *plan.class_maps)}
    return lines + leftovers(model, used.union(*(model.names_of(settings) for settings in unplanned)))


class _WantedNxos:
    """The settings that a switch needs: its objects by their first line, and what the system and each port attach."""

    def __init__(self, switch: Switch) -> None:
        if switch.ecmp_fields not in (None, ECMP_FIELDS):
            raise FabricError(
                f"NX-OS's hash cannot use only {', '.join(switch.ecmp_fields or ())}",
                "set all five in ecmp_fields",
                subject=switch.name,
            )
        self.class_maps: dict[str, Tree] = {}
        self.policy_maps: dict[str, Tree] = {}
        self.system: dict[str, str] = {}
        self.ports: dict[str, dict[str, str]] = {}
        self._watchdog: dict[str, int] = {}
        lossless = self._lossless(switch)
        names: dict[PortQos, tuple[str, str]] = {}
        for port, qos in switch.ports.items():
            if qos not in names:
                self._check(switch, port, qos, lossless)
                names[qos] = (self._input(qos), self._output(switch, port, qos))
            self.ports[port] = {INPUT: names[qos][0]}
        outputs = Counter(names[qos][1] for qos in switch.ports.values())
        if outputs:
            self.system = {OUTPUT: outputs.most_common(1)[0][0], NETWORK: self._network(switch, lossless)}
        for port, qos in switch.ports.items():
            settings = self.ports[port]
            if names[qos][1] != self.system[OUTPUT]:
                settings[OUTPUT] = names[qos][1]
            settings[MTU] = str(qos.ip_mtu_bytes)
            settings[PFC_MODE] = "on" if qos.pfc else "off"
            if qos.watchdog:
                settings[WATCHDOG] = "on"

    def watchdog_lines(self) -> list[str]:
        """Return the lines of the switch's watchdog, none where no port is to have one."""
        return _watchdog_lines(True, self._watchdog) if self._watchdog else []

    def _lossless(self, switch: Switch) -> dict[int, int]:
        """Return the priority of each class that pauses: the same on all ports that do."""
        priorities: dict[int, int] | None = None
        for port, qos in switch.ports.items():
            if not qos.pfc:
                continue
            port_priorities = {
                traffic_class: priority
                for traffic_class, priority in enumerate(qos.class_to_priority)
                if priority is not None and priority in qos.pfc
            }
            if priorities not in (None, port_priorities):
                raise mismatch_error(switch, port, "set of paused classes", "NX-OS has one for the switch")
            priorities = port_priorities
        return priorities or {}

    def _check(self, switch: Switch, port: str, qos: PortQos, lossless: dict[int, int]) -> None:
        subject = f"{switch.name}: port {port}"
        if not PORT.fullmatch(port):
            raise FabricError("not a valid port name on NX-OS", "write it out, as in Ethernet1/1", subject=subject)
        for traffic_class in wanted_classes(switch, port, qos):
            queue, priority = qos.class_to_queue[traffic_class], qos.class_to_priority[traffic_class]
            if queue != traffic_class:
                raise FabricError(
                    f"NX-OS sends traffic class {traffic_class} to queue {traffic_class}, not {queue}",
                    "give class and queue the same number",
                    subject=subject,
                )
            if priority != lossless.get(traffic_class, traffic_class):
                raise FabricError(
                    f"traffic class {traffic_class} never pauses, so NX-OS has no priority {priority} for it",
                    "give class and priority the same number",
                    subject=subject,
                )
        if not LEAST_MTU_BYTES <= (qos.ip_mtu_bytes or 0) <= MOST_MTU_BYTES:
            raise FabricError(
                f"an MTU of {qos.ip_mtu_bytes} bytes is outside NX-OS's range of {LEAST_MTU_BYTES} to {MOST_MTU_BYTES}",
                "set another switch_mtu_bytes",
                subject=subject,
            )
        if qos.watchdog:
            watchdog = _multipliers(subject, qos.watchdog)
            if self._watchdog not in ({}, watchdog):
                raise mismatch_error(switch, port, "watchdog", "NX-OS has one for the switch")
            self._watchdog = watchdog

    def _input(self, qos: PortQos) -> str:
        """Return the name of the policy that puts DSCPs in qos-groups. class-default has the group with most DSCPs."""
        members: dict[int, list[int]] = {}
        for dscp, group in enumerate(qos.dscp_to_class):
            members.setdefault(group or 0, []).append(dscp)
        default = max(members, key=lambda group: (len(members[group]), -group))
        policy: Tree = {}
        for group in sorted(members):
            if group != default:
                match = f"match dscp {format_ranges(members[group])}"
                name = name_from_lines(f"tc{group}", [match])
                self.class_maps[f"class-map type qos match-any {name}"] = {match: {}}
                policy[f"class {name}"] = {f"set qos-group {group}": {}}
        policy["class class-default"] = {f"set qos-group {default}": {}}
        return self._add("qos", "in", policy)

    def _output(self, switch: Switch, port: str, qos: PortQos) -> str:
        """Return the name of the policy that serves the queues. It names every queue: an unnamed one has no share."""
        policy: Tree = {}
        level = 0
        for number in reversed(range(CLASSES)):
            queue = qos.queues[number]
            lines = ["bandwidth remaining percent 0"]
            if queue and queue.strict:
                level += 1
                lines = [f"priority level {level}"]
            elif queue:
                if queue.bandwidth_percent is None:
                    raise FabricError(
                        f"queue {number} is weighted, but has no share",
                        "give it bandwidth_percent",
                        subject=f"{switch.name}: port {port}",
                    )
                lines = [f"bandwidth remaining percent {queue.bandwidth_percent}"]
            if queue and queue.ecn:
                lines.append(_ecn_line(queue.ecn))
            policy[f"class type queuing c-out-8q-q{number or '-default'}"] = {line: {} for line in lines}
        return self._add("queuing", "out", policy)

    def _network(self, switch: Switch, lossless: dict[int, int]) -> str:
        """Return the name of the policy that defines which classes are never dropped."""
        if not lossless:
            return NO_PAUSE
        mtu = max(qos.ip_mtu_bytes or 0 for qos in switch.ports.values() if qos.pfc)
        policy: Tree = {
            f"class type network-qos c-8q-nq{traffic_class or '-default'}": {
                f"mtu {mtu}": {},
                f"pause pfc-cos {priority}": {},
            }
            for traffic_class, priority in sorted(lossless.items())
        }
        return self._add("network-qos", "nq", policy)

    def _add(self, kind: str, short: str, policy: Tree) -> str:
        name = name_from_lines(short, lines_of(policy))
        self.policy_maps[f"policy-map type {kind} {name}"] = policy
        return name


def _ecn_line(ecn: Ecn) -> str:
    minimum, maximum, unit = ecn.minimum_bytes, ecn.maximum_bytes, "bytes"
    if minimum % 1000 == maximum % 1000 == 0:
        minimum, maximum, unit = minimum // 1000, maximum // 1000, "kbytes"
    return (
        f"random-detect minimum-threshold {minimum} {unit} maximum-threshold {maximum} {unit}"
        f" drop-probability {ecn.probability_percent} weight 0 ecn"
    )


def _multipliers(subject: str, watchdog: Watchdog) -> dict[str, int]:
    """Return the interval and the multipliers of these times, with the longest possible interval."""
    if watchdog.action != "drop":
        raise FabricError(
            f"NX-OS's watchdog cannot {watchdog.action} a stuck queue's packets", "set action to drop", subject=subject
        )
    detection_ms, restoration_ms = watchdog.detection_ms, watchdog.restoration_ms
    if detection_ms <= MOST_DETECTION_MS:
        for interval_ms in range(detection_ms, LEAST_INTERVAL_MS - 1, -1):
            shutdown, restore = detection_ms // interval_ms, restoration_ms // interval_ms
            exact = (shutdown * interval_ms, restore * interval_ms) == (detection_ms, restoration_ms)
            if exact and 1 <= restore <= MOST_RESTORE:
                return {INTERVAL: interval_ms, SHUTDOWN: shutdown, RESTORE: restore}
    raise FabricError(
        f"NX-OS's watchdog cannot act after {detection_ms} ms and end after {restoration_ms} ms",
        f"give pfc_watchdog multiples of one interval of {LEAST_INTERVAL_MS} ms or more, detection_ms up to"
        f" {MOST_DETECTION_MS} and restoration_ms up to {MOST_RESTORE} intervals",
        subject=subject,
    )


def _watchdog_lines(on: bool, settings: dict[str, int]) -> list[str]:
    return [f"{WATCHDOG} {'on' if on else 'off'}", *(f"{key} {number}" for key, number in settings.items())]


NXOS = SwitchSystem(
    name=SYSTEM,
    render=render,
    parse=parse,
    remediation=remediation,
    restoration=restoration,
    port=PORT,
    port_example="Ethernet1/1, or port-channel1",
    not_held=NOT_HELD,
    asics=(),  # Cisco publishes no numbers for the ASICs of Nexus 9000
    sizes_headroom=True,  # NX-OS is given neither bytes nor cables
    check_cable=check_cable,
)
