# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The path proof names the one broken link of the chain first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from followed_path import FABRIC, POLICY, QOS, SEEN, app, checked, claimed, first_fault, host, port
from roce_path import at, nic
from switches import ECN, HEADROOM

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Headroom, Queue, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.follow import Checker, survey

NIC = nic(POLICY)


TWO_SHARES = at(at(QOS.queues, 6, Queue(False, 14)), 3, Queue(False, 44, ECN))


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
    "an RDMA-CM of which nothing is known": (host(SEEN, "gpu1", cm_tos=None), "gpu1 mlx5_0", "RDMA-CM"),
    "a function of which nobody says whether it may mark": (
        host(SEEN, "gpu1", may_mark=None),
        "gpu1 mlx5_0",
        "keep the DSCP",
    ),
    "a traffic class that is neither strict nor has a share": (
        host(SEEN, "gpu1", queues=at(NIC.queues, 3, None)),
        "gpu1 mlx5_0",
        "share of 50%",
    ),
    "PFC for one priority more in the NIC": (
        host(SEEN, "gpu1", pfc=(3, 4)),
        "gpu1 mlx5_0",
        "PFC is off for priority 4, which no class of RoCE has",
    ),
    "DCBX by the firmware": (host(SEEN, "gpu1", dcbx_by_host=False), "gpu1 mlx5_0", "DCBX is the host's"),
    "DCBX of which nothing is known": (host(SEEN, "gpu1", dcbx_by_host=None), "gpu1 mlx5_0", "DCBX is the host's"),
    "an MTU that is not known in the NIC": (host(SEEN, "gpu1", ip_mtu_bytes=None), "gpu1 mlx5_0", "MTU"),
    "RoCE in the buffer of all other traffic": (
        host(SEEN, "gpu2", priority_to_buffer=(0,) * 8),
        "gpu2 mlx5_0",
        "priority 3 has an ingress buffer of its own",
    ),
    "buffers of which nothing is known": (
        host(SEEN, "gpu2", priority_to_buffer=(None,) * 8),
        "gpu2 mlx5_0",
        "priority 3 has an ingress buffer of its own",
    ),
    "a buffer without a size": (
        host(SEEN, "gpu2", buffer_bytes=(262144, 0, 0, 0, 0, 0, 0, 0)),
        "gpu2 mlx5_0",
        "buffer 1 of priority 3 has a size",
    ),
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
    "no headroom at all": (
        port(SEEN, "leaf1", "h1", headroom=at(QOS.headroom, 3, None)),
        "leaf1 h1, in",
        "priority 3 has headroom",
    ),
    "headroom of a shorter cable where packets come in": (
        port(SEEN, "leaf1", "h1", headroom=at(QOS.headroom, 3, replace(HEADROOM, xoff_bytes=10_000))),
        "leaf1 h1, in",
        "priority 3 has the compiled headroom",
    ),
    "another share of the shared buffer": (
        port(SEEN, "leaf1", "h1", headroom=at(QOS.headroom, 3, replace(HEADROOM, alpha_exponent=3))),
        "leaf1 h1, in",
        "priority 3 may fill 2^0 times the free shared buffer",
    ),
    "PFC for one priority more": (
        port(SEEN, "leaf1", "h1", pfc=(3, 4)),
        "leaf1 h1, in",
        "PFC is off for priority 4, which no class of RoCE has",
    ),
    "no watchdog": (port(SEEN, "leaf1", "u1", watchdog=None), "leaf1 u1, out", "the PFC watchdog is on"),
    "a watchdog with other times": (
        port(SEEN, "leaf1", "u1", watchdog=Watchdog(5000, 60000, "forward")),
        "leaf1 u1, out",
        "the PFC watchdog is the policy's",
    ),
    "an MTU that is not known on a switch": (
        port(SEEN, "leaf1", "h1", ip_mtu_bytes=None),
        "leaf1 h1, in",
        "IP packets of 9000 bytes pass",
    ),
    "a CNP queue with a share, which RoCE's loses": (
        port(SEEN, "leaf1", "u1", queues=TWO_SHARES),
        "leaf1 u1, out",
        "queue 6 of CNPs is strict",
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
        "spine1 leaf1, in",
        "PFC is on for priority 3",
    ),
    "a receiver that trusts PCP": (host(SEEN, "gpu2", trust="pcp"), "gpu2 mlx5_0", "trusts the DSCP"),
    "a notification point of which nothing is known": (
        host(SEEN, "gpu2", notification=None),
        "gpu2 mlx5_0",
        "notification point",
    ),
    "CNPs whose DSCP is not known": (host(SEEN, "gpu2", cnp_dscp=None), "gpu2 mlx5_0", "CNPs leave with DSCP 48"),
    "a reaction point of which nothing is known": (
        host(SEEN, "gpu1", reaction=None),
        "gpu1 mlx5_0",
        "reaction point",
    ),
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
    "a switch whose hash is not known": (
        replace(SEEN, switches={**SEEN.switches, "leaf1": replace(SEEN.switches["leaf1"], ecmp_fields=None)}),
        "leaf1",
        "UDP source port",
    ),
    "a switch that was not read": (
        replace(SEEN, switches={name: switch for name, switch in SEEN.switches.items() if name != "spine2"}),
        "spine2 leaf1, in",
        "was read back",
    ),
}


def test_a_buffer_of_0_bytes_is_a_fault():
    fault = first_fault(checked(POLICY, FABRIC, BROKEN["a buffer without a size"][0]))
    assert fault is not None
    assert (fault.wanted, fault.seen) == ("more than 0 bytes", 0)


@pytest.mark.parametrize("name", BROKEN)
def test_the_first_broken_hop_is_named(name):
    seen, place, expected = BROKEN[name]
    fault = first_fault(checked(POLICY, FABRIC, seen))
    assert fault is not None
    assert fault.claim.startswith(f"{place}: ")
    assert expected in fault.claim
    assert fault.reason
    assert fault.wanted != fault.seen
    # The survey of the whole fabric finds the fault, too, although it may also appear at other places.
    surveyed = claimed(survey(FABRIC, Checker(POLICY, POLICY.classes[0], seen)), False)
    assert (fault.claim, fault.reason) in [(claim.claim, claim.reason) for claim in surveyed]
