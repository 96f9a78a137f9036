# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute each switch's QoS from the policy and the inventory's switches.

``plan`` refuses everything that an ASIC or a system cannot do, before anything is rendered. Ports with the same ASIC,
speed and cable share one PortQos.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS, Asic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asics import ASICS_VARIABLE
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import SwitchSpec

Line = tuple[int, Optional[int]]  # speed in Gbit/s, cable in metres: ports of one switch with the same are alike


def plan(policy: Policy, specs: list[SwitchSpec]) -> dict[str, Switch]:
    """Return each switch's wanted QoS, by name, in the order given.

    Raises FabricError for the first switch that cannot do what the policy requests.
    """
    shared: dict[Any, PortQos] = {}
    return {spec.name: _plan_switch(policy, spec, shared) for spec in specs}


def _plan_switch(policy: Policy, spec: SwitchSpec, shared: dict[Any, PortQos]) -> Switch:
    subject = f"switch {spec.name}"
    no_pfc = spec.system.not_held.get("pfc")
    if policy.lossless and no_pfc:
        raise FabricError(
            subject,
            f"the policy's class {policy.lossless[0].name} is lossless, but {spec.system.name} has no PFC: {no_pfc}",
            "make the class lossy (roce_policy: classes: mode), or take this switch out of roce_switches",
        )
    if spec.asic is not None:
        _check_asic(policy, spec.asic, subject)
    lines: dict[Line, str] = {}  # each line's first port
    for name, port in spec.ports.items():
        lines.setdefault((port.speed_gbit_s, port.cable_m), name)
    headrooms: dict[Line, Headroom] = {}
    pfc_bytes: Fraction | None = None  # the queue length at which a port may begin to pause
    pools: Pools | None = None
    shares: BufferShares | None = None
    if policy.lossless and spec.asic is not None:
        for (_speed, cable), name in lines.items():
            spec.system.check_cable(f"{subject}: port {name}", cable)
        if spec.needs_headroom:
            headrooms = {
                line: _headroom(policy, spec, spec.asic, line, f"{subject}: port {name}")
                for line, name in lines.items()
            }
        need = _headroom_sum(policy, spec, headrooms)
        cut, shares = _shares(spec.system, spec.asic)
        free = thresholds.free_bytes(spec.asic, need, cut, subject)
        if headrooms and spec.system.has_pools:
            pools = _pools(spec.asic, need, free)
        pfc_bytes = thresholds.pfc_queue_bytes(
            free,
            len(spec.ports),
            len(policy.classes) + 2,  # plus CNP, and all other traffic
            _alpha_exponent(spec.asic, headrooms, subject),
        )
    made: dict[Line, PortQos] = {}
    for line, name in lines.items():
        ecns = _ecns(policy, line[0], pfc_bytes, f"{subject}: port {name}")
        headroom = headrooms.get(line)
        cable = line[1] if policy.lossless and spec.sizes_headroom else None
        key = ecns, headroom, cable, spec.system.name, spec.queue_buffer_bytes
        if key not in shared:
            qos = _port_qos(policy, ecns, headroom, cable)
            shared[key] = _attainable(spec, qos, pfc_bytes, f"{subject}: port {name}")
        made[line] = shared[key]
    ports = {name: made[port.speed_gbit_s, port.cable_m] for name, port in spec.ports.items()}
    return Switch(spec.name, spec.system.name, ports, policy.ecmp_fields, spec.queue_buffer_bytes, pools, shares)


def _headroom_sum(policy: Policy, spec: SwitchSpec, headrooms: Mapping[Line, Headroom]) -> thresholds.HeadroomSum:
    lossless = len(policy.lossless)
    each = [headrooms[port.speed_gbit_s, port.cable_m] for port in spec.ports.values()] if headrooms else []
    return thresholds.HeadroomSum(
        lossless * sum(one.reserved_bytes for one in each),
        lossless * sum(one.xoff_bytes for one in each),
        f"{lossless} lossless {'class' if lossless == 1 else 'classes'} on {len(spec.ports)} ports",
    )


def _shares(system: SwitchSystem, asic: Asic) -> tuple[BufferShares | None, BufferShares | None]:
    """Return the parts to plan with (None: the ASIC's pools), and the parts that the switch must already have."""
    default = system.default_shares
    if default is None:
        return system.buffer_shares, None
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
            f"it is not known how much of the pool one priority of {asic.title} may use before it pauses",
            f"give the exponent of alpha as alpha_exponent in {ASICS_VARIABLE}",
        )
    return min(row.alpha_exponent for row in rows.values())


def _attainable(spec: SwitchSpec, qos: PortQos, pfc_bytes: Fraction | None, subject: str) -> PortQos:
    """Return ``qos`` with the nearest thresholds that the system can hold."""
    if spec.system.attainable is None or spec.queue_buffer_bytes is None:
        return qos
    held = spec.system.attainable(qos, spec.queue_buffer_bytes)
    for at, queue in enumerate(held.queues):
        if queue is not None and queue.ecn is not None and pfc_bytes is not None:
            thresholds.check_ecn(queue.ecn, pfc_bytes, subject, f"in queue {at}, in percent of its buffer,")
    return held


def _check_asic(policy: Policy, asic: Asic, subject: str) -> None:
    lossless = [each.name for each in policy.lossless]
    if len(lossless) > asic.lossless_classes:
        raise FabricError(
            subject,
            f"the policy has {len(lossless)} lossless classes ({', '.join(lossless)}), but {asic.title}'s profiles are "
            f"for {asic.lossless_classes}",
            "make one of them lossy",
        )
    for name, each in policy.named:
        if each.queue >= asic.unicast_queues:
            raise FabricError(
                subject,
                f"class {name} is assigned to queue {each.queue}, but {asic.title} has queues 0 to "
                f"{asic.unicast_queues - 1}",
                "give the class another queue",
            )


def _headroom(policy: Policy, spec: SwitchSpec, asic: Asic, line: Line, subject: str) -> Headroom:
    speed, cable = line
    if cable is None:
        raise FabricError(subject, "cable_m is missing, but a lossless class's headroom depends on it", "set it")
    cable = spec.held_cable_m(cable)
    return thresholds.headroom_of(asic, speed, cable, policy.switch_ip_mtu_bytes, spec.own_headroom, subject)


def _ecns(policy: Policy, speed_gbit_s: int, pfc_bytes: Fraction | None, subject: str) -> tuple[Ecn, ...]:
    """Return the marking of each RDMA class, in the policy's order. Where the switch pauses, it marks earlier."""
    for each in policy.classes:
        least = thresholds.least_ecn(policy.switch_ip_mtu_bytes)
        if each.ecn is not None and each.ecn.maximum_bytes < least:
            raise FabricError(
                subject,
                f"class {each.name}: ecn's maximum_bytes {each.ecn.maximum_bytes} is less than one packet, of "
                f"{thresholds.frame_bytes(policy.switch_ip_mtu_bytes)} bytes, so all would be marked",
                f"give {least} or more, or omit ecn, which is then compiled",
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
