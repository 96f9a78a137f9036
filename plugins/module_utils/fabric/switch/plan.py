# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute each switch's QoS from the policy and the inventory's switches.

``plan`` refuses everything that an ASIC or a system cannot do, before anything is rendered. Ports with the same ASIC,
speed and cable share one PortQos.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Optional

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    Buffers,
    BufferShares,
    Ecn,
    Headroom,
    PortQos,
    Queue,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS, REVISION, Asic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asics import ASICS_VARIABLE, with_buffers
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import SwitchSpec

SpeedAndCable = tuple[
    int, Optional[int]
]  # speed in Gbit/s, cable in metres: ports of one switch with the same are alike


def plan(policy: Policy, specs: list[SwitchSpec], buffers: Mapping[str, Buffers] | None = None) -> dict[str, Switch]:
    """Return each switch's wanted QoS, by name, in the order given.

    ``buffers``: those of the switches that were read; the others are planned with the table's.
    Raises FabricError for the first switch that cannot do what the policy requests.
    """
    planned, refused = plan_possible(policy, specs, buffers or {})
    for error in refused.values():
        raise error
    return planned


def plan_possible(
    policy: Policy, specs: list[SwitchSpec], buffers: Mapping[str, Buffers]
) -> tuple[dict[str, Switch], dict[str, FabricError]]:
    """Return the plan of each switch that can do what the policy requests, as ``plan``, and why the others cannot."""
    shared: dict[Any, PortQos] = {}
    planned: dict[str, Switch] = {}
    refused: dict[str, FabricError] = {}
    for spec in specs:
        try:
            planned[spec.name] = _plan_switch(policy, spec, buffers.get(spec.name), shared)
        except FabricError as error:
            refused[spec.name] = error
    return planned, refused


def _idle_link_remarks(wanted: Mapping[str, Switch]) -> list[str]:
    """Return a line for each speed and threshold of ECN that can leave links idle, with the switches."""
    names: dict[tuple[int, int], set[str]] = {}
    for switch in wanted.values():
        # Hashing a PortQos for each port would cost more than the plan.
        distinct = {(int(switch.speeds_gbit_s[port]), id(qos)): qos for port, qos in switch.ports.items()}
        for (speed, _id), qos in distinct.items():
            for queue in qos.queues:
                if queue and queue.ecn and queue.ecn.minimum_bytes < thresholds.busy_link_bytes(speed):
                    names.setdefault((speed, queue.ecn.minimum_bytes), set()).add(switch.name)
    return [
        f"ECN begins at {minimum} bytes at {speed} Gbit/s, below bandwidth x round trip / 7 "
        f"({thresholds.busy_link_bytes(speed)}), so a link with few flows can be idle: {fold(switches)}"
        for (speed, minimum), switches in sorted(names.items())
    ]


def remarks(wanted: Mapping[str, Switch]) -> list[str]:
    """Return what a user should know of a plan, a line each: default buffers that are assumed, links that can idle."""
    names: dict[BufferShares, set[str]] = {}
    for switch in wanted.values():
        if switch.shares is not None and switch.shares.default_of:
            names.setdefault(switch.shares, set()).add(switch.name)
    assumed = [
        f"The default buffer of a {shares.default_of} is assumed ({shares.lossless_percent}% lossless, "
        f"{shares.headroom_percent}% headroom of {shares.divided_percent}% of the chip): {fold(switches)}"
        for shares, switches in sorted(names.items(), key=lambda entry: entry[0].default_of)
    ]
    return assumed + _idle_link_remarks(wanted)


def table_remarks(specs: list[SwitchSpec], buffers: Mapping[str, Buffers]) -> list[str]:
    """Return a line for each way in which buffers that were read differ from the table's row, with the switches."""
    names: dict[str, set[str]] = {}
    for spec in specs:
        asic, buffers_read = spec.asic, buffers.get(spec.name)
        if asic is None or buffers_read is None or ASICS.get(asic.name) is not asic:
            continue
        for text in _unlike_table(asic, buffers_read):
            names.setdefault(f"{text} of {asic.title} ({REVISION}, {asic.source.split(':')[0]})", set()).add(spec.name)
    return [
        f"differs from the vendor's file, and is planned as it is: {text}: {fold(sorted(names[text]))}"
        for text in names
    ]


def _unlike_table(asic: Asic, buffers_read: Buffers) -> Iterator[str]:
    if buffers_read.lossless_bytes is not None and buffers_read.lossless_bytes != asic.shared_bytes:
        yield f"lossless pool {buffers_read.lossless_bytes}, {asic.shared_bytes} in that"
    if buffers_read.lossless_bytes is not None and buffers_read.headroom_pool_bytes != asic.headroom_pool_bytes:
        yield f"headroom pool {buffers_read.headroom_pool_bytes}, {asic.headroom_pool_bytes} in that"
    if asic.formula is None:
        for (speed, cable), row in buffers_read.headroom.items():
            table_row = asic.headroom.get((speed, cable))
            if table_row is not None and row.xoff_bytes != table_row.xoff_bytes:
                yield f"xoff {row.xoff_bytes} at {speed} Gbit/s and {cable} m, {table_row.xoff_bytes} in that"


def _plan_switch(policy: Policy, spec: SwitchSpec, buffers: Buffers | None, shared: dict[Any, PortQos]) -> Switch:
    subject = f"switch {spec.name}"
    no_pfc = spec.system.not_held.get("pfc")
    if policy.lossless and no_pfc:
        raise FabricError(
            f"the policy's class {policy.lossless[0].name} is lossless, but {spec.system.name} has no PFC: {no_pfc}",
            "make the class lossy (roce_policy: classes: mode), or take this switch out of roce_switches",
            subject=subject,
        )
    asic = spec.asic
    if asic is not None:
        _check_asic(policy, asic, subject)
    lines: dict[SpeedAndCable, str] = {}  # each line's first port
    for name, port in spec.ports.items():
        lines.setdefault((port.speed_gbit_s, port.cable_m), name)
    headrooms: dict[SpeedAndCable, Headroom] = {}
    computes = buffers is not None and buffers.computed_xoff_bytes is not None and not spec.own_headroom
    pfc_bytes: Fraction | None = None  # the queue length at which a port may begin to pause
    shares: BufferShares | None = None
    if policy.lossless and asic is not None:
        if buffers is not None:
            if buffers.refusal is not None:
                raise buffers.refusal
            asic = asic if buffers.shares else with_buffers(asic, buffers)
        for (_speed, cable), name in lines.items():
            spec.system.check_cable(f"{subject}: port {name}", cable)
        if spec.needs_headroom:
            headrooms = {
                line: _headroom(policy, spec, asic, line, f"{subject}: port {name}") for line, name in lines.items()
            }
        configured = buffers.shares if buffers else None
        cut, shares = _shares(spec.system, asic, configured)
        sizes_headroom = bool(configured) or (cut is not None and cut.headroom_percent is not None)
        least_headrooms = _least_headrooms(policy, spec, headrooms) if sizes_headroom else headrooms
        need = _headroom_sum(policy, spec, least_headrooms)
        free = thresholds.free_bytes(asic, need, cut, subject)
        pfc_bytes = thresholds.pfc_queue_bytes(
            free,
            len(spec.ports),
            len(policy.classes) + 2,  # plus CNP, and all other traffic
            _alpha_exponent(asic, headrooms, configured or cut, subject),
        )
    qos_of_line: dict[SpeedAndCable, PortQos] = {}
    for line, name in lines.items():
        ecns = _ecns(policy, line[0], pfc_bytes, f"{subject}: port {name}")
        headroom = headrooms.get(line)
        cable = line[1] if policy.lossless and (spec.sizes_headroom or computes) else None
        if computes and headroom is not None and asic is not None and cable is not None:
            headroom, cable = None, thresholds.computed_cable_m(asic, line[0], cable, policy.switch_ip_mtu_bytes)
        key = ecns, headroom, cable, spec.system.name, spec.queue_buffer_bytes
        if key not in shared:
            qos = _port_qos(policy, ecns, headroom, cable)
            shared[key] = _attainable(spec, qos, pfc_bytes, f"{subject}: port {name}")
        qos_of_line[line] = shared[key]
    ports = {name: qos_of_line[port.speed_gbit_s, port.cable_m] for name, port in spec.ports.items()}
    own_headroom = bool(headrooms) and asic is not None and not asic.headroom_pool_bytes
    return Switch(
        spec.name,
        spec.system.name,
        ports,
        policy.ecmp_fields,
        spec.queue_buffer_bytes,
        own_headroom,
        shares,
        speeds_gbit_s=spec.speeds_gbit_s,
        least_xoff_bytes={
            name: thresholds.floor_bytes(port.speed_gbit_s, port.cable_m or 0, policy.switch_ip_mtu_bytes)
            for name, port in (spec.ports.items() if computes and policy.lossless else ())
        },
    )


def _headroom_sum(
    policy: Policy, spec: SwitchSpec, headrooms: Mapping[SpeedAndCable, Headroom]
) -> thresholds.HeadroomSum:
    lossless = len(policy.lossless)
    of_ports = [headrooms[port.speed_gbit_s, port.cable_m] for port in spec.ports.values()] if headrooms else []
    return thresholds.HeadroomSum(
        lossless * sum(headroom.reserved_bytes for headroom in of_ports),
        lossless * sum(headroom.xoff_bytes for headroom in of_ports),
        f"{lossless} lossless {'class' if lossless == 1 else 'classes'} on {len(spec.ports)} ports",
    )


def _least_headrooms(
    policy: Policy, spec: SwitchSpec, headrooms: Mapping[SpeedAndCable, Headroom]
) -> Mapping[SpeedAndCable, Headroom]:
    """Return the least headroom of each line, for a system that sizes it itself by rules that are not published.

    The profiles of the table are from other software, and more than the parts that the vendors publish can hold.
    """
    if spec.own_headroom:
        return headrooms
    mtu = policy.switch_ip_mtu_bytes
    return {
        line: replace(
            headroom, reserved_bytes=0, xoff_bytes=thresholds.floor_bytes(line[0], spec.held_cable_m(line[1] or 0), mtu)
        )
        for line, headroom in headrooms.items()
    }


def _shares(
    system: SwitchSystem, asic: Asic, configured: BufferShares | None
) -> tuple[BufferShares | None, BufferShares | None]:
    """Return the parts to plan with (None: the ASIC's pools), and the parts that the switch must already have.

    ``configured``: those that the switch shows or is configured to have, if it was read.
    """
    if not system.default_shares:
        return system.buffer_shares, None
    if ASICS.get(asic.name) is asic:
        default = system.default_shares[asic.name]
        shares = configured.with_default(default) if configured else default
        smaller = min(shares.lossless_percent or 0, shares.egress_percent or 100)
        shares = replace(shares, lossless_percent=smaller)
        return shares, shares
    lossless, headroom = (-(-100 * size // asic.buffer_bytes) for size in (asic.shared_bytes, asic.headroom_pool_bytes))
    return None, BufferShares(lossless, headroom)


def _alpha_exponent(
    asic: Asic, headrooms: Mapping[SpeedAndCable, Headroom], shares: BufferShares | None, subject: str
) -> int:
    if shares is not None and shares.alpha_exponent is not None:
        return shares.alpha_exponent
    if asic.alpha_exponent is not None:
        return asic.alpha_exponent
    rows = headrooms or asic.headroom
    if not rows:
        raise FabricError(
            f"it is not known how much of the pool one priority of {asic.title} may use before it pauses",
            f"give the exponent of alpha as alpha_exponent in {ASICS_VARIABLE}",
            subject=subject,
        )
    return min(row.alpha_exponent for row in rows.values())


def _attainable(spec: SwitchSpec, qos: PortQos, pfc_bytes: Fraction | None, subject: str) -> PortQos:
    """Return ``qos`` with the nearest thresholds that the system can hold."""
    if spec.system.attainable is None or spec.queue_buffer_bytes is None:
        return qos
    try:
        attainable_qos = spec.system.attainable(qos, spec.queue_buffer_bytes)
        for number, queue in enumerate(attainable_qos.queues):
            if queue is not None and queue.ecn is not None and pfc_bytes is not None:
                thresholds.check_ecn(queue.ecn, pfc_bytes, subject, f"in queue {number}, in percent of its buffer,")
    except FabricError as error:
        if not spec.system.default_shares:
            raise
        cause = error.cause if error.subject == subject else f"{error.subject}: {error.cause}"
        remedy = (
            "set a larger lossless partition of the buffer while no traffic has to pass, as the vendors' guides do "
            "(the plan reads it), or correct roce_switch_queue_buffer_bytes"
        )
        raise FabricError(cause, remedy, subject=subject) from error
    return attainable_qos


def _check_asic(policy: Policy, asic: Asic, subject: str) -> None:
    lossless = [rdma_class.name for rdma_class in policy.lossless]
    if len(lossless) > asic.lossless_classes:
        raise FabricError(
            f"the policy has {len(lossless)} lossless classes ({', '.join(lossless)}), but {asic.title}'s profiles are "
            f"for {asic.lossless_classes}",
            "make one of them lossy",
            subject=subject,
        )
    for rdma_class in policy.classes:
        if rdma_class.ecn is not None and rdma_class.ecn.maximum_bytes > asic.buffer_bytes:
            raise FabricError(
                f"class {rdma_class.name}: ecn's maximum_bytes {rdma_class.ecn.maximum_bytes} is more than the whole "
                f"buffer of {asic.title}, {asic.buffer_bytes} bytes, so it would never mark all packets",
                "give less, or omit ecn, which is then compiled",
                subject=subject,
            )
    for name, traffic in policy.named:
        if traffic.queue >= asic.unicast_queues:
            raise FabricError(
                f"class {name} is assigned to queue {traffic.queue}, but {asic.title} has queues 0 to "
                f"{asic.unicast_queues - 1}",
                "give the class another queue",
                subject=subject,
            )


def _headroom(policy: Policy, spec: SwitchSpec, asic: Asic, line: SpeedAndCable, subject: str) -> Headroom:
    speed, cable = line
    if cable is None:
        raise FabricError(
            "cable_m is missing, but a lossless class's headroom depends on it", "set it", subject=subject
        )
    cable = spec.held_cable_m(cable)
    return thresholds.headroom_of(asic, speed, cable, policy.switch_ip_mtu_bytes, spec.own_headroom, subject)


def _ecns(policy: Policy, speed_gbit_s: int, pfc_bytes: Fraction | None, subject: str) -> tuple[Ecn, ...]:
    """Return the marking of each RDMA class, in the policy's order. Where the switch pauses, it marks earlier."""
    packet = thresholds.frame_bytes(policy.roce_packet_bytes)
    reference = thresholds.reference_ecn(speed_gbit_s, packet)
    ecns = []
    for rdma_class in policy.classes:
        if rdma_class.ecn is None:
            ecn = reference if pfc_bytes is None else thresholds.bounded_ecn(reference, pfc_bytes, packet, subject)
        else:
            ecn = rdma_class.ecn
            minimum = thresholds.least_ecn(packet)
            if ecn.minimum_bytes < minimum:
                raise FabricError(
                    f"class {rdma_class.name}: ecn's minimum_bytes {ecn.minimum_bytes} is less than one packet, of "
                    f"{packet} bytes, so an empty queue would be marked",
                    f"give {minimum} or more, or omit ecn, which is then compiled",
                    subject=subject,
                )
            if pfc_bytes is not None:
                thresholds.check_ecn(ecn, pfc_bytes, subject, rdma_class.name)
        ecns.append(ecn)
    return tuple(ecns)


def _port_qos(policy: Policy, ecns: tuple[Ecn, ...], headroom: Headroom | None, cable_m: int | None) -> PortQos:
    def by(key: str, value: str) -> tuple[int | None, ...]:
        table = {getattr(traffic, key): getattr(traffic, value) for traffic in policy.all_classes}
        return tuple(table.get(number) for number in range(CLASSES))

    queues: list[Queue | None] = [None] * CLASSES
    for rdma_class, ecn in zip(policy.classes, ecns):
        queues[rdma_class.queue] = Queue(False, rdma_class.bandwidth_percent, ecn)
    queues[policy.cnp.queue] = Queue(True)
    queues[policy.default.queue] = Queue(False, policy.default.bandwidth_percent)
    lossless = tuple(sorted(rdma_class.priority for rdma_class in policy.lossless))
    return PortQos(
        dscp_to_class=policy.dscp_to_class(),
        class_to_queue=by("traffic_class", "queue"),
        class_to_priority=by("traffic_class", "priority"),
        priority_to_queue=by("priority", "queue"),
        queues=tuple(queues),
        pfc=lossless,
        headroom=tuple(headroom if priority in lossless else None for priority in range(CLASSES)),
        watchdog=policy.watchdog,
        ip_mtu_bytes=policy.switch_ip_mtu_bytes,
        cable_m=cable_m,
    )
