# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The findings of an application and of a NIC, one setting at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from roce_path import at, nic

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Application, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import nic_checks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault, unseen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

TWO = {"classes": {"roce": {}, "storage": {"dscp": 10, "traffic_class": 4, "bandwidth_percent": 20}}}
POLICY = read_policy({})
BOTH = read_policy(TWO)
LOSSY = read_policy({"classes": {"roce": {"mode": "lossy"}}})
ROCE = POLICY.classes[0]
NIC = nic(POLICY)
SEVERAL = "NCCL uses several queue pairs for a connection"


@pytest.mark.parametrize(
    ("tos", "findings"),
    [
        (106, []),
        (
            0,
            [
                fault(
                    "mpi asks for DSCP 26 (ToS 106)",
                    106,
                    0,
                    "its packets carry DSCP 0 and use another class than roce on every hop",
                )
            ],
        ),
        (
            110,
            [
                fault(
                    "mpi asks for DSCP 26 (ToS 106)",
                    106,
                    110,
                    "its packets carry DSCP 27 and use another class than roce on every hop",
                )
            ],
        ),
        (
            104,
            [
                fault(
                    "mpi asks for an ECN-capable transport (ToS 106)",
                    106,
                    104,
                    "a congested queue drops its packets instead of marking them",
                )
            ],
        ),
        (
            105,
            [
                fault(
                    "mpi asks for an ECN-capable transport (ToS 106)",
                    106,
                    105,
                    "its packets already carry a mark that only the network should set",
                )
            ],
        ),
    ],
)
def test_the_tos_of_an_application_is_the_classs(tos, findings):
    assert list(nic_checks.application(Application("mpi", tos, queue_pairs=2), ROCE)) == findings


def test_one_queue_pair_is_a_fault_and_an_unknown_number_is_unseen():
    def found(pairs):
        return list(nic_checks.application(Application("NCCL", 106, queue_pairs=pairs), ROCE))

    assert found(1) == [
        fault(SEVERAL, "2 or more", 1, "each connection has one UDP source port, and so ECMP keeps it on one path")
    ]
    assert found(2) == found(3) == []
    assert found(None) == [unseen(SEVERAL, "2 or more", "how many queue pairs NCCL uses was not given")]


def sent(cannot=None, policy=POLICY, at_class=0, **changes):
    seen = SeenNic(replace(nic(policy), **changes), cannot=cannot or {})
    return list(nic_checks.sender(seen, policy.classes[at_class], policy))


def received(cannot=None, policy=POLICY, at_class=0, **changes):
    seen = SeenNic(replace(nic(policy), **changes), cannot=cannot or {})
    return list(nic_checks.receiver(seen, policy.classes[at_class], policy))


FORCED = "the device's traffic class is the policy's ToS, or the application's own"
CM = "RDMA-CM gives connections the policy's ToS"
KEEPS = "this function's packets keep the DSCP that is set"
REWRITTEN = "the NIC or the hypervisor's switch rewrites it, and every hop treats them as other traffic"


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        ({}, []),
        ({"forced_tos": 106}, []),
        (
            {"forced_tos": 105},
            [fault(FORCED, 106, 105, "whatever applications ask for, packets carry DSCP 26")],
        ),
        (
            {"forced_tos": 0},
            [fault(FORCED, 106, 0, "whatever applications ask for, packets carry DSCP 0 and are never marked")],
        ),
        (
            {"cm_tos": None},
            [fault(CM, 106, None, "the DSCP of connections by RDMA-CM is unknown; is rdma_cm loaded?")],
        ),
        (
            {"cm_tos": 7},
            [fault(CM, 106, 7, "connections by RDMA-CM that set no ToS of their own use DSCP 1")],
        ),
        ({"may_mark": False}, [fault(KEEPS, True, False, REWRITTEN)]),
        ({"may_mark": None}, [fault(KEEPS, True, None, REWRITTEN)]),
    ],
)
def test_a_setting_of_the_sender_is_a_fault(changes, findings):
    assert sent(**changes) == findings


def test_missing_settings_of_the_sender_are_unseen_for_a_reason():
    assert sent({"cm_tos": "not loaded"}, cm_tos=None) == [unseen(CM, 106, "not loaded")]
    assert sent(is_vf=True, may_mark=None) == [
        unseen(KEEPS, True, "a guest does not see what the physical function of its VF trusts")
    ]
    assert sent(is_vf=True, may_mark=False) == [fault(KEEPS, True, False, REWRITTEN)]
    assert sent({"trust": "of the port"}, is_vf=True, trust=None, pfc=()) == [
        unseen("its port has the policy", "the policy's settings", "of the port")
    ]
    assert [finding.claim for finding in sent(is_vf=True, trust=None)] == ["the NIC trusts the DSCP"]
    assert [finding.claim for finding in sent({"trust": "no tool"}, trust=None)] == ["the NIC trusts the DSCP"]


def test_rdma_cm_may_use_any_class_of_the_policy():
    assert sent(policy=BOTH, cm_tos=BOTH.classes[1].tos) == []
    assert sent(policy=BOTH, cm_tos=BOTH.classes[0].tos, at_class=1) == []
    assert [finding.claim for finding in sent(policy=BOTH, cm_tos=104)] == [CM]


BUFFER = "priority 3 has an ingress buffer of its own"
FILLED = "other traffic, which no pause holds, fills the buffer, and RoCE's packets are dropped"
MORE = f"{FILLED}; give the NIC its cable_m in roce_host_nics"


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        ({}, []),
        (
            {"priority_to_buffer": (0,) * 8},
            [fault(BUFFER, "a buffer", "buffer 0, with priority 0, 1, 2, 4, 5, 6, 7", MORE)],
        ),
        (
            {"priority_to_buffer": (0, 0, 0, 1, 0, 0, 0, 1)},
            [fault(BUFFER, "a buffer", "buffer 1, with priority 7", MORE)],
        ),
        ({"priority_to_buffer": (0,) * 3 + (None,) + (0,) * 4}, [fault(BUFFER, "a buffer", None, FILLED)]),
        (
            {"priority_to_buffer": (0, 0, 0, 2, 0, 0, 0, 0)},
            [fault("buffer 2 of priority 3 has a size", "more than 0 bytes", 0, FILLED)],
        ),
        ({"buffer_bytes": (0, 1, 0, 0, 0, 0, 0, 0)}, []),
        (
            {"notification": ()},
            [
                fault(
                    "the notification point of priority 3 is on",
                    3,
                    [],
                    "marked packets are answered with no CNP, and the sender never slows down",
                )
            ],
        ),
        (
            {"cnp_dscp": 26},
            [
                fault(
                    "CNPs leave with DSCP 48",
                    48,
                    26,
                    "they wait in the queues that they report on, or in a queue that is not the strict one",
                )
            ],
        ),
    ],
)
def test_a_setting_of_the_receiver_is_a_fault(changes, findings):
    assert received(**changes) == findings


def test_buffers_are_checked_only_for_lossless_classes_of_physical_functions():
    assert received(policy=LOSSY, priority_to_buffer=(0,) * 8) == []
    assert received(is_vf=True, priority_to_buffer=(0,) * 8) == []
    for changes in ({"priority_to_buffer": (0,) * 8}, {}):
        assert received({"own_buffer": "no cable"}, **changes) == [unseen(BUFFER, "a buffer", "no cable")]
    # Lossless priorities may share a buffer, because pauses hold both.
    shared = {"priority_to_buffer": (0, 0, 0, 1, 1, 0, 0, 0)}
    assert received(policy=BOTH, **shared) == []
    assert [finding.seen for finding in received(**shared)] == ["buffer 1, with priority 4"]


def test_a_reaction_point_is_on_for_the_classs_priority():
    claim, consequence = "the reaction point of priority 3 is on", "CNPs arrive and the sender does not slow down"

    def found(on, cannot=None):
        return list(nic_checks.reactor(SeenNic(replace(NIC, reaction=on), cannot=cannot or {}), ROCE))

    assert found((3,)) == found((0, 3)) == []
    assert found((0,)) == [fault(claim, 3, [0], consequence)]
    assert found(None) == [fault(claim, 3, None, consequence)]
    assert found(None, {"reaction": "its driver has none"}) == [unseen(claim, 3, "its driver has none")]


MTU = "the MTU carries RoCE packets of 4096 bytes"
MTU_SMALL = "connections fall back to a smaller path MTU, or fail if their ends differ"
PFC_ON = "pauses are neither sent nor obeyed here, and a full buffer drops"


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"ip_mtu_bytes": 4191}, fault(MTU, 4192, 4191, MTU_SMALL)),
        ({"ip_mtu_bytes": None}, fault(MTU, 4192, None, MTU_SMALL)),
        (
            {"trust": "pcp"},
            fault(
                "the NIC trusts the DSCP",
                "dscp",
                "pcp",
                "packets without a VLAN tag all have priority 0, whatever their DSCP",
            ),
        ),
        (
            {"dscp_to_priority": at(NIC.dscp_to_priority, 26, None)},
            fault(
                "DSCP 26 is priority 3",
                3,
                None,
                "its buffer, its share of the bandwidth and its pauses are another priority's",
            ),
        ),
        (
            {"priority_to_class": at(NIC.priority_to_class, 3, 0)},
            fault("priority 3 is traffic class 3", 3, 0, "it shares a send queue with other traffic"),
        ),
        (
            {"queues": at(NIC.queues, 3, None)},
            fault("traffic class 3 has a share of 50%", 50, None, "the guaranteed share differs from the policy's"),
        ),
        (
            {"queues": at(NIC.queues, 3, Queue(True))},
            fault(
                "traffic class 3 has a share of 50%",
                50,
                "strict",
                "RoCE starves all other traffic, including CNPs of a lower queue",
            ),
        ),
        ({"pfc": ()}, fault("PFC is on for priority 3", 3, [], PFC_ON)),
        (
            {"pfc": (3, 6)},
            fault(
                "PFC is off for priority 6, which no class of RoCE has",
                [3],
                [3, 6],
                "other traffic pauses the link, without headroom that was planned for it",
            ),
        ),
        (
            {"dcbx_by_host": False},
            fault("DCBX is the host's", True, False, "firmware or a peer may change these settings at any time"),
        ),
        (
            {"dcbx_by_host": None},
            fault("DCBX is the host's", True, None, "firmware or a peer may change these settings at any time"),
        ),
    ],
)
def test_a_setting_of_the_port_is_a_fault_at_sender_and_receiver(changes, finding):
    assert sent(**changes) == received(**changes) == [finding]


def test_an_mtu_of_exactly_the_packets_length_is_enough():
    assert sent(ip_mtu_bytes=4192) == received(ip_mtu_bytes=4192) == []


@pytest.mark.parametrize(
    ("setting", "value", "consequence"),
    [
        ("trust", None, "packets without a VLAN tag all have priority 0, whatever their DSCP: no tool"),
        ("priority_to_class", (None,) * 8, "it shares a send queue with other traffic: no tool"),
        ("pfc", (), f"{PFC_ON}: no tool"),
    ],
)
def test_a_needed_setting_that_cannot_be_had_is_a_fault_with_its_reason(setting, value, consequence):
    assert [finding.reason for finding in sent({setting: "no tool"}, **{setting: value})] == [consequence]


def test_dcbx_that_cannot_be_read_is_unseen():
    assert sent({"dcbx_by_host": "no dcb"}, dcbx_by_host=None) == [unseen("DCBX is the host's", True, "no dcb")]
