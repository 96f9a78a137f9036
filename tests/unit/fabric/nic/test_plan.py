# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory's settings of NICs are read or refused, and a policy becomes the settings of a NIC's function."""

from __future__ import annotations

from dataclasses import replace

import pytest
from messages import raises
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import NicRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb, SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

POLICY = read_policy({})
TWO = read_policy(
    {"classes": {"roce": {}, "storage": {"mode": "lossy", "dscp": 32, "traffic_class": 4, "bandwidth_percent": 5}}}
)
ANY = NicRequest()
PORT = Nic("mlx5_0", "eth0")
SEEN = SeenNic(PORT, Dcb("dcb", buffer_bytes=(262_016,) + (0,) * 7, buffer_total_bytes=1 << 20))


def planned(seen=SEEN, request=ANY, parent=None, policy=POLICY):
    return plan.plan(policy, policy.classes[0], request, seen, parent)


def test_settings_are_read_up_to_their_limits():
    assert plan.read_nics({"mlx5_0": None, "mlx5_1": {"speed_gbit_s": 1}}) == {
        "mlx5_0": NicRequest(),
        "mlx5_1": NicRequest(1),
    }
    assert plan.read_nics({"a": {"speed_gbit_s": 1600, "cable_m": 1000}}) == {"a": NicRequest(1600, 1000)}
    assert plan.read_nics({"a": {"speed_gbit_s": 1600, "cable_m": 1}}) == {"a": NicRequest(1600, 1)}


@pytest.mark.parametrize(
    ("variable", "fact"),
    [
        ({}, "roce_host_nics: "),
        (["mlx5_0"], "roce_host_nics: "),
        ({1: {}}, "roce_host_nics: 1: "),
        ({"": {}}, "roce_host_nics: : "),
        ({"a/b": {}}, "roce_host_nics: a/b: "),
        ({".a": {}}, "roce_host_nics: .a: "),
        ({"a": [400]}, "roce_host_nics: a: "),
        ({"a": {"speed": 400}}, "a: unknown setting 'speed'; valid settings: cable_m, speed_gbit_s"),
        ({"a": {"speed_gbit_s": True}}, "a: speed_gbit_s: True"),
        ({"a": {"speed_gbit_s": "400"}}, "a: speed_gbit_s: '400'"),
        ({"a": {"speed_gbit_s": 0}}, "a: speed_gbit_s: 0"),
        ({"a": {"speed_gbit_s": 1601}}, "a: speed_gbit_s: 1601"),
        ({"a": {"speed_gbit_s": 400, "cable_m": 1001}}, "a: cable_m: 1001"),
        ({"a": {"cable_m": 5}}, "cable_m without speed_gbit_s"),
    ],
)
def test_invalid_nic_settings_are_refused(variable, fact):
    with pytest.raises(FabricError) as refused:
        plan.read_nics(variable)
    assert fact in str(refused.value)


def test_a_class_is_found_by_name_and_defaults_to_the_first():
    assert [plan.class_of(TWO, name).name for name in (None, "", "roce", "storage")] == [
        "roce", "roce", "roce", "storage",
    ]  # fmt: skip
    with refuses("roce_policy", "'fast'", "roce, storage"):
        plan.class_of(TWO, "fast")


def test_a_function_that_supports_all_settings_gets_the_complete_policy():
    wanted, cannot = planned()
    (roce,) = POLICY.classes
    assert cannot == {}
    assert (wanted.name, wanted.interface, wanted.trust, wanted.may_mark) == ("mlx5_0", "eth0", "dscp", True)
    assert wanted.dscp_to_priority[roce.dscp] == roce.priority
    assert wanted.dscp_to_priority[0] == POLICY.default.priority
    assert wanted.priority_to_class[roce.priority] == roce.traffic_class
    assert wanted.queues[roce.traffic_class] == Queue(False, roce.bandwidth_percent)
    assert wanted.queues[POLICY.cnp.traffic_class] == Queue(True)
    assert wanted.pfc == wanted.notification == wanted.reaction == (roce.priority,)
    assert (wanted.cm_tos, wanted.forced_tos, wanted.cnp_dscp) == (roce.tos, roce.tos, POLICY.cnp.dscp)
    assert wanted.dcbx_by_host is True
    assert wanted.cable_m is None


def test_the_lossless_priority_has_a_separate_buffer_if_a_cable_is_given():
    wanted, _cannot = planned(request=NicRequest(400, 5))
    assert wanted.cable_m == 5
    assert wanted.priority_to_buffer == tuple(int(priority in wanted.pfc) for priority in range(8))
    assert wanted.buffer_bytes[0] == 262_016
    assert wanted.buffer_bytes[1] > 0
    assert planned(replace(SEEN, cannot={"buffer_bytes": "old dcb"}), NicRequest(400, 5))[0].cable_m is None


def test_a_class_without_priority_is_strict_and_absent_beyond_the_nics_classes():
    queues = (Queue(False, 50), Queue(True), Queue(True), Queue(False, 50), *(Queue(True),) * 4)
    assert planned()[0].queues == queues
    assert planned(replace(SEEN, dcb=None))[0].queues == queues
    seven = replace(SEEN, dcb=replace(SEEN.dcb, classes_at_most=7))
    assert planned(seven)[0].queues == (*queues[:7], None)
    wanted = planned(policy=TWO)[0]
    assert wanted.queues[:5] == (Queue(False, 45), Queue(True), Queue(True), Queue(False, 50), Queue(False, 5))
    assert wanted.priority_to_class == (0, 0, 0, 3, 4, 0, 6, 0)
    assert wanted.dscp_to_priority == tuple({26: 3, 32: 4, 48: 6}.get(dscp, 0) for dscp in range(64))
    assert (wanted.pfc, wanted.notification, wanted.reaction) == ((3,), (3, 4), (3, 4))


def test_buffers_are_left_to_the_driver_without_cable_pauses_or_dcb():
    five = NicRequest(400, 5)
    lossy = read_policy({"classes": {"roce": {"mode": "lossy"}}})
    remaining = [
        planned()[0],
        planned(request=five, policy=lossy)[0],
        planned(replace(SEEN, dcb=None), five)[0],
        planned(replace(SEEN, cannot={"buffer_bytes": "old dcb"}), five)[0],
    ]
    for wanted in remaining:
        assert (wanted.cable_m, wanted.priority_to_buffer, wanted.buffer_bytes) == (None, (None,) * 8, (None,) * 8)
    assert planned(request=five)[0].buffer_bytes == (262_016, 159_744, 0, 0, 0, 0, 0, 0)


def test_no_tos_is_forced_with_two_classes():
    assert planned(policy=TWO)[0].forced_tos is None


def test_settings_that_a_driver_lacks_are_reported_or_refused():
    wanted, cannot = planned(replace(SEEN, cannot={"cnp_dscp": "no such file", "cable_m": "no such part"}))
    assert cannot == {"cnp_dscp": "no such file"}  # no cable is requested
    assert wanted.cnp_dscp is None
    for name in ("trust", "queues", "pfc"):
        with refuses("mlx5_0 (eth0)", name, "no such part"):
            planned(replace(SEEN, cannot={name: "no such part"}))
    few = max(traffic.traffic_class for traffic in POLICY.all_classes)
    planned(replace(SEEN, dcb=replace(SEEN.dcb, classes_at_most=few + 1, lossless_at_most=1)))
    with refuses("mlx5_0 (eth0)", f"{few} traffic classes", f"0 to {few - 1}"):
        planned(replace(SEEN, dcb=replace(SEEN.dcb, classes_at_most=few)))
    with refuses("mlx5_0 (eth0)", "0 lossless", "has 1"):
        planned(replace(SEEN, dcb=replace(SEEN.dcb, lossless_at_most=0)))


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (
            replace(SEEN, cannot={"ip_mtu_bytes": "no such part"}),
            "mlx5_0 (eth0): it cannot have ip_mtu_bytes: no such part; leave it out of roce_host_nics, or use a driver "
            "that supports it",
        ),
        (
            replace(SEEN, dcb=replace(SEEN.dcb, classes_at_most=3)),
            "mlx5_0 (eth0): it has 3 traffic classes (0 to 2), but the policy uses 3; give the policy's classes lower "
            "traffic classes",
        ),
        (
            replace(SEEN, dcb=replace(SEEN.dcb, lossless_at_most=0)),
            "mlx5_0 (eth0): it can have 0 lossless priorities, but the policy has 1; make one of its classes lossy",
        ),
    ],
)
def test_a_refusal_of_a_function_names_it_the_reason_and_the_remedy(seen, message):
    with pytest.raises(FabricError) as refused:
        planned(seen)
    assert str(refused.value) == message


@pytest.mark.parametrize("trust", ["pcp", None])
def test_a_vf_of_a_port_without_trust_is_refused(trust):
    with raises(FabricError, "mlx5_2", "mlx5_0", trust or "no DSCP", "roce_host_nics"):
        planned(SeenNic(replace(PORT, name="mlx5_2", is_vf=True)), parent=replace(PORT, trust=trust))


def test_a_vf_is_not_checked_for_what_its_port_lacks():
    vf = SeenNic(replace(PORT, is_vf=True), Dcb("dcb", classes_at_most=1, lossless_at_most=0), {"pfc": "of the port"})
    wanted, cannot = planned(vf)
    assert (wanted.is_vf, wanted.pfc, wanted.may_mark, cannot) == (True, (), None, {"pfc": "of the port"})


def test_a_vf_may_mark_only_if_its_port_trusts_dscp():
    cannot = dict.fromkeys(plan.OF_THE_PORT, "it is of the port")
    vf = SeenNic(replace(PORT, name="mlx5_2", is_vf=True), cannot=cannot)
    assert planned(vf)[0].may_mark is None
    assert planned(vf, parent=replace(PORT, trust="dscp"))[0].may_mark is True
    with pytest.raises(FabricError, match=r"mlx5_2 \(VF of mlx5_0\): .*, since mlx5_0 trusts pcp"):
        planned(vf, parent=replace(PORT, trust="pcp"))


def test_differences_are_listed_by_priority_and_index():
    wanted, _cannot = planned()
    changes = plan.differences(wanted, SEEN)
    roce, cnp = POLICY.classes[0], POLICY.cnp
    assert changes["pfc"] == ([], [roce.priority])
    assert changes["trust"] == (None, "dscp")
    assert changes["queues"][1][str(roce.traffic_class)] == f"{roce.bandwidth_percent}%"
    assert changes["queues"][1][str(cnp.traffic_class)] == "strict"
    old_value, new_value = changes["dscp_to_priority"]
    assert old_value == {"no priority": "DSCP 0-63"}
    assert new_value[f"priority {roce.priority}"] == f"DSCP {roce.dscp}"
    several = replace(SEEN, dcb=replace(SEEN.dcb, dscp_priorities={roce.dscp: (0, 3)}))
    assert plan.differences(wanted, several)["dscp_to_priority"][0]["priority 0 and 3"] == f"DSCP {roce.dscp}"
    assert not {"name", "interface", "is_vf", "may_mark", "buffer_bytes"} & set(changes)
    assert plan.differences(wanted, SeenNic(wanted)) == {}


def test_differences_are_shown_as_lists_entries_and_values():
    wanted = Nic(
        "mlx5_0", "eth0", is_vf=True, trust="dscp", notification=(3,), reaction=(), cm_tos=106, ip_mtu_bytes=9000,
        queues=(Queue(False, 50), Queue(True), *(None,) * 6), priority_to_class=(0, 1, *(None,) * 6),
        dscp_to_priority=(0, 1, 1, *(None,) * 61), pfc=(3,), may_mark=True,
    )  # fmt: skip
    now = Nic(
        "mlx5_0", "eth1", trust="pcp", notification=None, reaction=(5,), cm_tos=1, forced_tos=104, ip_mtu_bytes=1500,
        queues=(Queue(True), None, *(Queue(True),) * 6), priority_to_class=(0, 0, *(7,) * 6),
        dscp_to_priority=(0, 0, 0, *(5,) * 61), pfc=(4,), cnp_dscp=48,
    )  # fmt: skip
    assert plan.differences(wanted, SeenNic(now)) == {
        "trust": ("pcp", "dscp"),
        "dscp_to_priority": ({"priority 0": "DSCP 1-2"}, {"priority 1": "DSCP 1-2"}),
        "priority_to_class": ({"1": 0}, {"1": 1}),
        "queues": ({"0": "strict", "1": None}, {"0": "50%", "1": "strict"}),
        "pfc": ([4], [3]),
        "notification": (None, [3]),
        "reaction": ([5], []),
        "cm_tos": (1, 106),
        "forced_tos": (104, None),
        "ip_mtu_bytes": (1500, 9000),
    }
    assert "pfc" not in plan.differences(wanted, SeenNic(now, cannot={"pfc": "no such part"}))
    assert plan.differences(wanted, SeenNic(replace(now, pfc=(3,)), cannot={})).get("pfc") is None


def test_expected_settings_take_single_entries_from_the_wanted_ones():
    wanted = Nic("mlx5_0", "eth0", priority_to_class=(1, *(None,) * 7), notification=(3,), reaction=None, cm_tos=None)
    now = Nic("mlx5_0", "eth0", priority_to_class=(5,) * 8, notification=(1, 2), reaction=(4,), cm_tos=9, forced_tos=8)
    then = plan.expected(wanted, SeenNic(now, cannot={"forced_tos": "no such file"}))
    assert (then.priority_to_class, then.notification, then.reaction) == ((1, *(5,) * 7), (3,), (4,))
    assert (then.cm_tos, then.forced_tos) == (9, 8)
    assert plan.expected(wanted, SeenNic(now)).forced_tos is None


def test_expected_settings_are_the_wanted_ones_or_else_the_current_ones():
    wanted, _cannot = planned()
    seen = replace(SEEN, nic=replace(PORT, forced_tos=1, pfc=(5,), cable_m=7, buffer_bytes=(9,) * 8))
    then = plan.expected(wanted, seen)
    assert (then.pfc, then.forced_tos, then.cable_m, then.buffer_bytes) == (wanted.pfc, wanted.forced_tos, 7, (9,) * 8)
    assert then.queues == wanted.queues
    assert plan.expected(wanted, replace(seen, cannot={"pfc": "no such part"})).pfc == (5,)
