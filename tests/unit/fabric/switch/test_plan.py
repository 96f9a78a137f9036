# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans of switches: policies, classes, thresholds and buffers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from messages import raises
from planned_switches import BOTH, STORAGE, change, one, planned
from switches import policies, port_qos

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Headroom
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

# With more ports than the bandwidth of their ASIC allows.
CHASSIS = {
    "chassis": {"like": "spectrum3", "source": "a test"},
    "chassis1": {"like": "spectrum", "source": "a test"},
}


def test_the_reference_policy_is_planned():
    wanted = planned()
    assert list(wanted) == ["leaf1", "spine1"]
    leaf, spine = wanted["leaf1"], wanted["spine1"]
    assert (leaf.name, leaf.system, list(leaf.ports)) == ("leaf1", "plain", ["swp1", "swp2", "swp3"])
    assert leaf.ecmp_fields == read_policy(None).ecmp_fields
    policy = read_policy(None)
    own_headroom = Headroom(19_456, 52_224, 0, 0, 19_456)
    assert leaf.ports["swp1"] == port_qos(policy, Ecn(300_000, 3_000_000, 100), own_headroom)
    fast = Headroom(47_104, 106_496, 9_216, 0, 37_888)
    assert leaf.ports["swp3"] == port_qos(policy, Ecn(600_000, 6_000_000, 100), fast)
    assert spine.ports["Ethernet1"].headroom[3] == Headroom(2_540, 195_326, 2_540, -2, 2_540)


def test_equal_ports_share_one_object():
    wanted = planned(switches={**BOTH, "leaf2": one(ports=31)["leaf1"]})
    assert wanted["leaf1"].ports["swp1"] is wanted["leaf1"].ports["swp2"]
    assert len({id(qos) for qos in wanted["leaf2"].ports.values()}) == 1
    full = {f"leaf{number}": one(ports=32)["leaf1"] for number in range(3)}
    assert len({id(qos) for switch in planned(switches=full).values() for qos in switch.ports.values()}) == 1


def test_two_classes_are_planned():
    classes = {"roce": {}, "storage": STORAGE}
    (switch,) = planned({"classes": classes}, one()).values()
    qos = switch.ports["swp0"]
    assert qos.pfc == (3, 4)
    assert qos.headroom[3] == qos.headroom[4] == Headroom(47_104, 90_112, 9_216, 0, 37_888)
    assert [qos.dscp_to_class[dscp] for dscp in (26, 20, 48, 0)] == [3, 4, 6, 0]
    assert [queue and queue.bandwidth_percent for queue in qos.queues] == [30, None, None, 50, 20, None, None, None]
    assert qos.queues[3].ecn == qos.queues[4].ecn == Ecn(600_000, 6_000_000, 100)
    lossy = planned({"classes": {"roce": {}, "storage": {**STORAGE, "mode": "lossy"}}}, one())["leaf1"].ports["swp0"]
    assert (lossy.pfc, lossy.headroom[4], lossy.queues[4]) == ((3,), None, qos.queues[4])


def test_a_lossy_policy_needs_no_headroom_and_no_cable():
    ports = change(("leaf1", "ports", "swp0", "cable_m"), None, one())
    qos = planned({"classes": {"roce": {"mode": "lossy"}}}, ports)["leaf1"].ports["swp0"]
    assert (qos.pfc, qos.headroom, qos.watchdog) == ((), (None,) * 8, None)
    assert qos.queues[3].ecn == Ecn(600_000, 6_000_000, 100)
    with pytest.raises(FabricError, match=r"switch leaf1: port swp0: cable_m .*headroom"):
        planned(None, ports)


def test_ecn_thresholds_are_lowered_on_a_switch_with_many_ports():
    """The calculation covers the whole switch: 128 ports, and the smallest alpha."""
    few, large = planned(None, one(ports=2))["leaf1"], planned(None, one("chassis", ports=128), asics=CHASSIS)["leaf1"]
    assert few.ports["swp0"].queues[3].ecn.minimum_bytes == 600_000
    headroom_bytes = 128 * (47_104 + 90_112)
    q = Fraction(60_817_392 - headroom_bytes, 2) / (128 * 4)
    half = int(q / 2) // 1000 * 1000
    assert large.ports["swp0"].queues[3].ecn == Ecn(half, int(half + 5 * (q - half)) // 1000 * 1000, 100)
    asics = {
        "own": {
            "source": "a test",
            "buffer_bytes": 60_000_000,
            "pool_bytes": 50_000_000,
            "cell_bytes": 254,
            "lossless_classes": 2,
            "headroom": [
                {"speed_gbit_s": 100, "cable_m": 9, "reserved_bytes": 0, "xoff_bytes": 60_000, "alpha_exponent": 0},
                {"speed_gbit_s": 400, "cable_m": 9, "reserved_bytes": 0, "xoff_bytes": 160_000, "alpha_exponent": -6},
            ],
        }
    }
    mixed = one("own", ports=30, speed=100)
    mixed["leaf1"]["ports"]["up"] = {"speed_gbit_s": 400, "cable_m": 5}
    wanted = planned(None, mixed, asics=asics)["leaf1"].ports
    assert wanted["swp0"].queues[3].ecn == wanted["up"].queues[3].ecn
    assert wanted["up"].queues[3].ecn.minimum_bytes < 50_000_000 / 64 / 31


def test_headroom_given_by_the_user_is_planned():
    headroom_rows = [{"speed_gbit_s": 400, "cable_m": 10, "headroom_bytes": 90_000}]
    assert planned(None, one(headroom=headroom_rows))["leaf1"].ports["swp0"].headroom[3].xoff_bytes == 90_000


@pytest.mark.parametrize("asic", ASICS)
def test_each_asic_is_planned_with_many_ports_at_its_highest_speed(asic):
    speed = max(speed for speed, _rest in ASICS[asic].headroom)
    ports = 18 if asic == "jericho2" else 64 if speed >= 800 else 32
    wanted = planned(None, one(asic, ports=ports, speed=speed, cable=3))
    assert wanted["leaf1"].ports["swp0"].queues[3].ecn.minimum_bytes >= 10_000


@given(policies())
def test_the_plan_of_any_policy_matches_the_policy(policy_settings):
    policy = read_policy(policy_settings)
    for switch in planned(policy_settings, BOTH).values():
        for qos in switch.ports.values():
            assert qos.pfc == tuple(sorted(rdma_class.priority for rdma_class in policy.lossless))
            assert tuple(priority for priority in range(8) if qos.headroom[priority]) == qos.pfc
            for rdma_class in policy.classes:
                assert qos.queues[qos.class_to_queue[qos.dscp_to_class[rdma_class.dscp]]].ecn.maximum_bytes
                assert qos.priority_to_queue[rdma_class.priority] == rdma_class.queue
            assert qos.queues[policy.cnp.queue].strict


THREE = {"roce": {}, "storage": STORAGE, "third": {"dscp": 1, "traffic_class": 5, "bandwidth_percent": 5}}


NARROW = {
    "narrow": {
        "source": "a test",
        "buffer_bytes": 9_000_000,
        "pool_bytes": 5_000_000,
        "cell_bytes": 64,
        "lossless_classes": 1,
        "unicast_queues": 6,
    }
}


@pytest.mark.parametrize(
    ("policy", "switches", "message"),
    [
        (
            {"classes": THREE},
            BOTH,
            "switch leaf1: the policy has 3 lossless classes (roce, storage, third), but NVIDIA Spectrum-3's profiles "
            "are for 2",
        ),
        (None, one("narrow"), "switch leaf1: class cnp is assigned to queue 6, but narrow has queues 0 to 5"),
        (None, one("trident4", speed=50), "switch leaf1: port swp0: Broadcom Trident 4 has no headroom profile for 50"),
        (None, one(cable=999), "switch leaf1: port swp0: a cable of 999 m is longer than"),
        (
            None,
            one("chassis1", ports=134, speed=100, cable=300),
            "switch leaf1: the headroom of 1 lossless class on 134 ports, 13996032 bytes, does not fit into NVIDIA "
            "Spectrum's buffer of 13945824",
        ),
        (
            None,
            one("tomahawk5", ports=64, speed=800, cable=300),
            "switch leaf1: the headroom of 1 lossless class on 64 ports is 103778304 bytes, more than 2 times the pool "
            "of 33690560 bytes that they share on Broadcom Tomahawk 5",
        ),
        (
            None,
            one("chassis1", ports=104, speed=100, cable=300),
            "switch leaf1: port swp0: PFC may pause at a queue of 3705 bytes or more, and ECN cannot mark earlier: one "
            "packet has 4214 bytes",
        ),
        (
            {"classes": {"roce": {"ecn": {"minimum_bytes": 10**6, "maximum_bytes": 2 * 10**6}}}},
            one(ports=32),
            "switch leaf1: port swp0: PFC could pause before class roce marks: at a queue of 206656 bytes, where PFC "
            "may begin to pause, its ECN of 1000000 to 2000000 bytes at 100% marks 0.00% of packets, but must mark 20%",
        ),
        (
            {"classes": {"roce": {"ecn": {"minimum_bytes": 4_999, "maximum_bytes": 90_000}}}},
            one(ports=32),
            "switch leaf1: port swp0: class roce: ecn's minimum_bytes 4999 is less than one packet, of 4214 bytes, so "
            "an empty queue would be marked; give 5000 or more, or omit ecn, which is then compiled",
        ),
        (
            None,
            one(headroom=[{"speed_gbit_s": 400, "cable_m": 5, "headroom_bytes": 120}]),
            "switch leaf1: port swp0: headroom_bytes of 120 bytes for 400 Gbit/s, 5 m and IP packets of 9100 bytes is "
            "less than the 78690 that may arrive after a pause was sent",
        ),
    ],
)
def test_settings_that_an_asic_does_not_support_are_refused(policy, switches, message):
    with pytest.raises(FabricError) as refused:
        planned(policy, switches, asics={**NARROW, **CHASSIS})
    assert message in str(refused.value)


def test_user_ecn_thresholds_may_be_as_low_as_one_packet():
    ecn = {"minimum_bytes": 5_000, "maximum_bytes": 10_000}
    qos = planned({"classes": {"roce": {"ecn": ecn}}}, one())["leaf1"].ports["swp0"]
    assert qos.queues[3].ecn == Ecn(5_000, 10_000, 100)


def test_ecn_above_the_whole_buffer_is_refused():
    classes = {"roce": {"mode": "lossy", "ecn": {"minimum_bytes": 10**6, "maximum_bytes": 7 * 10**9}}}
    with raises(FabricError, "switch leaf1", "roce", "7000000000", "60817392"):
        planned({"classes": classes}, one())


def test_the_same_input_gives_the_same_plan():
    assert planned() == planned()
