# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check the switches and links of a RoCE path. Pure.

Each check gets one part as it was read back (``qos``) and returns its findings for one class of the policy; none where
the part is as the policy says, so that a fabric of thousands of parts is checked in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.diff import port_differences
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    Headroom,
    Nic,
    PortQos,
    Queue,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.class_checks import (
    pfc_of_class,
    pfc_of_others,
    share,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import Reasons, fault, missing
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import LOSSLESS, Policy, RdmaClass
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

# Thresholds differ only by rounding, unless one has a wrong unit (bytes, kB, KiB, cells of about 250 bytes).
WRONG_UNIT_RATIO = 100
UNKNOWN_BYTES = "where marking begins is not known in bytes, so PFC may pause before it"


def as_planned(port: PortQos, planned: PortQos, policy: Policy, reasons: Reasons) -> Iterator[Claim]:
    """Check what no other check covers: all settings, except those of named classes and the paused priorities."""
    named = {
        "dscp_to_class": {policy.cnp.dscp, *(rdma_class.dscp for rdma_class in policy.classes)},
        "queues": {policy.cnp.queue, *(rdma_class.queue for rdma_class in policy.classes)},
        "class_to_queue": {policy.cnp.traffic_class, *(rdma_class.traffic_class for rdma_class in policy.classes)},
        "class_to_priority": {rdma_class.traffic_class for rdma_class in policy.classes},
        "priority_to_queue": {rdma_class.priority for rdma_class in policy.classes},
    }
    checked_elsewhere: dict[str, Any] = {
        setting: tuple(
            getattr(planned, setting)[number] if number in numbers else value
            for number, value in enumerate(getattr(port, setting))
        )
        for setting, numbers in named.items()
    }
    compared = replace(port, pfc=planned.pfc, rewrites_dscp=planned.rewrites_dscp, **checked_elsewhere)
    for setting, wanted, seen in port_differences(planned, compared, reasons):
        yield fault(setting, wanted, seen, "the plan's thresholds and shares do not hold")


def classification(port: PortQos, rdma: RdmaClass) -> Iterator[Claim]:
    """Check the port whose DSCP map decides this class's packets: where they enter a switch, or where they leave."""
    traffic_class = port.dscp_to_class[rdma.dscp]
    if traffic_class != rdma.traffic_class:
        yield fault(
            f"DSCP {rdma.dscp} is traffic class {rdma.traffic_class}",
            rdma.traffic_class,
            traffic_class,
            "RoCE shares a class with other traffic from here on"
            if traffic_class is not None
            else "the port does not look at it, or at more than it: RoCE may use another class from here on",
        )
    for dscp, class_of_dscp in enumerate(port.dscp_to_class):
        if class_of_dscp == rdma.traffic_class and dscp != rdma.dscp:
            yield fault(
                f"traffic class {rdma.traffic_class} is {rdma.name}'s alone",
                rdma.dscp,
                dscp,
                f"packets with DSCP {dscp} fill {rdma.name}'s queue",
            )
            break


def ingress(
    port: PortQos, rdma: RdmaClass, policy: Policy, reasons: Reasons, planned: PortQos | None = None
) -> Iterator[Claim]:
    """Check the port where RoCE packets of this class enter a switch, except for the classification.

    ``planned``: the port with the numbers compiled for it; None where they are not to be compared.
    """
    if rdma.mode == LOSSLESS:
        if port.class_to_priority[rdma.traffic_class] != rdma.priority:
            yield fault(
                f"traffic class {rdma.traffic_class} pauses priority {rdma.priority}",
                rdma.priority,
                port.class_to_priority[rdma.traffic_class],
                "a full buffer pauses a priority other than the sender's, or none, and drops packets",
            )
        yield from _headroom(port, rdma, reasons, planned)
    yield from _port(port, rdma, policy, reasons)


def _headroom(port: PortQos, rdma: RdmaClass, reasons: Reasons, planned: PortQos | None) -> Iterator[Claim]:
    """Check the headroom, and the threshold at which the pause is sent.

    The headroom holds the packets that arrive between a pause and its effect.
    """
    has = f"priority {rdma.priority} has headroom"
    dropped = "what arrives between a pause and its effect is dropped"
    headroom = port.headroom[rdma.priority]
    wanted = planned.headroom[rdma.priority] if planned else None
    if headroom is None and port.cable_m is not None and "headroom" not in reasons:
        pass  # the switch computes it; switch/overrides.py checks the result
    elif headroom is None:
        yield missing("headroom", reasons, has, wanted.xoff_bytes if wanted else "more than 0 bytes", dropped)
    elif headroom.xoff_bytes <= 0:
        yield fault(has, "more than 0 bytes", headroom.xoff_bytes, dropped)
    elif wanted is not None:
        yield from _compiled_headroom(headroom, wanted, rdma)
    # The switch computes headroom itself here.
    if planned is None or planned.cable_m is None:
        return
    for_cable = f"headroom is for a cable of {planned.cable_m} m"
    if port.cable_m is None:
        if "cable_m" not in reasons:
            yield fault(for_cable, planned.cable_m, None, f"at full speed, {dropped}")
    elif port.cable_m < planned.cable_m:
        yield fault(for_cable, planned.cable_m, port.cable_m, f"at full speed, {dropped}")


def _compiled_headroom(seen: Headroom, wanted: Headroom, rdma: RdmaClass) -> Iterator[Claim]:
    if seen.xoff_bytes < wanted.xoff_bytes:
        yield fault(
            f"priority {rdma.priority} has the compiled headroom",
            wanted.xoff_bytes,
            seen.xoff_bytes,
            "at full speed, what arrives between a pause and its effect is dropped",
        )
    if seen.alpha_exponent != wanted.alpha_exponent:
        yield fault(
            f"priority {rdma.priority} may fill 2^{wanted.alpha_exponent} times the free shared buffer",
            wanted.alpha_exponent,
            seen.alpha_exponent,
            "pauses begin later than planned, and one port takes the others' buffer"
            if seen.alpha_exponent > wanted.alpha_exponent
            else "pauses begin earlier than planned, before ECN has slowed the senders down",
        )


def egress(
    port: PortQos, rdma: RdmaClass, policy: Policy, reasons: Reasons, planned: PortQos | None = None
) -> Iterator[Claim]:
    """Check the port where RoCE packets of this class leave a switch. ``planned`` as in ``ingress``."""
    queue = port.class_to_queue[rdma.traffic_class]
    if queue != rdma.queue:
        yield fault(
            f"traffic class {rdma.traffic_class} leaves by queue {rdma.queue}",
            rdma.queue,
            queue,
            "RoCE waits in a queue other than the one that is scheduled and marked for it",
        )
    queue_qos = port.queues[rdma.queue]
    if queue_qos is None:
        yield fault(f"queue {rdma.queue} is scheduled", "a share of the bandwidth", None, "it has no guaranteed share")
    else:
        shares = list(share(queue_qos, rdma, f"queue {rdma.queue}"))
        if shares:  # a CNP queue with its own share takes it from all others: it is the cause and reported first
            yield from _strict_cnp(port, policy)
        yield from shares
        yield from _marking(queue_qos, rdma, planned)
    if rdma.mode == LOSSLESS:
        if port.priority_to_queue[rdma.priority] != rdma.queue:
            yield fault(
                f"a pause of priority {rdma.priority} stops queue {rdma.queue}",
                rdma.queue,
                port.priority_to_queue[rdma.priority],
                "the next hop's pause stops another queue, and its buffer overflows",
            )
        yield from _watchdog(port, policy, reasons, planned)
    yield from _port(port, rdma, policy, reasons)


def _watchdog(port: PortQos, policy: Policy, reasons: Reasons, planned: PortQos | None) -> Iterator[Claim]:
    """Check the PFC watchdog. A system may hold other times than the policy's; the plan then has the system's times."""
    wanted = planned.watchdog if planned else policy.watchdog
    if wanted is None:
        return
    claim, consequence = "the PFC watchdog is on", "a storm of pauses stops the queue for ever, and those before it"
    if port.watchdog is None:
        yield missing("watchdog", reasons, claim, _times(wanted), consequence)
    elif planned and port.watchdog != wanted:
        yield fault(
            "the PFC watchdog is the policy's",
            _times(wanted),
            _times(port.watchdog),
            "a storm of pauses is ended later than planned, or in another way",
        )


def _times(watchdog: Watchdog) -> str:
    return f"{watchdog.detection_ms} ms, {watchdog.restoration_ms} ms, {watchdog.action}"


def _port(port: PortQos, rdma: RdmaClass, policy: Policy, reasons: Reasons) -> Iterator[Claim]:
    yield from _keeps_dscp(port)
    yield from pfc_of_class(port.pfc, rdma)
    # The CNPs' own check reports PFC on the CNPs' priority.
    yield from pfc_of_others(port.pfc, rdma, policy, (policy.cnp.priority,))
    minimum, passes = policy.ip_mtu_bytes, f"IP packets of {policy.ip_mtu_bytes} bytes pass"
    dropped = "large packets are dropped, small ones pass"
    if port.ip_mtu_bytes is None:
        yield missing("ip_mtu_bytes", reasons, passes, minimum, dropped)
    elif port.ip_mtu_bytes < minimum:
        yield fault(passes, minimum, port.ip_mtu_bytes, dropped)


def _keeps_dscp(port: PortQos) -> Iterator[Claim]:
    if port.rewrites_dscp:
        yield fault(
            "packets keep their DSCP",
            "as it came",
            "rewritten",
            "the next hops and the receiver use a DSCP other than the sender's",
        )


def _marking(seen: Queue, rdma: RdmaClass, planned: PortQos | None) -> Iterator[Claim]:
    """Check that RoCE's queue marks ECN at the policy's thresholds, or at those compiled for this port."""
    queue = planned.queues[rdma.queue] if planned else None
    wanted, whose = (rdma.ecn, "the policy's") if rdma.ecn else (queue.ecn if queue else None, "the compiled")
    ecn = seen.ecn
    if seen.unknown_ecn is not None:
        if wanted:
            claim = f"queue {rdma.queue} marks ECN at {whose} thresholds"
            yield fault(claim, _thresholds(wanted), seen.unknown_ecn, UNKNOWN_BYTES)
    elif ecn is None:
        yield fault(
            f"queue {rdma.queue} marks ECN",
            "thresholds",
            None,
            "senders never learn of congestion: "
            + ("PFC pauses them instead" if rdma.mode == LOSSLESS else "packets are dropped"),
        )
    elif wanted and ecn != wanted:
        yield fault(
            f"queue {rdma.queue} marks ECN at {whose} thresholds",
            _thresholds(wanted),
            _thresholds(ecn),
            _of_thresholds(wanted, ecn),
        )


def _thresholds(ecn: Ecn) -> str:
    return f"{ecn.minimum_bytes} to {ecn.maximum_bytes} bytes, {ecn.probability_percent}%"


def _of_thresholds(wanted: Ecn, seen: Ecn) -> str:
    if seen.minimum_bytes * WRONG_UNIT_RATIO <= wanted.minimum_bytes:
        return "a queue that is nearly empty is marked, and senders never reach full speed: a wrong unit?"
    if seen.minimum_bytes >= wanted.minimum_bytes * WRONG_UNIT_RATIO:
        return "no queue ever gets that long, so nothing is marked: a wrong unit?"
    if seen.minimum_bytes > wanted.minimum_bytes:
        return "marking begins later than planned, perhaps after PFC"
    return "the response to congestion differs from the plan"


def cnp_classification(port: PortQos, policy: Policy) -> Iterator[Claim]:
    """Check the port whose DSCP map decides CNPs: where they enter a switch, or where they leave."""
    traffic_class = port.dscp_to_class[policy.cnp.dscp]
    if traffic_class != policy.cnp.traffic_class:
        yield fault(
            f"DSCP {policy.cnp.dscp} of CNPs is traffic class {policy.cnp.traffic_class}",
            policy.cnp.traffic_class,
            traffic_class,
            "CNPs wait with other traffic, and senders slow down too late",
        )


def cnp_egress(port: PortQos, policy: Policy) -> Iterator[Claim]:
    """Check the port where CNPs leave a switch."""
    yield from _keeps_dscp(port)
    queue = port.class_to_queue[policy.cnp.traffic_class]
    if queue != policy.cnp.queue:
        yield fault(
            f"CNPs leave by queue {policy.cnp.queue}",
            policy.cnp.queue,
            queue,
            "they wait in a queue that is not strict",
        )
    yield from _strict_cnp(port, policy)
    queue_qos = port.queues[policy.cnp.queue]
    marking = queue_qos and (queue_qos.unknown_ecn or (_thresholds(queue_qos.ecn) if queue_qos.ecn else None))
    if queue_qos is not None and queue_qos.strict and marking:
        yield fault(f"queue {policy.cnp.queue} marks nothing", None, marking, "CNPs are marked themselves")
    if policy.cnp.priority in port.pfc:
        yield fault(
            f"priority {policy.cnp.priority} of CNPs is never paused", "off", list(port.pfc), "a pause holds CNPs up"
        )


def _strict_cnp(port: PortQos, policy: Policy) -> Iterator[Claim]:
    queue_qos = port.queues[policy.cnp.queue]
    if queue_qos is None or not queue_qos.strict:
        yield fault(
            f"queue {policy.cnp.queue} of CNPs is strict",
            "strict",
            None if queue_qos is None else f"{queue_qos.bandwidth_percent}%",
            "under load CNPs are late, and senders slow down too late",
        )


def link(upstream: PortQos | Nic, downstream: PortQos | Nic) -> Iterator[Claim]:
    """Check both ends of a cable. Each end's own check covers whether it pauses."""
    large, takes = upstream.ip_mtu_bytes, downstream.ip_mtu_bytes
    # A NIC's own check compares its MTU with what RoCE needs.
    if isinstance(downstream, PortQos) and large is not None and takes is not None and large > takes:
        yield fault(
            "what one end sends, the other accepts",
            f"an MTU of at least {large}",
            takes,
            "packets of full size are dropped at the link",
        )


def ecmp(fields: tuple[str, ...] | None, reasons: Reasons, planned: tuple[str, ...] | None = None) -> Iterator[Claim]:
    """Check how a switch spreads flows over equal paths. ``planned``: None where it is not to be compared."""
    claim = "ECMP's hash takes the UDP source port"
    consequence = "all connections of two hosts share one path, whatever their queue pairs"
    if fields is None:
        yield missing("ecmp_fields", reasons, claim, "source_port", consequence)
    elif "source_port" not in fields:
        yield fault(claim, "source_port", list(fields), consequence)
    elif planned and planned != fields:
        yield fault("ECMP's hash is the policy's", list(planned), list(fields), "paths are shared in another way")
