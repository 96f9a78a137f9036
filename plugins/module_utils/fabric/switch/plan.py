# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute each switch's QoS from the policy and the inventory's switches.

This module makes all refusals, before anything is rendered: the switches and their links by ``read_switches``,
what their ASICs cannot do by ``plan``. Ports with the same ASIC, speed and cable share one PortQos.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Optional

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    BufferShares,
    Ecn,
    Headroom,
    Pools,
    PortQos,
    Queue,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.settings import Record
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS, Asic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asics import (
    ASICS_VARIABLE,
    MOST_BYTES,
    MOST_CABLE_M,
    find_asic,
    read_asics,
    read_speed,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS, SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.given import values

HOST, SWITCH = "host", "switch"
LONGEST_PORT_NAME = 64
LEAST_QUEUE_BUFFER_BYTES = 100_000  # ten packets: less is a number in kilobytes
Line = tuple[int, Optional[int]]  # speed in Gbit/s, cable in metres: ports of one switch with the same are alike


@dataclass(frozen=True)
class Peer:
    """The far end of a port's link. ``port``: as its owner calls it; of a host, the RDMA device ("mlx5_0")."""

    kind: str  # HOST or SWITCH
    name: str
    port: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}'s {self.port}"


@dataclass(frozen=True)
class PortSpec:
    """One port as given in the inventory."""

    speed_gbit_s: int
    cable_m: int | None
    peer: Peer | None


@dataclass(frozen=True)
class SwitchSpec:
    """One switch as given in the inventory. ``asic`` is None only where the system sends no pauses.

    ``own_headroom``: the user's xoff in bytes, by (speed, longest cable).
    ``queue_buffer_bytes``: the bytes that one queue can fill, for systems with thresholds in percent of it, else None.
    """

    name: str
    system: str
    asic: Asic | None
    ports: Mapping[str, PortSpec]
    own_headroom: Mapping[tuple[int, int], int]
    queue_buffer_bytes: int | None
    system_module: SwitchSystem

    @property
    def needs_headroom(self) -> bool:
        """Return true where headroom is planned: the system gets its bytes, or the cable to compute them from."""
        return not getattr(self.system_module, "SIZES_HEADROOM", False)

    @property
    def sizes_headroom(self) -> bool:
        """Return true where the system computes headroom itself; the planned value then only bounds ECN."""
        return "headroom" in self.system_module.NOT_HELD

    def held_cable_m(self, cable_m: int) -> int:
        """Return the length for which the system keeps headroom where a cable is so long."""
        held: Callable[[int], int] | None = getattr(self.system_module, "held_cable_m", None)
        return cable_m if held is None else held(cable_m)


def read_switches(
    switches: Mapping[str, Any],
    hosts: Mapping[str, Any] | None = None,
    asics: Any = None,
    systems: Mapping[str, SwitchSystem] | None = None,
) -> list[SwitchSpec]:
    """Return the inventory's switches, in its order, each checked alone and against the others.

    ``switches``: name -> system, asic, ports, headroom and queue_buffer_bytes, each as in roce_switch_system and so on.
    ``hosts``: name -> roce_host_nics of all hosts, None for a host without that variable; None as a whole: the hosts at
    the far ends are not checked. ``asics``: roce_asics. Raises FabricError for the first error.
    """
    if not isinstance(switches, Mapping) or not switches:
        raise FabricError("switches", "there are none", "put switches into the inventory's group roce_switches")
    known = read_asics(asics)
    specs = {
        name: _read_switch(name, data, known, SYSTEMS if systems is None else systems)
        for name, data in switches.items()
    }
    _check_links(specs)
    if hosts is not None:
        _check_hosts(specs, hosts)
    return list(specs.values())


def plan(policy: Policy, specs: list[SwitchSpec]) -> dict[str, Switch]:
    """Return each switch's wanted QoS, by name, in the order given.

    Raises FabricError for the first switch that cannot do what the policy asks.
    """
    shared: dict[Any, PortQos] = {}
    return {spec.name: _plan_switch(policy, spec, shared) for spec in specs}


def _read_switch(name: str, data: Any, asics: Mapping[str, Asic], systems: Mapping[str, SwitchSystem]) -> SwitchSpec:
    record = Record(f"switch {name}", data)
    record.only("system", "asic", "ports", "headroom", "queue_buffer_bytes")
    system = record.data.get("system")
    if not isinstance(system, str) or system not in systems:
        raise record.refuse(
            f"system {system!r} is unknown" if system is not None else "roce_switch_system is missing",
            f"there are {', '.join(sorted(systems))}",
        )
    asic = None
    if "asic" in record.data or "pfc" not in systems[system].NOT_HELD:
        asic = find_asic(asics, record.data.get("asic"), record.subject)
        _check_runs_on(record, system, systems[system], asic)
    given = Record(f"{record.subject}: ports", record.data.get("ports", {})).data
    if not given:
        raise record.refuse("no ports are given", "name each with its speed_gbit_s and cable_m in roce_switch_ports")
    ports: dict[str, PortSpec] = {}
    spelled: dict[str, str] = {}
    for port, port_data in given.items():
        _check_port_name(record.subject, port, systems[system])
        first = spelled.setdefault(port.casefold(), port)
        if first != port:
            raise record.refuse(f"port {port} is there twice, the other time as {first}", "keep one of them")
        ports[port] = _read_port(f"{record.subject}: port {port}", port_data)
    buffer = None
    if hasattr(systems[system], "attainable"):
        if "queue_buffer_bytes" not in record.data:
            raise record.refuse(
                "roce_switch_queue_buffer_bytes is missing, of which this system counts thresholds in percent",
                "give it",
            )
        buffer = record.number("queue_buffer_bytes", 0, LEAST_QUEUE_BUFFER_BYTES, MOST_BYTES)
    return SwitchSpec(name, system, asic, ports, _read_own(record), buffer, systems[system])


def _check_runs_on(record: Record, name: str, system: SwitchSystem, asic: Asic) -> None:
    """Refuse a table ASIC that no switch with this system has. A user's own ASIC is not checked."""
    runs_on = getattr(system, "ASICS", None)
    if runs_on is None or asic.name in runs_on or ASICS.get(asic.name) is not asic:
        return
    why = getattr(system, "NOT_ASICS", {}).get(asic.name, f"{name} runs on no switch with {asic.title}")
    known = f"there are {', '.join(runs_on)}; or give" if runs_on else "give"
    raise record.refuse(why, f"{known} the switch's own numbers and their source in {ASICS_VARIABLE}")


def _check_port_name(subject: str, port: Any, system: SwitchSystem) -> None:
    try:
        text = values.text(port, LONGEST_PORT_NAME)
    except values.InvalidValueError as error:
        raise FabricError(f"{subject}: port {port!r}", error.cause, error.remedy) from None
    form = getattr(system, "PORT", None)
    if form is not None and not form.fullmatch(text):
        raise FabricError(
            f"{subject}: port {port}", "the system has no port of such a name", f"write it as {system.PORT_EXAMPLE}"
        )


def _read_port(subject: str, data: Any) -> PortSpec:
    record = Record(subject, data)
    record.only("speed_gbit_s", "cable_m", "peer")
    record.need("speed_gbit_s")
    cable = record.number("cable_m", 1, 1, MOST_CABLE_M) if "cable_m" in record.data else None
    return PortSpec(read_speed(record), cable, _read_peer(record))


def _read_peer(record: Record) -> Peer | None:
    if "peer" not in record.data:
        return None
    peer = Record(f"{record.subject}: peer", record.data["peer"])
    peer.only(HOST, SWITCH, "port")
    if (HOST in peer.data) == (SWITCH in peer.data):
        raise peer.refuse("not one host or one switch", "write {switch: spine1, port: Ethernet0}")
    peer.need("port")
    kind = HOST if HOST in peer.data else SWITCH
    return Peer(kind, peer.text(kind, ""), peer.text("port", ""))


def _read_own(record: Record) -> dict[tuple[int, int], int]:
    rows = record.data.get("headroom", [])
    if not isinstance(rows, list):
        raise record.refuse(
            "headroom is not a list", "write rows of {speed_gbit_s: 400, cable_m: 40, headroom_bytes: 120000}"
        )
    own: dict[tuple[int, int], int] = {}
    for at, data in enumerate(rows, 1):
        row = Record(f"{record.subject}: headroom, row {at}", data)
        row.only("speed_gbit_s", "cable_m", "headroom_bytes")
        row.need("speed_gbit_s", "cable_m", "headroom_bytes")
        key = read_speed(row), row.number("cable_m", 0, 1, MOST_CABLE_M)
        if key in own:
            raise row.refuse(f"{key[0]} Gbit/s and {key[1]} m are there twice", "keep one of the rows")
        own[key] = row.number("headroom_bytes", 0, 1, MOST_BYTES)
    return own


def _check_links(specs: Mapping[str, SwitchSpec]) -> None:
    """Check that both ends of each link between switches agree."""
    for spec in specs.values():
        for name, port in spec.ports.items():
            peer = port.peer
            if peer is None or peer.kind != SWITCH:
                continue
            subject = f"switch {spec.name}: port {name}"
            other = specs.get(peer.name)
            if other is None:
                raise FabricError(
                    subject, f"its peer, switch {peer.name}, is not in the inventory", "add it, or correct the name"
                )
            far = other.ports.get(peer.port)
            if far is None:
                raise FabricError(
                    subject, f"its peer, switch {peer.name}, has no port {peer.port}", "add it, or correct the name"
                )
            if far.peer != Peer(SWITCH, spec.name, name) or (peer.name, peer.port) == (spec.name, name):
                raise FabricError(
                    subject,
                    f"it names {peer} as its peer, which names {far.peer or 'none'}",
                    "correct the one that is wrong",
                )
            for what, here, there in (
                ("speed_gbit_s", port.speed_gbit_s, far.speed_gbit_s),
                ("cable_m", port.cable_m, far.cable_m),
            ):
                if here != there:
                    raise FabricError(
                        subject,
                        f"its {what} is {here}, and {there} at the other end, {peer}",
                        "give both ends the same",
                    )


def _check_hosts(specs: Mapping[str, SwitchSpec], hosts: Mapping[str, Any]) -> None:
    """Check that each host at a port exists with that NIC, and that no NIC is at two ports."""
    taken: dict[Peer, str] = {}
    for spec in specs.values():
        for name, port in spec.ports.items():
            peer = port.peer
            if peer is None or peer.kind != HOST:
                continue
            subject = f"switch {spec.name}: port {name}"
            if peer.name in specs:
                raise FabricError(
                    subject,
                    f"its peer, host {peer.name}, is a switch",
                    f"write {{switch: {peer.name}, port: ...}}",
                )
            if peer.name not in hosts:
                raise FabricError(
                    subject, f"its peer, host {peer.name}, is not in the inventory", "add it, or correct the name"
                )
            taken_by = taken.setdefault(peer, subject)
            if taken_by != subject:
                raise FabricError(subject, f"{peer} is at {taken_by} too", "correct the one that is wrong")
            if hosts[peer.name] is None:
                continue
            nics = Record(f"host {peer.name}: roce_host_nics", hosts[peer.name]).data
            if peer.port not in nics:
                raise FabricError(
                    subject,
                    f"its peer, host {peer.name}, has no NIC {peer.port} in roce_host_nics",
                    f"there are {', '.join(sorted(nics))}" if nics else f"describe {peer.name}'s NICs there",
                )
            speed = Record(f"host {peer.name}: roce_host_nics: {peer.port}", nics[peer.port]).data.get("speed_gbit_s")
            if speed is not None and speed != port.speed_gbit_s:
                raise FabricError(
                    subject,
                    f"its speed_gbit_s is {port.speed_gbit_s}, and {speed} at the other end, {peer}",
                    "give both ends the same",
                )


def _plan_switch(policy: Policy, spec: SwitchSpec, shared: dict[Any, PortQos]) -> Switch:
    subject = f"switch {spec.name}"
    no_pfc = spec.system_module.NOT_HELD.get("pfc")
    if policy.lossless and no_pfc:
        raise FabricError(
            subject,
            f"the policy's class {policy.lossless[0].name} is lossless, and {spec.system} has no PFC: {no_pfc}",
            "make the class lossy (roce_policy: classes: mode), or take this switch out of roce_switches",
        )
    if spec.asic is not None:
        _check_asic(policy, spec.asic, subject)
    lines: dict[Line, str] = {}  # the first port of each
    for name, port in spec.ports.items():
        lines.setdefault((port.speed_gbit_s, port.cable_m), name)
    headrooms: dict[Line, Headroom] = {}
    pfc_bytes: Fraction | None = None  # the queue from which on a port may pause
    pools: Pools | None = None
    shares: BufferShares | None = None
    if policy.lossless and spec.asic is not None:
        check_cable: Callable[[str, int | None], None] | None = getattr(spec.system_module, "check_cable", None)
        if check_cable is not None:
            for (_speed, cable), name in lines.items():
                check_cable(f"{subject}: port {name}", cable)
        if spec.needs_headroom:
            headrooms = {
                line: _headroom(policy, spec, spec.asic, line, f"{subject}: port {name}")
                for line, name in lines.items()
            }
        need = _headroom_sum(policy, spec, headrooms)
        cut, shares = _shares(spec.system_module, spec.asic)
        free = thresholds.free_bytes(spec.asic, need, cut, subject)
        if headrooms and getattr(spec.system_module, "HAS_POOLS", False):
            pools = _pools(spec.asic, need, free)
        pfc_bytes = thresholds.pfc_queue_bytes(
            free,
            len(spec.ports),
            len(policy.classes) + 2,  # and CNP, and all other traffic
            _alpha_exponent(spec.asic, headrooms, subject),
        )
    made: dict[Line, PortQos] = {}
    for line, name in lines.items():
        ecns = _ecns(policy, line[0], pfc_bytes, f"{subject}: port {name}")
        headroom = headrooms.get(line)
        cable = line[1] if policy.lossless and spec.sizes_headroom else None
        key = ecns, headroom, cable, spec.system, spec.queue_buffer_bytes
        if key not in shared:
            qos = _port_qos(policy, ecns, headroom, cable)
            shared[key] = _attainable(spec, qos, pfc_bytes, f"{subject}: port {name}")
        made[line] = shared[key]
    ports = {name: made[port.speed_gbit_s, port.cable_m] for name, port in spec.ports.items()}
    return Switch(spec.name, spec.system, ports, policy.ecmp_fields, spec.queue_buffer_bytes, pools, shares)


def _headroom_sum(policy: Policy, spec: SwitchSpec, headrooms: Mapping[Line, Headroom]) -> thresholds.HeadroomSum:
    lossless = len(policy.lossless)
    each = [headrooms[port.speed_gbit_s, port.cable_m] for port in spec.ports.values()] if headrooms else []
    return thresholds.HeadroomSum(
        lossless * sum(one.reserved_bytes for one in each),
        lossless * sum(one.xoff_bytes for one in each),
        f"{lossless} lossless {'class' if lossless == 1 else 'classes'} on {len(spec.ports)} ports",
    )


def _shares(system: SwitchSystem, asic: Asic) -> tuple[BufferShares | None, BufferShares | None]:
    """Return the parts to plan with, None for the ASIC's pools; and those that the switch must have as it is."""
    default: BufferShares | None = getattr(system, "DEFAULT_SHARES", None)
    if default is None:
        return getattr(system, "BUFFER_SHARES", None), None
    if ASICS.get(asic.name) is asic:
        return default, default
    own = asic.shared_bytes, asic.headroom_pool_bytes
    return None, BufferShares(*(-(-100 * each // asic.buffer_bytes) for each in own))


def _pools(asic: Asic, need: thresholds.HeadroomSum, free: Fraction) -> Pools:
    if asic.headroom_pool_bytes:
        return Pools(asic.pool_bytes, asic.headroom_pool_bytes)
    return Pools(int(free), 0, asic.buffer_bytes - need.bytes)


def _alpha_exponent(asic: Asic, headrooms: Mapping[Line, Headroom], subject: str) -> int:
    if asic.alpha_exponent is not None:
        return asic.alpha_exponent
    rows = headrooms or asic.headroom
    if not rows:
        raise FabricError(
            subject,
            f"how much of the pool one priority of {asic.title} may use before it pauses is not known",
            f"give the exponent of alpha as alpha_exponent in {ASICS_VARIABLE}",
        )
    return min(row.alpha_exponent for row in rows.values())


def _attainable(spec: SwitchSpec, qos: PortQos, pfc_bytes: Fraction | None, subject: str) -> PortQos:
    """Return ``qos`` with the nearest thresholds that the system can hold."""
    attainable: Callable[[PortQos, int], PortQos] | None = getattr(spec.system_module, "attainable", None)
    if attainable is None or spec.queue_buffer_bytes is None:
        return qos
    held = attainable(qos, spec.queue_buffer_bytes)
    for at, queue in enumerate(held.queues):
        if queue is not None and queue.ecn is not None and pfc_bytes is not None:
            thresholds.check_ecn(queue.ecn, pfc_bytes, subject, f"in queue {at}, in percent of its buffer,")
    return held


def _check_asic(policy: Policy, asic: Asic, subject: str) -> None:
    lossless = [each.name for each in policy.lossless]
    if len(lossless) > asic.lossless_classes:
        raise FabricError(
            subject,
            f"the policy has {len(lossless)} lossless classes ({', '.join(lossless)}), and {asic.title}'s profiles are "
            f"for {asic.lossless_classes}",
            "make one of them lossy",
        )
    for name, each in policy.named:
        if each.queue >= asic.unicast_queues:
            raise FabricError(
                subject,
                f"class {name} is to go to queue {each.queue}, and {asic.title} has queues 0 to "
                f"{asic.unicast_queues - 1}",
                "give the class another queue",
            )


def _headroom(policy: Policy, spec: SwitchSpec, asic: Asic, line: Line, subject: str) -> Headroom:
    speed, cable = line
    if cable is None:
        raise FabricError(subject, "cable_m is missing, on which a lossless class's headroom depends", "give it")
    cable = spec.held_cable_m(cable)
    return thresholds.headroom_of(asic, speed, cable, policy.switch_ip_mtu_bytes, spec.own_headroom, subject)


def _ecns(policy: Policy, speed_gbit_s: int, pfc_bytes: Fraction | None, subject: str) -> tuple[Ecn, ...]:
    """Return the marking of each RDMA class, in the policy's order; where the switch pauses, before it does."""
    for each in policy.classes:
        least = thresholds.least_ecn(policy.switch_ip_mtu_bytes)
        if each.ecn is not None and each.ecn.maximum_bytes < least:
            raise FabricError(
                subject,
                f"class {each.name}: ecn's maximum_bytes {each.ecn.maximum_bytes} is less than one packet, of "
                f"{thresholds.frame_bytes(policy.switch_ip_mtu_bytes)} bytes, so all would be marked",
                f"give {least} or more, or leave ecn out: then it is compiled",
            )
    reference = thresholds.reference_ecn(speed_gbit_s, policy.switch_ip_mtu_bytes)
    if pfc_bytes is None:
        return tuple(each.ecn or reference for each in policy.classes)
    found = []
    for each in policy.classes:
        if each.ecn is None:
            found.append(thresholds.bounded_ecn(reference, pfc_bytes, policy.switch_ip_mtu_bytes, subject))
        else:
            thresholds.check_ecn(each.ecn, pfc_bytes, subject, each.name)
            found.append(each.ecn)
    return tuple(found)


def _port_qos(policy: Policy, ecns: tuple[Ecn, ...], headroom: Headroom | None, cable_m: int | None) -> PortQos:
    def by(key: str, value: str) -> tuple[int | None, ...]:
        table = {getattr(each, key): getattr(each, value) for each in policy.all_classes}
        return tuple(table.get(at) for at in range(CLASSES))

    queues: list[Queue | None] = [None] * CLASSES
    for each, ecn in zip(policy.classes, ecns):
        queues[each.queue] = Queue(False, each.bandwidth_percent, ecn)
    queues[policy.cnp.queue] = Queue(True)
    queues[policy.default.queue] = Queue(False, policy.default.bandwidth_percent)
    lossless = tuple(sorted(each.priority for each in policy.lossless))
    return PortQos(
        dscp_to_class=policy.dscp_to_class(),
        class_to_queue=by("traffic_class", "queue"),
        class_to_priority=by("traffic_class", "priority"),
        priority_to_queue=by("priority", "queue"),
        queues=tuple(queues),
        pfc=lossless,
        headroom=tuple(headroom if at in lossless else None for at in range(CLASSES)),
        watchdog=policy.watchdog,
        ip_mtu_bytes=policy.switch_ip_mtu_bytes,
        cable_m=cable_m,
    )
