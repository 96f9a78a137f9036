# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check the applications and NICs of a RoCE path. Pure.

Each check gets one part as it was read back and returns its findings for one class of the policy; none where the part
is as the policy says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Application, dscp_of, ecn_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import (
    NEEDED,
    NicRequest,
    differences,
    requested,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.programs import PROGRAMS, to_set
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic, VirtualFunction
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.class_checks import (
    pfc_of_class,
    pfc_of_others,
    share,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault, missing, unseen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import (
    LOSSLESS,
    Policy,
    RdmaClass,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

NOT_IN_A_GUEST = "a guest does not see what the physical function of its VF trusts"
ROUTED_GIDS = "RoCE v2, IPv4", "RoCE v2, IPv6"


def no_application(rdma: RdmaClass, nics: Mapping[str, SeenNic]) -> Iterator[Claim]:
    """Return the finding for a host without a named application, with the environment that each program needs."""
    routed = [set(routed_gids(seen.gids)) for seen in nics.values() if seen.gids is not None]
    common = min(set.intersection(*routed), default=None) if routed else None
    variables = dict.fromkeys(
        f"{program.traffic_class}={rdma.tos}" + (f" {program.gid_index}={common}" if common is not None else "")
        for program in PROGRAMS.values()
    )
    yield fault(
        "the traffic class of its application is named",
        rdma.tos,
        None,
        f"what its packets carry is not known; start what sends from it with {', or '.join(variables)}, and name it in "
        f"roce_host_applications, as in [{{name: NCCL, tos: {rdma.tos}}}]",
    )


def application(app: Application, rdma: RdmaClass) -> Iterator[Claim]:
    """Check what the application requests of its NIC."""
    if dscp_of(app.tos) != rdma.dscp:
        yield fault(
            f"{app.name} asks for DSCP {rdma.dscp} (ToS {rdma.tos})",
            rdma.tos,
            app.tos,
            f"its packets carry DSCP {dscp_of(app.tos)} and use another class than {rdma.name} on every hop"
            + to_set(app.name, "traffic_class", rdma.tos),
        )
    elif ecn_of(app.tos) != rdma.ect:
        yield fault(
            f"{app.name} asks for an ECN-capable transport (ToS {rdma.tos})",
            rdma.tos,
            app.tos,
            (
                "a congested queue drops its packets instead of marking them"
                if ecn_of(app.tos) == 0
                else "its packets already carry a mark that only the network should set"
            )
            + to_set(app.name, "traffic_class", rdma.tos),
        )
    several = f"{app.name} uses several queue pairs for a connection"
    if app.queue_pairs is None:
        yield unseen(several, "2 or more", f"how many queue pairs {app.name} uses was not given")
    elif app.queue_pairs == 1:
        yield fault(
            several, "2 or more", 1, "each connection has one UDP source port, and so ECMP keeps it on one path"
        )
    yield from environment(app)


def environment(app: Application) -> Iterator[Claim]:
    """Compare the declared environment of an application of the table with what the application was said to request."""
    program = PROGRAMS.get(app.name)
    if app.environment is None or program is None:
        return
    declared = dict(app.environment)
    tos: Any = declared.get(program.traffic_class, program.default_tos)
    with suppress(ValueError):  # as the programs read it, also hexadecimal
        tos = int(str(tos)[:8], 0)
    if tos != app.tos:
        consequence = f"{app.name} is started with another ToS than it was said to request"
        yield fault(f"{program.traffic_class} is {app.tos}", app.tos, tos, consequence)
    for path in program.paths:
        value = declared.get(path.variable)
        if value != path.value:
            reason = (
                f"its environment has {value or 'no such variable'}; needed only where one flow takes several paths"
            )
            yield unseen(f"{path.variable}={path.value}: {path.effect} ({path.source})", path.value, reason)


def routed_gids(gids_seen: Sequence[str | None]) -> list[int]:
    """Return the indexes of a NIC's GIDs that are RoCE v2 of an address that is routed."""
    return [index for index, gid in enumerate(gids_seen) if (gid or "").startswith(ROUTED_GIDS)]


def gids(app: Application, nics: Mapping[str, SeenNic]) -> Iterator[Claim]:
    """Check the GID that the application uses on each NIC of its host; the NIC's own choice is not checked."""
    if app.gid_index is None:
        return
    for name, seen in nics.items():
        uses = f"GID {app.gid_index} of {name} is RoCE v2 of an address that is routed"
        if seen.gids is None:
            yield unseen(uses, ROUTED_GIDS[0], "its GIDs were not read")
            continue
        gid = seen.gids[app.gid_index] if app.gid_index < len(seen.gids) else None
        if not (gid or "").startswith(ROUTED_GIDS):
            routed = routed_gids(seen.gids)
            yield fault(
                uses,
                ROUTED_GIDS[0],
                gid,
                f"{app.name}'s connections fail or carry no DSCP; "
                + (f"{name} has such a GID at {', '.join(map(str, routed))}" if routed else f"{name} has none: no IP?")
                + "".join(to_set(app.name, "gid_index", index) for index in routed[:1]),
            )


def virtual_function(vf: VirtualFunction, rdma: RdmaClass) -> Iterator[Claim]:
    """Check what the NIC does to the packets of a VF, as its host shows it."""
    keeps = "the NIC leaves the priority of the VF's packets"
    if vf.mode != "legacy":
        reason = "the mode of the NIC's embedded switch is not shown"
        if vf.mode:
            representor = vf.representor or "its missing representor"
            reason = f"in {vf.mode} mode, the rules of tc and Open vSwitch at {representor} decide, and were not read"
        remedy = "use the legacy mode (devlink dev eswitch) for VFs of RoCE"
        yield fault(keeps, rdma.priority, None, f"not known beyond VF {vf.index}: {reason}; {remedy}")
    elif vf.qos not in (0, rdma.priority):
        yield fault(
            keeps,
            rdma.priority,
            f"VLAN {vf.vlan} with priority {vf.qos}",
            "packets leave with this priority in their tag, whatever their DSCP: set the VF's VLAN without qos",
        )


def sender(seen: SeenNic, rdma: RdmaClass, policy: Policy) -> Iterator[Claim]:
    """Check the NIC that sends RoCE packets."""
    nic = seen.nic
    if nic.forced_tos is not None and nic.forced_tos != rdma.tos:
        yield fault(
            "the device's traffic class is the policy's ToS, or the application's own",
            rdma.tos,
            nic.forced_tos,
            f"whatever applications ask for, packets carry DSCP {dscp_of(nic.forced_tos)}"
            + (" and are never marked" if ecn_of(nic.forced_tos) == 0 else ""),
        )
    by_rdma_cm = "RDMA-CM gives connections the policy's ToS"
    if nic.cm_tos is None:
        consequence = "the DSCP of connections by RDMA-CM is unknown; is rdma_cm loaded?"
        yield missing("cm_tos", seen.cannot, by_rdma_cm, rdma.tos, consequence)
    elif nic.cm_tos not in [rdma_class.tos for rdma_class in policy.classes]:
        yield fault(
            by_rdma_cm,
            rdma.tos,
            nic.cm_tos,
            f"connections by RDMA-CM that set no ToS of their own use DSCP {dscp_of(nic.cm_tos)}",
        )
    keeps = "this function's packets keep the DSCP that is set"
    rewritten = "the NIC or the hypervisor's switch rewrites it, and every hop treats them as other traffic"
    if nic.may_mark is None:
        yield missing("may_mark", {"may_mark": NOT_IN_A_GUEST} if nic.is_vf else {}, keeps, True, rewritten)
    elif not nic.may_mark:
        yield fault(keeps, True, False, rewritten)
    yield from _nic(seen, rdma, policy)


def reactor(seen: SeenNic, rdma: RdmaClass) -> Iterator[Claim]:
    """Check the sender's NIC as the one that receives a CNP."""
    claim = f"the reaction point of priority {rdma.priority} is on"
    yield from _point("reaction", claim, seen, rdma, "CNPs arrive and the sender does not slow down")


def receiver(seen: SeenNic, rdma: RdmaClass, policy: Policy) -> Iterator[Claim]:
    """Check the NIC that receives RoCE packets and answers marked ones with CNPs; of a known VF its port does."""
    yield from _nic(seen, rdma, policy)
    if seen.parent is not None:
        return
    if not seen.nic.is_vf:
        yield from _buffer(seen, rdma, policy)
    claim = f"the notification point of priority {rdma.priority} is on"
    consequence = "marked packets are answered with no CNP, and the sender never slows down"
    yield from _point("notification", claim, seen, rdma, consequence)
    dscp, leave = seen.nic.cnp_dscp, f"CNPs leave with DSCP {policy.cnp.dscp}"
    consequence = "they wait in the queues that they report on, or in a queue that is not the strict one"
    if dscp is None:
        yield missing("cnp_dscp", seen.cannot, leave, policy.cnp.dscp, consequence)
    elif dscp != policy.cnp.dscp:
        yield fault(leave, policy.cnp.dscp, dscp, consequence)


def as_planned(seen: SeenNic, request: NicRequest, policy: Policy) -> Iterator[Claim]:
    """Compare the NIC with its plan, as roce_host does, so that no setting is left out.

    Nothing is returned where a check of a class fails, which says more of the cause. ``request``: the inventory's
    settings of the NIC. Not compared: the ToS of RDMA-CM (of any class) and of the device (which may leave it to
    applications), and queues that no class uses (how many there are is not read).
    """
    for rdma in policy.classes:
        findings = (*sender(seen, rdma, policy), *receiver(seen, rdma, policy), *reactor(seen, rdma))
        if any(finding.holds is False for finding in findings):
            return
    try:
        wanted = requested(policy, policy.classes[0], request, seen)[0]
    except FabricError as error:
        yield fault("its settings can be planned", "buffers that fit", None, str(error))
        return
    used = [traffic.traffic_class for traffic in policy.all_classes]
    queues = tuple(queue if number in used else None for number, queue in enumerate(wanted.queues))
    wanted = replace(wanted, cm_tos=None, forced_tos=seen.nic.forced_tos, queues=queues)
    for setting, (seen_value, wanted_value) in differences(wanted, seen).items():
        yield fault(setting, wanted_value, seen_value, "the NIC is not as its plan; apply roce_host again")


def _point(field: str, claim: str, seen: SeenNic, rdma: RdmaClass, consequence: str) -> Iterator[Claim]:
    """Check the notification point or the reaction point."""
    on = getattr(seen.nic, field)
    if on is None:
        yield missing(field, seen.cannot, claim, rdma.priority, consequence)
    elif rdma.priority not in on:
        yield fault(claim, rdma.priority, list(on), consequence)


def _buffer(seen: SeenNic, rdma: RdmaClass, policy: Policy) -> Iterator[Claim]:
    """Check the ingress buffer of a lossless priority."""
    if rdma.mode != LOSSLESS:
        return
    nic, lossless = seen.nic, [rdma_class.priority for rdma_class in policy.lossless]
    claim = f"priority {rdma.priority} has an ingress buffer of its own"
    consequence = "other traffic, which no pause holds, fills the buffer, and RoCE's packets are dropped"
    buffer = nic.priority_to_buffer[rdma.priority]
    if buffer is None:
        yield missing("priority_to_buffer", seen.cannot, claim, "a buffer", consequence)
        return
    shared = [
        priority
        for priority, buffer_of_priority in enumerate(nic.priority_to_buffer)
        if buffer_of_priority == buffer and priority not in lossless
    ]
    if not shared and not nic.buffer_bytes[buffer]:
        yield fault(f"buffer {buffer} of priority {rdma.priority} has a size", "more than 0 bytes", 0, consequence)
    elif "own_buffer" in seen.cannot:
        yield unseen(claim, "a buffer", seen.cannot["own_buffer"])
    elif shared:
        seen_buffer = f"buffer {buffer}, with priority {', '.join(map(str, shared))}"
        yield fault(claim, "a buffer", seen_buffer, f"{consequence}; give the NIC its cable_m in roce_host_nics")


def _nic(seen: SeenNic, rdma: RdmaClass, policy: Policy) -> Iterator[Claim]:
    """Check the settings that every NIC needs, whether it sends or receives."""
    nic = seen.nic
    if seen.parent is None and nic.is_vf and "trust" in seen.cannot:
        yield unseen("its port has the policy", "the policy's settings", seen.cannot["trust"])
    elif seen.parent is None:
        yield from _nic_port(seen, rdma, policy)
    carries = f"the MTU carries RoCE packets of {policy.path_mtu_bytes} bytes"
    if nic.ip_mtu_bytes is None or nic.ip_mtu_bytes < policy.roce_packet_bytes:
        yield fault(
            carries,
            policy.roce_packet_bytes,
            nic.ip_mtu_bytes,
            "connections fall back to a smaller path MTU, or fail if their ends differ",
        )


def _nic_port(seen: SeenNic, rdma: RdmaClass, policy: Policy) -> Iterator[Claim]:
    """Check the settings of a NIC's port.

    A physical function that lacks a setting which RoCE needs is at fault, whatever the reason.
    """
    nic = seen.nic
    reason_texts = {name: f": {reason}" for name, reason in seen.cannot.items() if name in (*NEEDED, "pfc")}
    if nic.trust != "dscp":
        yield fault(
            "the NIC trusts the DSCP",
            "dscp",
            nic.trust,
            f"packets without a VLAN tag all have priority 0, whatever their DSCP{reason_texts.get('trust', '')}",
        )
    elif nic.dscp_to_priority[rdma.dscp] != rdma.priority:
        yield fault(
            f"DSCP {rdma.dscp} is priority {rdma.priority}",
            rdma.priority,
            nic.dscp_to_priority[rdma.dscp],
            "its buffer, its share of the bandwidth and its pauses are another priority's",
        )
    traffic_class = nic.priority_to_class[rdma.priority]
    if traffic_class != rdma.traffic_class:
        yield fault(
            f"priority {rdma.priority} is traffic class {rdma.traffic_class}",
            rdma.traffic_class,
            traffic_class,
            f"it shares a send queue with other traffic{reason_texts.get('priority_to_class', '')}",
        )
    else:
        yield from share(nic.queues[traffic_class], rdma, f"traffic class {traffic_class}")
    yield from pfc_of_class(nic.pfc, rdma, reason_texts.get("pfc", ""))
    yield from pfc_of_others(nic.pfc, rdma, policy, ())
    by_host = "DCBX is the host's"
    consequence = "firmware or a peer may change these settings at any time"
    if nic.dcbx_by_host is None:
        yield missing("dcbx_by_host", seen.cannot, by_host, True, consequence)
    elif not nic.dcbx_by_host:
        yield fault(by_host, True, False, consequence)
