# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Break any one link of the chain, and the path proof names that one first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from switches import ECN, port_qos
from switches import policies as any_policy

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import checks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.error import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import (
    Checker,
    Host,
    ReadBack,
    claims,
    deadlock,
    first_fault,
    follow,
    survey,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import LOSSLESS, read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import (
    Application,
    Ecn,
    Headroom,
    Nic,
    Queue,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.topology import End, Fabric, buffer_cycle

LEAVES, SPINES = ("leaf1", "leaf2"), ("spine1", "spine2")
# gpu1 - leaf1 - both spines - leaf2 - gpu2
LINKS = [
    (End("gpu1", "mlx5_0"), End("leaf1", "h1")),
    (End("gpu2", "mlx5_0"), End("leaf2", "h1")),
    *((End(leaf, f"u{at}"), End(spine, leaf)) for leaf in LEAVES for at, spine in enumerate(SPINES, 1)),
]
START, GOAL = End("gpu1", "mlx5_0"), End("gpu2", "mlx5_0")


def nic(policy):
    """A NIC as the policy wants it."""
    qos = port_qos(policy)
    priority = {each.traffic_class: each.priority for each in (*policy.classes, policy.cnp, policy.default)}
    wanted = tuple(each.priority for each in policy.classes)
    return Nic(
        name="mlx5_0",
        interface="eth0",
        trust="dscp",
        dscp_to_priority=tuple(priority[each] for each in policy.dscp_to_class()),
        priority_to_class=tuple(next((one for one, other in priority.items() if other == at), None) for at in range(8)),
        queues=tuple(queue and replace(queue, ecn=None) for queue in qos.queues),
        pfc=qos.pfc,
        notification=wanted,
        reaction=wanted,
        cnp_dscp=policy.cnp.dscp,
        cm_tos=policy.classes[0].tos,
        ip_mtu_bytes=policy.ip_mtu_bytes,
    )


def site(given=None):
    """A policy, and a fabric of four switches where everything is as it says."""
    policy = read_policy(given)
    apps = (Application("NCCL", policy.classes[0].tos, queue_pairs=4),)
    hosts = {name: Host({"mlx5_0": nic(policy)}, apps) for name in ("gpu1", "gpu2")}
    fabric = Fabric(LINKS, [*LEAVES, *SPINES])
    qos = port_qos(policy)
    switches = {
        name: Switch(name, "any", {end.port: qos for end in fabric.peer if end.device == name}, policy.ecmp_fields)
        for name in fabric.switches
    }
    return policy, fabric, ReadBack(hosts, switches, switches)


def checked(policy, fabric, seen, at=0):
    return follow(fabric, START, GOAL, Checker(policy, policy.classes[at], seen))


def port(seen, switch, name, **changes):
    """``seen`` with another QoS on one port."""
    old = seen.switches[switch]
    new = replace(old, ports={**old.ports, name: replace(old.ports[name], **changes)})
    return replace(seen, switches={**seen.switches, switch: new})


def host(seen, name, **changes):
    """``seen`` with another NIC in one host."""
    old = seen.hosts[name]
    return replace(
        seen, hosts={**seen.hosts, name: replace(old, nics={"mlx5_0": replace(old.nics["mlx5_0"], **changes)})}
    )


def app(seen, **changes):
    old = seen.hosts["gpu1"]
    return replace(
        seen, hosts={**seen.hosts, "gpu1": replace(old, applications=(replace(old.applications[0], **changes),))}
    )


def at(values, place, value):
    """``values`` with another at ``place``."""
    return (*values[:place], value, *values[place + 1 :])


POLICY, FABRIC, SEEN = site()
QOS = port_qos(POLICY)
NIC = nic(POLICY)


def test_a_path_that_is_as_the_policy_says():
    parts = checked(POLICY, FABRIC, SEEN)
    assert first_fault(parts) is None
    made = claims(parts, "test")
    assert all(claim.holds for claim in made)
    places = [part.where for part in parts]
    # In the order of the packets, over both spines, and the CNP's way back.
    order = [
        *("gpu1 NCCL", "gpu1 mlx5_0", "leaf1 h1, in", "leaf1 u1, out", "leaf1 u2, out", "spine1 leaf1, in"),
        *("spine2 leaf2, out", "leaf2 u1, in", "leaf2 h1, out", "gpu2 mlx5_0", "leaf2 h1, in", "leaf1 h1, out"),
    ]
    assert [places.index(each) for each in order] == sorted(places.index(each) for each in order)
    assert len({(part.layer, part.where) for part in parts}) == len(parts)


BROKEN = {
    "ToS of another class": (app(SEEN, tos=0), "gpu1 NCCL", "DSCP 26"),
    "ToS without ECT": (app(SEEN, tos=104), "gpu1 NCCL", "ECN-capable"),
    "one queue pair": (app(SEEN, queue_pairs=1), "gpu1 NCCL", "queue pairs"),
    "a device that forces another ToS": (host(SEEN, "gpu1", forced_tos=0), "gpu1 mlx5_0", "traffic class"),
    "RDMA-CM's default": (host(SEEN, "gpu1", cm_tos=0), "gpu1 mlx5_0", "RDMA-CM"),
    "a VF that may not mark": (host(SEEN, "gpu1", may_mark=False), "gpu1 mlx5_0", "keep the DSCP"),
    "a NIC that trusts PCP": (host(SEEN, "gpu1", trust="pcp"), "gpu1 mlx5_0", "trusts the DSCP"),
    "another priority in the NIC": (
        host(SEEN, "gpu1", dscp_to_priority=at(NIC.dscp_to_priority, 26, 0)),
        "gpu1 mlx5_0",
        "DSCP 26 is priority 3",
    ),
    "another class in the NIC": (
        host(SEEN, "gpu1", priority_to_class=at(NIC.priority_to_class, 3, 0)),
        "gpu1 mlx5_0",
        "priority 3 is traffic class 3",
    ),
    "another share in the NIC": (
        host(SEEN, "gpu1", queues=at(NIC.queues, 3, Queue(False, 10))),
        "gpu1 mlx5_0",
        "share of 50%",
    ),
    "no PFC in the NIC": (host(SEEN, "gpu1", pfc=()), "gpu1 mlx5_0", "PFC is on for priority 3"),
    "a small MTU in the NIC": (host(SEEN, "gpu1", ip_mtu_bytes=1500), "gpu1 mlx5_0", "MTU"),
    "a DSCP that is not mapped": (
        port(SEEN, "leaf1", "h1", dscp_to_class=at(QOS.dscp_to_class, 26, None)),
        "leaf1 h1, in",
        "DSCP 26 is traffic class 3",
    ),
    "SONiC's default map": (
        port(SEEN, "leaf1", "h1", dscp_to_class=at(QOS.dscp_to_class, 26, 1)),
        "leaf1 h1, in",
        "DSCP 26 is traffic class 3",
    ),
    "another DSCP in RoCE's class": (
        port(SEEN, "leaf1", "h1", dscp_to_class=at(QOS.dscp_to_class, 3, 3)),
        "leaf1 h1, in",
        "alone",
    ),
    "PFC for another priority": (port(SEEN, "leaf1", "u2", pfc=(4,)), "leaf1 u2, out", "PFC is on for priority 3"),
    "a class that pauses another priority": (
        port(SEEN, "leaf1", "h1", class_to_priority=at(QOS.class_to_priority, 3, 4)),
        "leaf1 h1, in",
        "pauses priority 3",
    ),
    "no headroom": (
        port(SEEN, "leaf1", "h1", headroom=at(QOS.headroom, 3, Headroom(0, 0, 0, 0))),
        "leaf1 h1, in",
        "has headroom",
    ),
    "another queue": (
        port(SEEN, "spine2", "leaf2", class_to_queue=at(QOS.class_to_queue, 3, 0)),
        "spine2 leaf2, out",
        "leaves by queue 3",
    ),
    "no ECN": (
        port(SEEN, "spine1", "leaf2", queues=at(QOS.queues, 3, Queue(False, 50))),
        "spine1 leaf2, out",
        "queue 3 marks ECN",
    ),
    "thresholds in kB": (
        port(SEEN, "spine1", "leaf2", queues=at(QOS.queues, 3, Queue(False, 50, Ecn(150, 1500, 100)))),
        "spine1 leaf2, out",
        "compiled thresholds",
    ),
    "a strict RoCE queue": (
        port(SEEN, "leaf1", "u1", queues=at(QOS.queues, 3, Queue(True, None, ECN))),
        "leaf1 u1, out",
        "share of 50%",
    ),
    "a queue that nobody schedules": (
        port(SEEN, "leaf1", "u1", queues=at(QOS.queues, 3, None)),
        "leaf1 u1, out",
        "queue 3 is scheduled",
    ),
    "a pause that stops another queue": (
        port(SEEN, "leaf1", "u1", priority_to_queue=at(QOS.priority_to_queue, 3, 4)),
        "leaf1 u1, out",
        "stops queue 3",
    ),
    "a small MTU on a switch": (port(SEEN, "spine2", "leaf2", ip_mtu_bytes=1500), "spine2 leaf2, out", "bytes pass"),
    "lossless at one end only": (
        port(SEEN, "spine1", "leaf1", pfc=()),
        "leaf1 u1 - spine1 leaf1",
        "both ends of the link",
    ),
    "a receiver that trusts PCP": (host(SEEN, "gpu2", trust="pcp"), "gpu2 mlx5_0", "trusts the DSCP"),
    "no notification point": (host(SEEN, "gpu2", notification=()), "gpu2 mlx5_0", "notification point"),
    "CNPs of the operator's default": (host(SEEN, "gpu2", cnp_dscp=4), "gpu2 mlx5_0", "CNPs leave with DSCP 48"),
    "CNPs in another class": (
        port(SEEN, "spine1", "leaf2", dscp_to_class=at(QOS.dscp_to_class, 48, 0)),
        "spine1 leaf2, in",
        "DSCP 48 of CNPs",
    ),
    "CNPs in another queue": (
        port(SEEN, "leaf2", "u2", class_to_queue=at(QOS.class_to_queue, 6, 0)),
        "leaf2 u2, out",
        "CNPs leave by queue 6",
    ),
    "CNPs that are not strict": (
        port(SEEN, "leaf1", "h1", queues=at(QOS.queues, 6, Queue(False, 14))),
        "leaf1 h1, out",
        "strict",
    ),
    "CNPs that are marked": (
        port(SEEN, "leaf1", "h1", queues=at(QOS.queues, 6, Queue(True, None, ECN))),
        "leaf1 h1, out",
        "marks nothing",
    ),
    "a hop that rewrites DSCPs": (
        port(SEEN, "spine1", "leaf2", rewrites_dscp=True),
        "spine1 leaf2, out",
        "keep their DSCP",
    ),
    "CNPs that are paused": (port(SEEN, "leaf1", "h1", pfc=(3, 6)), "leaf1 h1, out", "never paused"),
    "no reaction point": (host(SEEN, "gpu1", reaction=()), "gpu1 mlx5_0", "reaction point"),
    "a switch that hashes addresses alone": (
        replace(
            SEEN,
            switches={**SEEN.switches, "leaf1": replace(SEEN.switches["leaf1"], ecmp_fields=("source_ip",))},
        ),
        "leaf1",
        "UDP source port",
    ),
    "a switch that was not read": (
        replace(SEEN, switches={name: each for name, each in SEEN.switches.items() if name != "spine2"}),
        "spine2 leaf1, in",
        "was read back",
    ),
}


@pytest.mark.parametrize(("planned", "seen", "short"), [(5, 0, True), (41, 40, True), (5, 40, False), (5, None, False)])
def test_headroom_of_the_switchs_own_reckoning_is_for_the_cable(planned, seen, short):
    found = list(checks.thresholds(replace(QOS, cable_m=seen), replace(QOS, cable_m=planned), POLICY.classes[0]))
    assert [fault.what for fault in found] == [f"headroom is for a cable of {planned} m"] * short


def test_of_a_cable_with_an_end_that_was_not_read_nothing_is_claimed():
    unread = replace(SEEN, switches={name: each for name, each in SEEN.switches.items() if name != "spine2"})
    cables = [[part.where for part in checked(POLICY, FABRIC, seen) if " - " in part.where] for seen in (SEEN, unread)]
    assert [where for where in cables[0] if "spine2" not in where] == cables[1] != cables[0]


def test_a_switch_that_classifies_where_packets_leave():
    leaf = replace(SEEN.switches["leaf1"], system="linux")
    seen = replace(SEEN, switches={**SEEN.switches, "leaf1": leaf})
    assert first_fault(checked(POLICY, FABRIC, seen)) is None
    for dscp, egress, what in ((26, "u2", "DSCP 26 is traffic class 3"), (48, "h1", "DSCP 48 of CNPs")):
        other = at(QOS.dscp_to_class, dscp, 0)
        (fault,) = (
            each
            for part in checked(POLICY, FABRIC, port(seen, "leaf1", egress, dscp_to_class=other))
            for each in part.faults
        )
        assert (fault.where, fault.wanted, fault.seen) == (f"leaf1 {egress}, out", QOS.dscp_to_class[dscp], 0)
        assert what in fault.what
    # What comes in by h1 leaves by the others.
    unheeded = port(seen, "leaf1", "h1", dscp_to_class=at(QOS.dscp_to_class, 26, 0))
    assert first_fault(checked(POLICY, FABRIC, unheeded)) is None
    surveyed = survey(FABRIC, Checker(POLICY, POLICY.classes[0], unheeded))
    assert first_fault(surveyed).where == "leaf1 h1, out"


@pytest.mark.parametrize("name", BROKEN)
def test_the_first_broken_hop_is_named(name):
    seen, where, what = BROKEN[name]
    fault = first_fault(checked(POLICY, FABRIC, seen))
    assert fault is not None
    assert fault.where == where
    assert what in fault.what
    assert fault.consequence
    assert fault.wanted != fault.seen
    # And the survey of the whole fabric finds it too, wherever else it is seen.
    surveyed = list(survey(FABRIC, Checker(POLICY, POLICY.classes[0], seen)))
    assert where in [each.where for part in surveyed for each in part.faults]
    failed = [claim for claim in claims(surveyed, "test") if claim.holds is False]
    assert any(claim.claim == f"{fault.where}: {fault.what}" and claim.reason == fault.consequence for claim in failed)


def test_a_survey_of_what_is_as_the_policy_says():
    parts = list(survey(FABRIC, Checker(POLICY, POLICY.classes[0], SEEN)))
    assert first_fault(parts) is None
    assert {part.layer for part in parts} == {"application", "sender", "switch", "receiver", "cnp"}


@settings(max_examples=60, deadline=None)
@given(any_policy())
def test_every_policy_that_is_applied_everywhere_holds(given_policy):
    policy, fabric, seen = site(given_policy)
    for rdma in policy.classes[:1]:
        checker = Checker(policy, rdma, seen)
        assert first_fault(follow(fabric, START, GOAL, checker)) is None
        assert first_fault(survey(fabric, checker)) is None


def test_pfc_where_the_class_is_lossy():
    policy, fabric, seen = site({"classes": {"roce": {"mode": "lossy"}}})
    fault = first_fault(checked(policy, fabric, port(seen, "leaf1", "h1", pfc=(3,))))
    assert (fault.where, fault.wanted) == ("gpu1 mlx5_0 - leaf1 h1", "the same at both ends")


def test_what_cannot_be_followed():
    checker = Checker(POLICY, POLICY.classes[0], SEEN)
    with pytest.raises(FabricError, match=r"NIC gpu3 mlx5_0: it has no cable in the fabric's links; add its link"):
        follow(FABRIC, START, End("gpu3", "mlx5_0"), checker)
    with pytest.raises(FabricError, match="it is both ends of the path"):
        follow(FABRIC, START, START, checker)
    parted = Fabric([(START, End("leaf1", "h1")), (GOAL, End("leaf2", "h1"))], LEAVES)
    with pytest.raises(FabricError, match="leaf1 has no way to leaf2"):
        follow(parted, START, GOAL, checker)
    with pytest.raises(FabricError, match=r"port leaf1 h1: it has cables to gpu1 mlx5_0 and to gpu2 mlx5_0"):
        Fabric([(START, End("leaf1", "h1")), (GOAL, End("leaf1", "h1"))], LEAVES)
    with pytest.raises(FabricError, match="both ends are at one device"):
        Fabric([(End("leaf1", "a"), End("leaf1", "b"))], LEAVES)


def ring(size):
    return Fabric(
        [
            *((End(f"s{at}", "right"), End(f"s{(at + 1) % size}", "left")) for at in range(size)),
            *((End(f"h{at}", "mlx5_0"), End(f"s{at}", "host")) for at in range(size)),
        ],
        [f"s{at}" for at in range(size)],
    )


def test_buffers_that_wait_for_each_other():
    assert buffer_cycle(FABRIC) == []
    # In a ring of three, every packet's way is one link, and nothing waits.
    assert buffer_cycle(ring(3)) == []
    cycle = buffer_cycle(ring(5))
    assert len(cycle) == 5
    assert all(one[1] == other[0] for one, other in zip(cycle, [*cycle[1:], cycle[0]]))
    broken = {link: link != cycle[0] for link in cycle}
    assert buffer_cycle(ring(5), broken) == []


def test_a_ring_with_pfc_is_a_fault_and_one_without_is_none():
    fabric = ring(5)
    switches = {name: Switch(name, "any", dict.fromkeys(("left", "right"), QOS)) for name in fabric.switches}
    seen = ReadBack({}, switches)
    part = deadlock(fabric, Checker(POLICY, POLICY.classes[0], seen))
    assert "watchdog" in part.faults[0].consequence
    assert (
        part.faults[0].seen.count("s0") == 2
        or part.faults[0].seen.split(" -> ")[0] == part.faults[0].seen.split(" -> ")[-1]
    )
    lossy = {
        name: replace(each, ports={port: replace(qos, pfc=()) for port, qos in each.ports.items()})
        for name, each in switches.items()
    }
    assert deadlock(fabric, Checker(POLICY, POLICY.classes[0], replace(seen, switches=lossy))).faults == ()


def test_both_classes_of_a_policy_have_their_path():
    two = {"classes": {"roce": {}, "storage": {"dscp": 10, "traffic_class": 4, "bandwidth_percent": 20}}}
    policy, fabric, seen = site(two)
    assert [each.mode for each in policy.classes] == [LOSSLESS, LOSSLESS]
    second = app(seen, tos=policy.classes[1].tos)
    for at_class in (0, 1):
        parts = checked(policy, fabric, second, at_class)
        assert first_fault(parts) is None
        assert ("gpu1 NCCL" in [part.where for part in parts]) == (at_class == 1)
    # An application that is of no class counts for each.
    assert first_fault(checked(policy, fabric, app(seen, tos=0), 1)).where == "gpu1 NCCL"
