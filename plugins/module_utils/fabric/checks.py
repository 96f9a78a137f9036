# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each part of a RoCE path must be, and what follows where it is not. Pure.

Every check gets one part as it was read back (``state``) and says what is wrong with it for one class of the policy.
A part that is fine says nothing, so that a fabric of thousands of parts is checked in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import (
    LOSSLESS,
    ROCE_HEADER_BYTES,
    Policy,
    RdmaClass,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import (
    Application,
    Ecn,
    Nic,
    PortQos,
    Queue,
    dscp_of,
    ecn_of,
)

# Beside a unit that was mistaken (bytes, kB, KiB, cells of about 250 bytes), thresholds differ by rounding alone.
WRONG_UNIT_RATIO = 100


@dataclass(frozen=True)
class Fault:
    """One thing that is not as it must be. ``where`` is filled in by whoever knows the place ("leaf1 swp1, in")."""

    what: str
    wanted: Any
    seen: Any
    consequence: str
    where: str = ""


def application(app: Application, rdma: RdmaClass) -> Iterator[Fault]:
    """What the application asks of its NIC."""
    if dscp_of(app.tos) != rdma.dscp:
        yield Fault(
            f"{app.name} asks for DSCP {rdma.dscp} (ToS {rdma.tos})",
            rdma.tos,
            app.tos,
            f"its packets carry DSCP {dscp_of(app.tos)} and ride in another class than {rdma.name} on every hop",
        )
    elif ecn_of(app.tos) != rdma.ect:
        yield Fault(
            f"{app.name} asks for an ECN-capable transport (ToS {rdma.tos})",
            rdma.tos,
            app.tos,
            "a congested queue drops its packets instead of marking them"
            if ecn_of(app.tos) == 0
            else "its packets say of themselves what the network should say",
        )
    if app.queue_pairs == 1:
        yield Fault(
            f"{app.name} uses several queue pairs for a connection",
            "2 or more",
            1,
            "each connection has one UDP source port, and so ECMP keeps it on one way",
        )


def sender(nic: Nic, rdma: RdmaClass, policy: Policy) -> Iterator[Fault]:
    """The NIC that sends RoCE packets."""
    if nic.forced_tos is not None and nic.forced_tos != rdma.tos:
        yield Fault(
            "the device's traffic class is the policy's ToS, or the application's own",
            rdma.tos,
            nic.forced_tos,
            f"whatever applications ask for, packets carry DSCP {dscp_of(nic.forced_tos)}"
            + (" and are never marked" if ecn_of(nic.forced_tos) == 0 else ""),
        )
    if nic.cm_tos is not None and nic.cm_tos not in [each.tos for each in policy.classes]:
        yield Fault(
            "RDMA-CM gives connections the policy's ToS",
            rdma.tos,
            nic.cm_tos,
            f"connections by RDMA-CM that set no ToS of their own ride with DSCP {dscp_of(nic.cm_tos)}",
        )
    if nic.may_mark is False:
        yield Fault(
            "this function's packets keep the DSCP that is set",
            True,
            False,
            "the NIC or the hypervisor's switch rewrites it, and every hop takes them for other traffic",
        )
    yield from _nic(nic, rdma, policy)


def reactor(nic: Nic, rdma: RdmaClass) -> Iterator[Fault]:
    """The sender's NIC when a CNP has come back to it."""
    if nic.reaction is not None and rdma.priority not in nic.reaction:
        yield Fault(
            f"the reaction point of priority {rdma.priority} is on",
            rdma.priority,
            list(nic.reaction),
            "CNPs arrive and the sender does not slow down",
        )


def receiver(nic: Nic, rdma: RdmaClass, policy: Policy) -> Iterator[Fault]:
    """The NIC that receives RoCE packets and answers marked ones with CNPs."""
    yield from _nic(nic, rdma, policy)
    if nic.notification is not None and rdma.priority not in nic.notification:
        yield Fault(
            f"the notification point of priority {rdma.priority} is on",
            rdma.priority,
            list(nic.notification),
            "marked packets are answered with no CNP, and the sender never slows down",
        )
    if nic.cnp_dscp is not None and nic.cnp_dscp != policy.cnp.dscp:
        yield Fault(
            f"CNPs leave with DSCP {policy.cnp.dscp}",
            policy.cnp.dscp,
            nic.cnp_dscp,
            "they wait in the queues that they report on, or in others than the strict one",
        )


def _nic(nic: Nic, rdma: RdmaClass, policy: Policy) -> Iterator[Fault]:
    if nic.trust != "dscp":
        yield Fault(
            "the NIC trusts the DSCP",
            "dscp",
            nic.trust,
            "packets without a VLAN tag all have priority 0, whatever their DSCP",
        )
    elif nic.dscp_to_priority[rdma.dscp] != rdma.priority:
        yield Fault(
            f"DSCP {rdma.dscp} is priority {rdma.priority}",
            rdma.priority,
            nic.dscp_to_priority[rdma.dscp],
            "its buffer, its share of the bandwidth and its pauses are another priority's",
        )
    traffic_class = nic.priority_to_class[rdma.priority]
    if traffic_class != rdma.traffic_class:
        yield Fault(
            f"priority {rdma.priority} is traffic class {rdma.traffic_class}",
            rdma.traffic_class,
            traffic_class,
            "it shares a send queue with other traffic",
        )
    elif nic.queues[traffic_class] is not None:
        yield from _share(nic.queues[traffic_class], rdma, f"traffic class {traffic_class}")
    yield from _pfc(nic.pfc, rdma)
    if nic.ip_mtu_bytes is not None and nic.ip_mtu_bytes < policy.path_mtu_bytes + ROCE_HEADER_BYTES:
        yield Fault(
            f"the MTU carries RoCE packets of {policy.path_mtu_bytes} bytes",
            policy.path_mtu_bytes + ROCE_HEADER_BYTES,
            nic.ip_mtu_bytes,
            "connections fall back to a smaller path MTU, or fail if their ends differ",
        )


def classification(port: PortQos, rdma: RdmaClass) -> Iterator[Fault]:
    """The port whose map of DSCPs decides this class's packets: where they come into a switch, or where they leave."""
    traffic_class = port.dscp_to_class[rdma.dscp]
    if traffic_class != rdma.traffic_class:
        yield Fault(
            f"DSCP {rdma.dscp} is traffic class {rdma.traffic_class}",
            rdma.traffic_class,
            traffic_class,
            "RoCE rides with other traffic from here on"
            if traffic_class is not None
            else "the port does not look at it, so RoCE rides in the default class from here on",
        )
    for dscp, other in enumerate(port.dscp_to_class):
        if other == rdma.traffic_class and dscp != rdma.dscp:
            yield Fault(
                f"traffic class {rdma.traffic_class} is {rdma.name}'s alone",
                rdma.dscp,
                dscp,
                f"packets with DSCP {dscp} fill {rdma.name}'s queue",
            )
            break


def ingress(port: PortQos, rdma: RdmaClass, policy: Policy) -> Iterator[Fault]:
    """The port where RoCE packets of this class come into a switch, less the classification."""
    if rdma.mode == LOSSLESS:
        if port.class_to_priority[rdma.traffic_class] != rdma.priority:
            yield Fault(
                f"traffic class {rdma.traffic_class} pauses priority {rdma.priority}",
                rdma.priority,
                port.class_to_priority[rdma.traffic_class],
                "a full buffer pauses another priority than the sender's, or none, and drops",
            )
        headroom = port.headroom[rdma.priority]
        if headroom is not None and headroom.xoff_bytes <= 0:
            yield Fault(
                f"priority {rdma.priority} has headroom",
                "more than 0 bytes",
                headroom.xoff_bytes,
                "what arrives between a pause and its effect is dropped",
            )
    yield from _port(port, rdma, policy)


def egress(port: PortQos, rdma: RdmaClass, policy: Policy) -> Iterator[Fault]:
    """The port where RoCE packets of this class leave a switch."""
    queue = port.class_to_queue[rdma.traffic_class]
    if queue != rdma.queue:
        yield Fault(
            f"traffic class {rdma.traffic_class} leaves by queue {rdma.queue}",
            rdma.queue,
            queue,
            "RoCE waits in another queue than the one that is scheduled and marked for it",
        )
    here = port.queues[rdma.queue]
    if here is None:
        yield Fault(f"queue {rdma.queue} is scheduled", "a share of the bandwidth", None, "it has no guaranteed share")
    else:
        yield from _share(here, rdma, f"queue {rdma.queue}")
        yield from _marking(here.ecn, rdma)
    if rdma.mode == LOSSLESS and port.priority_to_queue[rdma.priority] != rdma.queue:
        yield Fault(
            f"a pause of priority {rdma.priority} stops queue {rdma.queue}",
            rdma.queue,
            port.priority_to_queue[rdma.priority],
            "the next hop's pause stops another queue, and its buffer overflows",
        )
    yield from _port(port, rdma, policy)


def _port(port: PortQos, rdma: RdmaClass, policy: Policy) -> Iterator[Fault]:
    yield from _keeps_dscp(port)
    yield from _pfc(port.pfc, rdma)
    least = policy.ip_mtu_bytes
    if port.ip_mtu_bytes is not None and port.ip_mtu_bytes < least:
        yield Fault(
            f"IP packets of {least} bytes pass", least, port.ip_mtu_bytes, "large packets are dropped, small ones pass"
        )


def _keeps_dscp(port: PortQos) -> Iterator[Fault]:
    if port.rewrites_dscp:
        yield Fault(
            "packets keep their DSCP",
            "as it came",
            "rewritten",
            "the next hops and the receiver go by another DSCP than the sender's",
        )


def _pfc(pfc: tuple[int, ...], rdma: RdmaClass) -> Iterator[Fault]:
    if rdma.mode == LOSSLESS and rdma.priority not in pfc:
        yield Fault(
            f"PFC is on for priority {rdma.priority}",
            rdma.priority,
            list(pfc),
            "pauses are neither sent nor obeyed here, and a full buffer drops"
            if not pfc
            else "other priorities are paused than the one that RoCE rides on",
        )
    elif rdma.mode != LOSSLESS and rdma.priority in pfc:
        yield Fault(
            f"PFC is off for priority {rdma.priority}, whose class is lossy",
            "off",
            list(pfc),
            "pauses spread through the fabric that no buffer is planned for",
        )


def _share(queue: Queue, rdma: RdmaClass, what: str) -> Iterator[Fault]:
    if queue.strict:
        yield Fault(
            f"{what} has a share of {rdma.bandwidth_percent}%",
            rdma.bandwidth_percent,
            "strict",
            "RoCE starves all other traffic, CNPs of a lower queue among it",
        )
    elif queue.bandwidth_percent != rdma.bandwidth_percent:
        yield Fault(
            f"{what} has a share of {rdma.bandwidth_percent}%",
            rdma.bandwidth_percent,
            queue.bandwidth_percent,
            "the guaranteed share is another than the policy's",
        )


def _marking(ecn: Ecn | None, rdma: RdmaClass) -> Iterator[Fault]:
    if ecn is None:
        yield Fault(
            f"queue {rdma.queue} marks ECN",
            "thresholds",
            None,
            "senders never learn of congestion: "
            + ("PFC pauses them instead" if rdma.mode == LOSSLESS else "packets are dropped"),
        )
    elif rdma.ecn and ecn != rdma.ecn:
        yield Fault(
            f"queue {rdma.queue} marks ECN at the policy's thresholds",
            _thresholds(rdma.ecn),
            _thresholds(ecn),
            _of_thresholds(rdma.ecn, ecn),
        )


def thresholds(port: PortQos, planned: PortQos, rdma: RdmaClass) -> Iterator[Fault]:
    """What was compiled for this very port: ECN thresholds and headroom."""
    here, wanted = port.queues[rdma.queue], planned.queues[rdma.queue]
    if here and here.ecn and wanted and wanted.ecn and here.ecn != wanted.ecn and not rdma.ecn:
        yield Fault(
            f"queue {rdma.queue} marks ECN at the compiled thresholds",
            _thresholds(wanted.ecn),
            _thresholds(here.ecn),
            _of_thresholds(wanted.ecn, here.ecn),
        )
    room, planned_room = port.headroom[rdma.priority], planned.headroom[rdma.priority]
    if rdma.mode == LOSSLESS and room and planned_room and room.xoff_bytes < planned_room.xoff_bytes:
        yield Fault(
            f"priority {rdma.priority} has the compiled headroom",
            planned_room.xoff_bytes,
            room.xoff_bytes,
            "at full speed, what arrives between a pause and its effect is dropped",
        )
    # Where the switch reckons headroom itself.
    known = port.cable_m is not None and planned.cable_m is not None
    if rdma.mode == LOSSLESS and known and port.cable_m < planned.cable_m:
        yield Fault(
            f"headroom is for a cable of {planned.cable_m} m",
            planned.cable_m,
            port.cable_m,
            "at full speed, what arrives between a pause and its effect is dropped",
        )


def _thresholds(ecn: Ecn) -> str:
    return f"{ecn.minimum_bytes} to {ecn.maximum_bytes} bytes, {ecn.probability_percent}%"


def _of_thresholds(wanted: Ecn, seen: Ecn) -> str:
    if seen.minimum_bytes * WRONG_UNIT_RATIO <= wanted.minimum_bytes:
        return "a queue that is nearly empty is marked, and senders never reach full speed: a wrong unit?"
    if seen.minimum_bytes >= wanted.minimum_bytes * WRONG_UNIT_RATIO:
        return "no queue ever gets so long, so that nothing is marked: a wrong unit?"
    if seen.minimum_bytes > wanted.minimum_bytes:
        return "marking begins later than planned, perhaps after PFC"
    return "congestion is answered otherwise than planned"


def cnp_classification(port: PortQos, policy: Policy) -> Iterator[Fault]:
    """The port whose map of DSCPs decides CNPs: where they come into a switch, or where they leave."""
    traffic_class = port.dscp_to_class[policy.cnp.dscp]
    if traffic_class != policy.cnp.traffic_class:
        yield Fault(
            f"DSCP {policy.cnp.dscp} of CNPs is traffic class {policy.cnp.traffic_class}",
            policy.cnp.traffic_class,
            traffic_class,
            "CNPs wait with other traffic, and senders slow down too late",
        )


def cnp_egress(port: PortQos, policy: Policy) -> Iterator[Fault]:
    """The port where CNPs leave a switch."""
    yield from _keeps_dscp(port)
    queue = port.class_to_queue[policy.cnp.traffic_class]
    if queue != policy.cnp.queue:
        yield Fault(
            f"CNPs leave by queue {policy.cnp.queue}",
            policy.cnp.queue,
            queue,
            "they wait in a queue that is not strict",
        )
    here = port.queues[policy.cnp.queue]
    if here is None or not here.strict:
        yield Fault(
            f"queue {policy.cnp.queue} of CNPs is strict",
            "strict",
            None if here is None else f"{here.bandwidth_percent}%",
            "under load CNPs are late, and senders slow down too late",
        )
    elif here.ecn is not None:
        yield Fault(
            f"queue {policy.cnp.queue} marks nothing", None, _thresholds(here.ecn), "CNPs are marked themselves"
        )
    if policy.cnp.priority in port.pfc:
        yield Fault(
            f"priority {policy.cnp.priority} of CNPs is never paused", "off", list(port.pfc), "a pause holds CNPs up"
        )


def link(upstream: PortQos | Nic, downstream: PortQos | Nic, rdma: RdmaClass) -> Iterator[Fault]:
    """Both ends of a cable: a class that is lossless at one end only is lossless at none."""
    if (rdma.priority in upstream.pfc) != (rdma.priority in downstream.pfc):
        yield Fault(
            f"both ends of the link pause priority {rdma.priority}, or neither",
            "the same at both ends",
            [rdma.priority in upstream.pfc, rdma.priority in downstream.pfc],
            "one end sends pauses that the other does not obey, or waits for pauses that never come",
        )
    large, takes = upstream.ip_mtu_bytes, downstream.ip_mtu_bytes
    # A NIC that takes less is a fault of its own, by what RoCE needs.
    if isinstance(downstream, PortQos) and large is not None and takes is not None and large > takes:
        yield Fault(
            "what one end sends, the other takes",
            f"an MTU of at least {large}",
            takes,
            "packets of full size are dropped at the link",
        )


def ecmp(fields: tuple[str, ...] | None) -> Iterator[Fault]:
    """How a switch spreads flows over equal ways."""
    if fields is not None and "source_port" not in fields:
        yield Fault(
            "ECMP's hash takes the UDP source port",
            "source_port",
            list(fields),
            "all connections of two hosts share one way, whatever their queue pairs",
        )
