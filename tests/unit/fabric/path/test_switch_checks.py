# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The findings of a switch's port, one setting at a time.

One file because every test changes one field of the same planned port.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from roce_path import at, nic
from switches import ECN, HEADROOM, port_qos

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Queue, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import switch_checks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault, unseen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

POLICY = read_policy({})
LOSSY = read_policy({"classes": {"roce": {"mode": "lossy"}}})
ROCE = POLICY.classes[0]
QOS = port_qos(POLICY)
DROPPED = "what arrives between a pause and its effect is dropped"


def ingress(planned=QOS, policy=POLICY, reasons=None, **changes):
    qos = replace(port_qos(policy), **changes)
    return list(switch_checks.ingress(qos, policy.classes[0], policy, reasons or {}, planned))


def egress(planned=QOS, policy=POLICY, reasons=None, **changes):
    qos = replace(port_qos(policy), **changes)
    return list(switch_checks.egress(qos, policy.classes[0], policy, reasons or {}, planned))


def headroom(**changes):
    return {"headroom": at(QOS.headroom, 3, replace(HEADROOM, **changes))}


def queue(number, value):
    return {"queues": at(QOS.queues, number, value)}


def test_the_first_of_several_dscps_in_roces_class_is_named():
    shared = replace(QOS, dscp_to_class=(0,) * 5 + (3, 3) + QOS.dscp_to_class[7:])
    assert list(switch_checks.classification(shared, ROCE)) == [
        fault("traffic class 3 is roce's alone", 26, 5, "packets with DSCP 5 fill roce's queue")
    ]
    assert list(switch_checks.classification(QOS, ROCE)) == []


@pytest.mark.parametrize(
    ("seen", "consequence"),
    [
        (0, "RoCE shares a class with other traffic from here on"),
        (None, "the port does not look at it, or at more than it: RoCE may use another class from here on"),
    ],
)
def test_a_dscp_in_another_class_is_a_fault(seen, consequence):
    wrong = replace(QOS, dscp_to_class=at(QOS.dscp_to_class, 26, seen))
    assert list(switch_checks.classification(wrong, ROCE)) == [
        fault("DSCP 26 is traffic class 3", 3, seen, consequence)
    ]


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        (
            {"class_to_priority": at(QOS.class_to_priority, 3, 4)},
            fault(
                "traffic class 3 pauses priority 3",
                3,
                4,
                "a full buffer pauses a priority other than the sender's, or none, and drops packets",
            ),
        ),
        ({"headroom": (None,) * 8}, fault("priority 3 has headroom", 38_912, None, DROPPED)),
        (headroom(xoff_bytes=0), fault("priority 3 has headroom", "more than 0 bytes", 0, DROPPED)),
        (
            headroom(xoff_bytes=38_911),
            fault("priority 3 has the compiled headroom", 38_912, 38_911, f"at full speed, {DROPPED}"),
        ),
        (
            headroom(xoff_bytes=1),
            fault("priority 3 has the compiled headroom", 38_912, 1, f"at full speed, {DROPPED}"),
        ),
        (
            headroom(alpha_exponent=1),
            fault(
                "priority 3 may fill 2^0 times the free shared buffer",
                0,
                1,
                "pauses begin later than planned, and one port takes the others' buffer",
            ),
        ),
        (
            headroom(alpha_exponent=-1),
            fault(
                "priority 3 may fill 2^0 times the free shared buffer",
                0,
                -1,
                "pauses begin earlier than planned, before ECN has slowed the senders down",
            ),
        ),
        (
            {"ip_mtu_bytes": 8999},
            fault("IP packets of 9000 bytes pass", 9000, 8999, "large packets are dropped, small ones pass"),
        ),
        (
            {"ip_mtu_bytes": None},
            fault("IP packets of 9000 bytes pass", 9000, None, "large packets are dropped, small ones pass"),
        ),
        (
            {"rewrites_dscp": True},
            fault(
                "packets keep their DSCP",
                "as it came",
                "rewritten",
                "the next hops and the receiver use a DSCP other than the sender's",
            ),
        ),
    ],
)
def test_a_setting_of_an_ingress_port_is_a_fault(changes, finding):
    assert ingress(**changes) == [finding]


@pytest.mark.parametrize(
    "changes",
    [{}, headroom(xoff_bytes=38_913), headroom(reserved_bytes=0), {"ip_mtu_bytes": 9000}, {"ip_mtu_bytes": 9216}],
)
def test_an_ingress_port_may_have_more_than_planned(changes):
    assert ingress(**changes) == []


def test_numbers_are_compared_only_with_a_plan():
    assert ingress(None, **headroom(xoff_bytes=1, alpha_exponent=5)) == []
    assert ingress(None, headroom=(None,) * 8) == [fault("priority 3 has headroom", "more than 0 bytes", None, DROPPED)]
    bare = replace(QOS, headroom=(None,) * 8)
    assert ingress(bare, **headroom(xoff_bytes=1)) == []
    assert ingress(bare, headroom=(None,) * 8, reasons={"headroom": "it sizes it"}) == [
        unseen("priority 3 has headroom", "more than 0 bytes", "it sizes it")
    ]
    seen_watchdog = Watchdog(1, 2, "forward")
    assert egress(None, watchdog=seen_watchdog) == []
    assert egress(None, watchdog=None) == [
        fault(
            "the PFC watchdog is on",
            "200 ms, 200 ms, drop",
            None,
            "a storm of pauses stops the queue for ever, and those before it",
        )
    ]
    assert egress(replace(QOS, watchdog=None), watchdog=seen_watchdog) == []
    assert egress(None, **queue(3, Queue(False, 50, Ecn(1, 2, 3)))) == []


@pytest.mark.parametrize(
    ("planned", "seen", "reasons", "expected"),
    [
        (None, None, {}, False),
        (None, 1, {}, False),
        (5, 5, {}, False),
        (5, 6, {}, False),
        (5, 4, {}, True),
        (5, 4, {"cable_m": "not held"}, True),
        (5, None, {}, True),
        (5, None, {"cable_m": "not held"}, False),
    ],
)
def test_a_cable_is_compared_with_the_plan(planned, seen, reasons, expected):
    wanted = replace(QOS, cable_m=planned)
    finding = fault(f"headroom is for a cable of {planned} m", planned, seen, f"at full speed, {DROPPED}")
    assert ingress(wanted, reasons=reasons, cable_m=seen) == [finding] * expected


def test_a_lossy_class_needs_neither_headroom_nor_watchdog():
    lossy = {"headroom": (None,) * 8, "class_to_priority": (None,) * 8, "priority_to_queue": (None,) * 8}
    wanted = replace(port_qos(LOSSY), cable_m=5)
    assert ingress(wanted, LOSSY, **lossy) == []
    assert egress(wanted, LOSSY, watchdog=None, **lossy) == []


CNP_OF_WEIGHT = fault(
    "queue 6 of CNPs is strict", "strict", "14%", "under load CNPs are late, and senders slow down too late"
)
SHARE_OF_44 = fault("queue 3 has a share of 50%", 50, 44, "the guaranteed share differs from the policy's")


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        (
            {"class_to_queue": at(QOS.class_to_queue, 3, 0)},
            [
                fault(
                    "traffic class 3 leaves by queue 3",
                    3,
                    0,
                    "RoCE waits in a queue other than the one that is scheduled and marked for it",
                )
            ],
        ),
        (
            queue(3, None),
            [fault("queue 3 is scheduled", "a share of the bandwidth", None, "it has no guaranteed share")],
        ),
        (queue(3, Queue(False, 44, ECN)), [SHARE_OF_44]),
        (
            {"queues": at(at(QOS.queues, 3, Queue(False, 44, ECN)), 6, Queue(False, 14))},
            [CNP_OF_WEIGHT, SHARE_OF_44],
        ),
        (queue(6, Queue(False, 14)), []),
        (
            queue(3, Queue(True, None, ECN)),
            [
                fault(
                    "queue 3 has a share of 50%",
                    50,
                    "strict",
                    "RoCE starves all other traffic, including CNPs of a lower queue",
                )
            ],
        ),
        (
            queue(3, Queue(False, 50)),
            [
                fault(
                    "queue 3 marks ECN",
                    "thresholds",
                    None,
                    "senders never learn of congestion: PFC pauses them instead",
                )
            ],
        ),
        (
            {"priority_to_queue": at(QOS.priority_to_queue, 3, 4)},
            [
                fault(
                    "a pause of priority 3 stops queue 3",
                    3,
                    4,
                    "the next hop's pause stops another queue, and its buffer overflows",
                )
            ],
        ),
        (
            {"watchdog": Watchdog(200, 400, "drop")},
            [
                fault(
                    "the PFC watchdog is the policy's",
                    "200 ms, 200 ms, drop",
                    "200 ms, 400 ms, drop",
                    "a storm of pauses is ended later than planned, or in another way",
                )
            ],
        ),
    ],
)
def test_a_setting_of_an_egress_port_is_a_fault(changes, findings):
    assert egress(**changes) == findings


def test_a_lossy_queue_without_marking_drops():
    bare = {"queues": at(port_qos(LOSSY).queues, 3, Queue(False, 50))}
    assert [finding.reason for finding in egress(None, LOSSY, **bare)] == [
        "senders never learn of congestion: packets are dropped"
    ]


EMPTY = "a queue that is nearly empty is marked, and senders never reach full speed: a wrong unit?"
LONG = "no queue ever gets that long, so nothing is marked: a wrong unit?"
LATER = "marking begins later than planned, perhaps after PFC"
OTHER = "the response to congestion differs from the plan"


@pytest.mark.parametrize(
    ("minimum", "maximum", "percent", "consequence"),
    [
        (1_500, 1_500_000, 100, EMPTY),
        (1_501, 1_500_000, 100, OTHER),
        (150_000, 1_499_999, 100, OTHER),
        (150_000, 1_500_000, 99, OTHER),
        (149_999, 1_500_000, 100, OTHER),
        (150_001, 1_500_000, 100, LATER),
        (14_999_999, 15_000_000, 100, LATER),
        (15_000_000, 15_000_000, 100, LONG),
    ],
)
def test_other_thresholds_are_a_fault_with_their_effect(minimum, maximum, percent, consequence):
    assert egress(**queue(3, Queue(False, 50, Ecn(minimum, maximum, percent)))) == [
        fault(
            "queue 3 marks ECN at the compiled thresholds",
            "150000 to 1500000 bytes, 100%",
            f"{minimum} to {maximum} bytes, {percent}%",
            consequence,
        )
    ]


def test_thresholds_of_the_policy_precede_those_of_the_plan():
    class_settings = {"ecn": {"minimum_bytes": 200_000, "maximum_bytes": 2_000_000}}
    policy = read_policy({"classes": {"roce": class_settings}})
    assert egress(QOS, policy) == []
    (finding,) = egress(QOS, policy, **queue(3, Queue(False, 50, ECN)))
    assert (finding.claim, finding.wanted) == (
        "queue 3 marks ECN at the policy's thresholds",
        "200000 to 2000000 bytes, 100%",
    )
    assert egress(replace(QOS, queues=(None,) * 8)) == []


@pytest.mark.parametrize(
    ("pfc", "findings"),
    [
        ((3,), []),
        ((3, 6), []),
        (
            (),
            [
                fault(
                    "PFC is on for priority 3",
                    3,
                    [],
                    "pauses are neither sent nor obeyed here, and a full buffer drops",
                )
            ],
        ),
        (
            (4,),
            [fault("PFC is on for priority 3", 3, [4], "the paused priorities do not include the one that RoCE uses")],
        ),
        (
            (2, 3, 4),
            [
                fault(
                    "PFC is off for priority 2, 4, which no class of RoCE has",
                    [3],
                    [2, 3, 4],
                    "other traffic pauses the link, without headroom that was planned for it",
                )
            ],
        ),
    ],
)
def test_pfc_of_a_lossless_class_is_on_for_its_priority_alone(pfc, findings):
    assert ingress(pfc=pfc) == egress(pfc=pfc) == findings


@pytest.mark.parametrize(
    ("pfc", "whats"),
    [
        ((), []),
        ((3,), ["PFC is off for priority 3, whose class is lossy"]),
        ((4,), ["PFC is off for priority 4, which no class of RoCE has"]),
        (
            (3, 4),
            [
                "PFC is off for priority 3, whose class is lossy",
                "PFC is off for priority 4, which no class of RoCE has",
            ],
        ),
        ((6,), []),
    ],
)
def test_pfc_of_a_lossy_class_is_off(pfc, whats):
    findings_made = ingress(port_qos(LOSSY), LOSSY, pfc=pfc)
    assert [finding.claim for finding in findings_made] == whats
    assert [finding.seen for finding in findings_made] == [list(pfc)] * len(whats)


def cnp(**changes):
    return list(switch_checks.cnp_egress(replace(QOS, **changes), POLICY))


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        ({}, []),
        ({"pfc": (3,)}, []),
        (
            {"class_to_queue": at(QOS.class_to_queue, 6, 0)},
            [fault("CNPs leave by queue 6", 6, 0, "they wait in a queue that is not strict")],
        ),
        (queue(6, Queue(False, 14)), [CNP_OF_WEIGHT]),
        (queue(6, Queue(False, 14, ECN)), [CNP_OF_WEIGHT]),
        (queue(6, None), [replace(CNP_OF_WEIGHT, seen=None)]),
        (
            queue(6, Queue(True, None, ECN)),
            [fault("queue 6 marks nothing", None, "150000 to 1500000 bytes, 100%", "CNPs are marked themselves")],
        ),
        ({"pfc": (6,)}, [fault("priority 6 of CNPs is never paused", "off", [6], "a pause holds CNPs up")]),
    ],
)
def test_a_setting_of_the_cnps_egress_port_is_a_fault(changes, findings):
    assert cnp(**changes) == findings


def test_cnps_in_another_class_are_a_fault():
    unclassified = replace(QOS, dscp_to_class=at(QOS.dscp_to_class, 48, None))
    assert list(switch_checks.cnp_classification(QOS, POLICY)) == []
    assert list(switch_checks.cnp_classification(unclassified, POLICY)) == [
        fault(
            "DSCP 48 of CNPs is traffic class 6",
            6,
            None,
            "CNPs wait with other traffic, and senders slow down too late",
        )
    ]


@pytest.mark.parametrize(
    ("large", "takes", "expected"),
    [(9100, 9100, False), (9100, 9101, False), (9101, 9100, True), (None, 9100, False), (9100, None, False)],
)
def test_a_link_carries_what_its_sender_sends(large, takes, expected):
    ends = [replace(QOS, ip_mtu_bytes=mtu_bytes) for mtu_bytes in (large, takes)]
    finding = fault(
        "what one end sends, the other accepts",
        f"an MTU of at least {large}",
        takes,
        "packets of full size are dropped at the link",
    )
    assert list(switch_checks.link(*ends)) == [finding] * expected
    assert list(switch_checks.link(ends[0], replace(nic(POLICY), ip_mtu_bytes=takes))) == []


def test_a_hash_without_the_source_port_is_a_fault():
    claim, consequence = (
        "ECMP's hash takes the UDP source port",
        "all connections of two hosts share one path, whatever their queue pairs",
    )
    assert list(switch_checks.ecmp(("source_port",), {})) == []
    assert list(switch_checks.ecmp((), {})) == [fault(claim, "source_port", [], consequence)]
    assert list(switch_checks.ecmp(None, {})) == [fault(claim, "source_port", None, consequence)]
    assert list(switch_checks.ecmp(None, {"ecmp_fields": "not shown"})) == [unseen(claim, "source_port", "not shown")]
