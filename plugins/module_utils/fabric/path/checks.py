# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks of each part of a RoCE path, and the consequence where a part is not as it must be. Pure.

Every check gets one part as it was read back (``qos``) and returns its faults for one class of the policy
(``Fault``), and what of it cannot be read on such a device at all (``Unseen``). For a part without faults it returns
nothing, so that a fabric of thousands of parts is checked in one pass.

A missing value is never correct. It is ``Unseen`` where the device's kind gives the reason (``reasons``: field of
PortQos or Nic -> why it cannot be read), and a ``Fault`` where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Application,
    Ecn,
    Headroom,
    Nic,
    PortQos,
    Queue,
    Watchdog,
    dscp_of,
    ecn_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import NEEDED
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Seen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import (
    LOSSLESS,
    ROCE_HEADER_BYTES,
    Policy,
    RdmaClass,
)

NOT_IN_A_GUEST = "a guest does not see what the physical function of its VF trusts"
# Apart from a wrong unit (bytes, kB, KiB, cells of about 250 bytes), thresholds differ by rounding alone.
WRONG_UNIT_RATIO = 100


@dataclass(frozen=True)
class Fault:
    """One setting that is not as it must be. The caller that knows the place fills in ``where`` ("leaf1 swp1, in")."""

    what: str
    wanted: Any
    seen: Any
    consequence: str
    where: str = ""


@dataclass(frozen=True)
class Unseen:
    """One thing that cannot be read on such a device. ``where`` as in Fault."""

    what: str
    wanted: Any
    reason: str
    where: str = ""


Finding = Union[Fault, Unseen]
Reasons = Mapping[str, str]


def _missing(field: str, reasons: Reasons, what: str, wanted: Any, consequence: str) -> Finding:
    """Return the finding for a ``field`` that was not read."""
    if field in reasons:
        return Unseen(what, wanted, reasons[field])
    return Fault(what, wanted, None, consequence)


def application(app: Application, rdma: RdmaClass) -> Iterator[Finding]:
    """Check what the application requests of its NIC."""
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
    several = f"{app.name} uses several queue pairs for a connection"
    if app.queue_pairs is None:
        yield Unseen(several, "2 or more", f"how many queue pairs {app.name} uses was not given")
    elif app.queue_pairs == 1:
        yield Fault(several, "2 or more", 1, "each connection has one UDP source port, and so ECMP keeps it on one way")


def sender(seen: Seen, rdma: RdmaClass, policy: Policy) -> Iterator[Finding]:
    """Check the NIC that sends RoCE packets."""
    nic = seen.nic
    if nic.forced_tos is not None and nic.forced_tos != rdma.tos:
        yield Fault(
            "the device's traffic class is the policy's ToS, or the application's own",
            rdma.tos,
            nic.forced_tos,
            f"whatever applications ask for, packets carry DSCP {dscp_of(nic.forced_tos)}"
            + (" and are never marked" if ecn_of(nic.forced_tos) == 0 else ""),
        )
    by_rdma_cm = "RDMA-CM gives connections the policy's ToS"
    if nic.cm_tos is None:
        consequence = "nobody knows with which DSCP connections by RDMA-CM ride; is rdma_cm loaded?"
        yield _missing("cm_tos", seen.cannot, by_rdma_cm, rdma.tos, consequence)
    elif nic.cm_tos not in [each.tos for each in policy.classes]:
        yield Fault(
            by_rdma_cm,
            rdma.tos,
            nic.cm_tos,
            f"connections by RDMA-CM that set no ToS of their own ride with DSCP {dscp_of(nic.cm_tos)}",
        )
    keeps = "this function's packets keep the DSCP that is set"
    rewritten = "the NIC or the hypervisor's switch rewrites it, and every hop takes them for other traffic"
    if nic.may_mark is None:
        yield _missing("may_mark", {"may_mark": NOT_IN_A_GUEST} if nic.is_vf else {}, keeps, True, rewritten)
    elif not nic.may_mark:
        yield Fault(keeps, True, False, rewritten)
    yield from _nic(seen, rdma, policy)


def reactor(seen: Seen, rdma: RdmaClass) -> Iterator[Finding]:
    """Check the sender's NIC as the one that receives a CNP."""
    what = f"the reaction point of priority {rdma.priority} is on"
    yield from _point("reaction", what, seen, rdma, "CNPs arrive and the sender does not slow down")


def receiver(seen: Seen, rdma: RdmaClass, policy: Policy) -> Iterator[Finding]:
    """Check the NIC that receives RoCE packets and answers marked ones with CNPs."""
    yield from _nic(seen, rdma, policy)
    if not seen.nic.is_vf:
        yield from _buffer(seen, rdma, policy)
    what = f"the notification point of priority {rdma.priority} is on"
    consequence = "marked packets are answered with no CNP, and the sender never slows down"
    yield from _point("notification", what, seen, rdma, consequence)
    dscp, leave = seen.nic.cnp_dscp, f"CNPs leave with DSCP {policy.cnp.dscp}"
    consequence = "they wait in the queues that they report on, or in others than the strict one"
    if dscp is None:
        yield _missing("cnp_dscp", seen.cannot, leave, policy.cnp.dscp, consequence)
    elif dscp != policy.cnp.dscp:
        yield Fault(leave, policy.cnp.dscp, dscp, consequence)


def _point(field: str, what: str, seen: Seen, rdma: RdmaClass, consequence: str) -> Iterator[Finding]:
    """Check the notification point or the reaction point."""
    on = getattr(seen.nic, field)
    if on is None:
        yield _missing(field, seen.cannot, what, rdma.priority, consequence)
    elif rdma.priority not in on:
        yield Fault(what, rdma.priority, list(on), consequence)


def _buffer(seen: Seen, rdma: RdmaClass, policy: Policy) -> Iterator[Finding]:
    """Check the ingress buffer of a lossless priority."""
    if rdma.mode != LOSSLESS:
        return
    nic, lossless = seen.nic, [each.priority for each in policy.lossless]
    what = f"priority {rdma.priority} has an ingress buffer of its own"
    consequence = "other traffic, which no pause holds, fills the buffer, and RoCE's packets are dropped"
    buffer = nic.priority_to_buffer[rdma.priority]
    if buffer is None:
        yield _missing("priority_to_buffer", seen.cannot, what, "a buffer", consequence)
        return
    shared = [at for at, other in enumerate(nic.priority_to_buffer) if other == buffer and at not in lossless]
    if not shared:
        if not nic.buffer_bytes[buffer]:
            yield Fault(f"buffer {buffer} of priority {rdma.priority} has a size", "more than 0 bytes", 0, consequence)
    elif "own_buffer" in seen.cannot:
        yield Unseen(what, "a buffer", seen.cannot["own_buffer"])
    else:
        seen_there = f"buffer {buffer}, with priority {', '.join(map(str, shared))}"
        yield Fault(what, "a buffer", seen_there, f"{consequence}; give the NIC its cable_m in roce_host_nics")


def _nic(seen: Seen, rdma: RdmaClass, policy: Policy) -> Iterator[Finding]:
    """Check the settings that every NIC needs, whether it sends or receives."""
    nic = seen.nic
    if nic.is_vf and "trust" in seen.cannot:
        yield Unseen("its port has the policy", "the policy's settings", seen.cannot["trust"])
    else:
        yield from _nic_port(seen, rdma, policy)
    carries = f"the MTU carries RoCE packets of {policy.path_mtu_bytes} bytes"
    if nic.ip_mtu_bytes is None or nic.ip_mtu_bytes < policy.path_mtu_bytes + ROCE_HEADER_BYTES:
        yield Fault(
            carries,
            policy.path_mtu_bytes + ROCE_HEADER_BYTES,
            nic.ip_mtu_bytes,
            "connections fall back to a smaller path MTU, or fail if their ends differ",
        )


def _nic_port(seen: Seen, rdma: RdmaClass, policy: Policy) -> Iterator[Finding]:
    """Check the settings of a NIC's port. A physical function that lacks one RoCE needs is at fault, whatever the
    reason.
    """
    nic = seen.nic
    why_not = {name: f": {why}" for name, why in seen.cannot.items() if name in (*NEEDED, "pfc")}
    if nic.trust != "dscp":
        yield Fault(
            "the NIC trusts the DSCP",
            "dscp",
            nic.trust,
            f"packets without a VLAN tag all have priority 0, whatever their DSCP{why_not.get('trust', '')}",
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
            f"it shares a send queue with other traffic{why_not.get('priority_to_class', '')}",
        )
    else:
        yield from _share(nic.queues[traffic_class], rdma, f"traffic class {traffic_class}")
    yield from _pfc(nic.pfc, rdma, why_not.get("pfc", ""))
    yield from _other_pfc(nic.pfc, rdma, policy, ())
    by_host = "DCBX is the host's"
    consequence = "firmware or a peer may change these settings at any time"
    if nic.dcbx_by_host is None:
        yield _missing("dcbx_by_host", seen.cannot, by_host, True, consequence)
    elif not nic.dcbx_by_host:
        yield Fault(by_host, True, False, consequence)


def classification(port: PortQos, rdma: RdmaClass) -> Iterator[Finding]:
    """Check the port whose DSCP map decides this class's packets: where they enter a switch, or where they leave."""
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


def ingress(
    port: PortQos, rdma: RdmaClass, policy: Policy, reasons: Reasons, planned: PortQos | None = None
) -> Iterator[Finding]:
    """Check the port where RoCE packets of this class enter a switch, except for the classification.

    ``planned``: the port as the policy is compiled for it; None where its numbers are not to be compared.
    """
    if rdma.mode == LOSSLESS:
        if port.class_to_priority[rdma.traffic_class] != rdma.priority:
            yield Fault(
                f"traffic class {rdma.traffic_class} pauses priority {rdma.priority}",
                rdma.priority,
                port.class_to_priority[rdma.traffic_class],
                "a full buffer pauses another priority than the sender's, or none, and drops",
            )
        yield from _headroom(port, rdma, reasons, planned)
    yield from _port(port, rdma, policy, reasons)


def _headroom(port: PortQos, rdma: RdmaClass, reasons: Reasons, planned: PortQos | None) -> Iterator[Finding]:
    """Check the headroom for packets that arrive between a pause and its effect, and the threshold that sends the
    pause.
    """
    has = f"priority {rdma.priority} has headroom"
    dropped = "what arrives between a pause and its effect is dropped"
    here = port.headroom[rdma.priority]
    wanted = planned.headroom[rdma.priority] if planned else None
    if here is None:
        yield _missing("headroom", reasons, has, wanted.xoff_bytes if wanted else "more than 0 bytes", dropped)
    elif here.xoff_bytes <= 0:
        yield Fault(has, "more than 0 bytes", here.xoff_bytes, dropped)
    elif wanted is not None:
        yield from _compiled_headroom(here, wanted, rdma)
    # The switch computes headroom itself here.
    if planned is None or planned.cable_m is None:
        return
    for_cable = f"headroom is for a cable of {planned.cable_m} m"
    if port.cable_m is None:
        if "cable_m" not in reasons:
            yield Fault(for_cable, planned.cable_m, None, f"at full speed, {dropped}")
    elif port.cable_m < planned.cable_m:
        yield Fault(for_cable, planned.cable_m, port.cable_m, f"at full speed, {dropped}")


def _compiled_headroom(here: Headroom, wanted: Headroom, rdma: RdmaClass) -> Iterator[Finding]:
    if here.xoff_bytes < wanted.xoff_bytes:
        yield Fault(
            f"priority {rdma.priority} has the compiled headroom",
            wanted.xoff_bytes,
            here.xoff_bytes,
            "at full speed, what arrives between a pause and its effect is dropped",
        )
    if here.alpha_exponent != wanted.alpha_exponent:
        yield Fault(
            f"priority {rdma.priority} may fill 2^{wanted.alpha_exponent} times the free shared buffer",
            wanted.alpha_exponent,
            here.alpha_exponent,
            "pauses begin later than planned, and one port takes the others' buffer"
            if here.alpha_exponent > wanted.alpha_exponent
            else "pauses begin earlier than planned, before ECN has slowed the senders down",
        )


def egress(
    port: PortQos, rdma: RdmaClass, policy: Policy, reasons: Reasons, planned: PortQos | None = None
) -> Iterator[Finding]:
    """Check the port where RoCE packets of this class leave a switch. ``planned`` as in ``ingress``."""
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
        shares = list(_share(here, rdma, f"queue {rdma.queue}"))
        if shares:  # a CNP queue with a share of its own takes it from all others: it is the cause, and named first
            yield from _strict_cnp(port, policy)
        yield from shares
        yield from _marking(here.ecn, rdma, planned)
    if rdma.mode == LOSSLESS:
        if port.priority_to_queue[rdma.priority] != rdma.queue:
            yield Fault(
                f"a pause of priority {rdma.priority} stops queue {rdma.queue}",
                rdma.queue,
                port.priority_to_queue[rdma.priority],
                "the next hop's pause stops another queue, and its buffer overflows",
            )
        yield from _watchdog(port, policy, reasons, planned)
    yield from _port(port, rdma, policy, reasons)


def _watchdog(port: PortQos, policy: Policy, reasons: Reasons, planned: PortQos | None) -> Iterator[Finding]:
    """Check the PFC watchdog. A system may hold other times than the policy's; the plan then has the system's times."""
    wanted = planned.watchdog if planned else policy.watchdog
    if wanted is None:
        return
    what, consequence = "the PFC watchdog is on", "a storm of pauses stops the queue for ever, and those before it"
    if port.watchdog is None:
        yield _missing("watchdog", reasons, what, _times(wanted), consequence)
    elif planned and port.watchdog != wanted:
        yield Fault(
            "the PFC watchdog is the policy's",
            _times(wanted),
            _times(port.watchdog),
            "a storm of pauses is ended later, or another way, than planned",
        )


def _times(watchdog: Watchdog) -> str:
    return f"{watchdog.detection_ms} ms, {watchdog.restoration_ms} ms, {watchdog.action}"


def _port(port: PortQos, rdma: RdmaClass, policy: Policy, reasons: Reasons) -> Iterator[Finding]:
    yield from _keeps_dscp(port)
    yield from _pfc(port.pfc, rdma)
    # A pause of CNPs is a fault of the CNPs' own check.
    yield from _other_pfc(port.pfc, rdma, policy, (policy.cnp.priority,))
    least, passes = policy.ip_mtu_bytes, f"IP packets of {policy.ip_mtu_bytes} bytes pass"
    dropped = "large packets are dropped, small ones pass"
    if port.ip_mtu_bytes is None:
        yield _missing("ip_mtu_bytes", reasons, passes, least, dropped)
    elif port.ip_mtu_bytes < least:
        yield Fault(passes, least, port.ip_mtu_bytes, dropped)


def _keeps_dscp(port: PortQos) -> Iterator[Finding]:
    if port.rewrites_dscp:
        yield Fault(
            "packets keep their DSCP",
            "as it came",
            "rewritten",
            "the next hops and the receiver go by another DSCP than the sender's",
        )


def _pfc(pfc: tuple[int, ...], rdma: RdmaClass, why_not: str = "") -> Iterator[Finding]:
    if rdma.mode == LOSSLESS and rdma.priority not in pfc:
        yield Fault(
            f"PFC is on for priority {rdma.priority}",
            rdma.priority,
            list(pfc),
            f"pauses are neither sent nor obeyed here, and a full buffer drops{why_not}"
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


def _other_pfc(pfc: tuple[int, ...], rdma: RdmaClass, policy: Policy, apart: tuple[int, ...]) -> Iterator[Finding]:
    """Check PFC of priorities that belong to no RoCE class. A lossy class has a fault of its own."""
    known = {*(each.priority for each in policy.classes), *apart}
    others = [priority for priority in pfc if priority not in known]
    if others and (rdma.mode != LOSSLESS or rdma.priority in pfc):
        yield Fault(
            f"PFC is off for priority {', '.join(map(str, others))}, which no class of RoCE has",
            [each.priority for each in policy.lossless],
            list(pfc),
            "other traffic pauses the link, without headroom that was planned for it",
        )


def _share(queue: Queue | None, rdma: RdmaClass, what: str) -> Iterator[Finding]:
    if queue is not None and queue.strict:
        yield Fault(
            f"{what} has a share of {rdma.bandwidth_percent}%",
            rdma.bandwidth_percent,
            "strict",
            "RoCE starves all other traffic, CNPs of a lower queue among it",
        )
    elif queue is None or queue.bandwidth_percent != rdma.bandwidth_percent:
        yield Fault(
            f"{what} has a share of {rdma.bandwidth_percent}%",
            rdma.bandwidth_percent,
            queue.bandwidth_percent if queue else None,
            "the guaranteed share is another than the policy's",
        )


def _marking(ecn: Ecn | None, rdma: RdmaClass, planned: PortQos | None) -> Iterator[Finding]:
    """Check ECN of RoCE's queue: at the policy's thresholds, or at those compiled for this port."""
    queue = planned.queues[rdma.queue] if planned else None
    wanted, whose = (rdma.ecn, "the policy's") if rdma.ecn else (queue.ecn if queue else None, "the compiled")
    if ecn is None:
        yield Fault(
            f"queue {rdma.queue} marks ECN",
            "thresholds",
            None,
            "senders never learn of congestion: "
            + ("PFC pauses them instead" if rdma.mode == LOSSLESS else "packets are dropped"),
        )
    elif wanted and ecn != wanted:
        yield Fault(
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
        return "no queue ever gets so long, so that nothing is marked: a wrong unit?"
    if seen.minimum_bytes > wanted.minimum_bytes:
        return "marking begins later than planned, perhaps after PFC"
    return "congestion is answered otherwise than planned"


def cnp_classification(port: PortQos, policy: Policy) -> Iterator[Finding]:
    """Check the port whose DSCP map decides CNPs: where they enter a switch, or where they leave."""
    traffic_class = port.dscp_to_class[policy.cnp.dscp]
    if traffic_class != policy.cnp.traffic_class:
        yield Fault(
            f"DSCP {policy.cnp.dscp} of CNPs is traffic class {policy.cnp.traffic_class}",
            policy.cnp.traffic_class,
            traffic_class,
            "CNPs wait with other traffic, and senders slow down too late",
        )


def cnp_egress(port: PortQos, policy: Policy) -> Iterator[Finding]:
    """Check the port where CNPs leave a switch."""
    yield from _keeps_dscp(port)
    queue = port.class_to_queue[policy.cnp.traffic_class]
    if queue != policy.cnp.queue:
        yield Fault(
            f"CNPs leave by queue {policy.cnp.queue}",
            policy.cnp.queue,
            queue,
            "they wait in a queue that is not strict",
        )
    yield from _strict_cnp(port, policy)
    here = port.queues[policy.cnp.queue]
    if here is not None and here.strict and here.ecn is not None:
        yield Fault(
            f"queue {policy.cnp.queue} marks nothing", None, _thresholds(here.ecn), "CNPs are marked themselves"
        )
    if policy.cnp.priority in port.pfc:
        yield Fault(
            f"priority {policy.cnp.priority} of CNPs is never paused", "off", list(port.pfc), "a pause holds CNPs up"
        )


def _strict_cnp(port: PortQos, policy: Policy) -> Iterator[Finding]:
    here = port.queues[policy.cnp.queue]
    if here is None or not here.strict:
        yield Fault(
            f"queue {policy.cnp.queue} of CNPs is strict",
            "strict",
            None if here is None else f"{here.bandwidth_percent}%",
            "under load CNPs are late, and senders slow down too late",
        )


def link(upstream: PortQos | Nic, downstream: PortQos | Nic) -> Iterator[Finding]:
    """Check both ends of a cable. Each end's own check covers that both pause, or neither."""
    large, takes = upstream.ip_mtu_bytes, downstream.ip_mtu_bytes
    # A NIC that takes less is a fault of its own, by what RoCE needs.
    if isinstance(downstream, PortQos) and large is not None and takes is not None and large > takes:
        yield Fault(
            "what one end sends, the other takes",
            f"an MTU of at least {large}",
            takes,
            "packets of full size are dropped at the link",
        )


def ecmp(fields: tuple[str, ...] | None, reasons: Reasons) -> Iterator[Finding]:
    """Check how a switch spreads flows over equal paths."""
    what = "ECMP's hash takes the UDP source port"
    consequence = "all connections of two hosts share one way, whatever their queue pairs"
    if fields is None:
        yield _missing("ecmp_fields", reasons, what, "source_port", consequence)
    elif "source_port" not in fields:
        yield Fault(what, "source_port", list(fields), consequence)
