# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory's settings of NICs are read or refused, and a policy becomes the settings of a NIC's function."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import NicRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb, Seen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

POLICY = read_policy({})
TWO = read_policy(
    {"classes": {"roce": {}, "storage": {"mode": "lossy", "dscp": 32, "traffic_class": 4, "bandwidth_percent": 5}}}
)
ANY = NicRequest()
PORT = Nic("mlx5_0", "eth0")
SEEN = Seen(PORT, Dcb("dcb", buffer_bytes=(262_016,) + (0,) * 7, buffer_total_bytes=1 << 20))


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
    ("given", "why"),
    [
        ({}, "not a dictionary of at least one NIC"),
        (["mlx5_0"], "not a dictionary of at least one NIC"),
        ({1: {}}, "1: not the name of an RDMA device"),
        ({"": {}}, "not the name of an RDMA device"),
        ({"a/b": {}}, "a/b: not the name of an RDMA device"),
        ({".a": {}}, ".a: not the name of an RDMA device"),
        ({"a": [400]}, "a: not a dictionary"),
        ({"a": {"speed": 400}}, "a: unknown setting 'speed'; valid settings: cable_m, speed_gbit_s"),
        ({"a": {"speed_gbit_s": True}}, "speed_gbit_s True is not a whole number from 1 to 1600"),
        ({"a": {"speed_gbit_s": "400"}}, "speed_gbit_s '400' is not a whole number"),
        ({"a": {"speed_gbit_s": 0}}, "speed_gbit_s 0 is not a whole number"),
        ({"a": {"speed_gbit_s": 1601}}, "speed_gbit_s 1601 is not a whole number"),
        ({"a": {"speed_gbit_s": 400, "cable_m": 1001}}, "cable_m 1001 is not a whole number from 1 to 1000"),
        ({"a": {"cable_m": 5}}, "cable_m without speed_gbit_s"),
    ],
)
def test_invalid_nic_settings_are_refused(given, why):
    with pytest.raises(FabricError) as refused:
        plan.read_nics(given)
    assert why in str(refused.value)


def test_a_class_is_found_by_name_and_defaults_to_the_first():
    assert [plan.class_of(TWO, name).name for name in (None, "", "roce", "storage")] == [
        "roce", "roce", "roce", "storage",
    ]  # fmt: skip
    with pytest.raises(FabricError, match="there is no class 'fast'; valid names: roce, storage"):
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
    assert wanted.priority_to_buffer == tuple(int(at in wanted.pfc) for at in range(8))
    assert wanted.buffer_bytes[0] == 262_016
    assert wanted.buffer_bytes[1] > 0
    assert planned(replace(SEEN, cannot={"buffer_bytes": "old dcb"}), NicRequest(400, 5))[0].cable_m is None


def test_no_tos_is_forced_with_two_classes():
    assert planned(policy=TWO)[0].forced_tos is None


def test_settings_that_a_driver_lacks_are_reported_or_refused():
    wanted, cannot = planned(replace(SEEN, cannot={"cnp_dscp": "no such file", "cable_m": "no such part"}))
    assert cannot == {"cnp_dscp": "no such file"}  # no cable is requested
    assert wanted.cnp_dscp is None
    for name in ("trust", "queues", "pfc"):
        with pytest.raises(FabricError, match=rf"mlx5_0 \(eth0\): it cannot have {name}: no such part"):
            planned(replace(SEEN, cannot={name: "no such part"}))
    few = max(each.traffic_class for each in POLICY.all_classes)
    planned(replace(SEEN, dcb=replace(SEEN.dcb, classes_at_most=few + 1, lossless_at_most=1)))
    with pytest.raises(FabricError, match=rf"has {few} traffic classes \(0 to {few - 1}\), but the policy uses {few}"):
        planned(replace(SEEN, dcb=replace(SEEN.dcb, classes_at_most=few)))
    with pytest.raises(FabricError, match="it can have 0 lossless priorities, but the policy has 1"):
        planned(replace(SEEN, dcb=replace(SEEN.dcb, lossless_at_most=0)))


def test_a_vf_may_mark_only_if_its_port_trusts_dscp():
    cannot = dict.fromkeys(plan.OF_THE_PORT, "it is of the port")
    vf = Seen(replace(PORT, name="mlx5_2", is_vf=True), cannot=cannot)
    assert planned(vf)[0].may_mark is None
    assert planned(vf, parent=replace(PORT, trust="dscp"))[0].may_mark is True
    with pytest.raises(FabricError, match=r"mlx5_2 \(VF of mlx5_0\): .*, since mlx5_0 trusts pcp"):
        planned(vf, parent=replace(PORT, trust="pcp"))


def test_differences_are_listed_by_priority_and_index():
    wanted, _cannot = planned()
    found = plan.differences(wanted, SEEN)
    roce, cnp = POLICY.classes[0], POLICY.cnp
    assert found["pfc"] == ([], [roce.priority])
    assert found["trust"] == (None, "dscp")
    assert found["queues"][1][str(roce.traffic_class)] == f"{roce.bandwidth_percent}%"
    assert found["queues"][1][str(cnp.traffic_class)] == "strict"
    before, after = found["dscp_to_priority"]
    assert before == {"no priority": "DSCP 0-63"}
    assert after[f"priority {roce.priority}"] == f"DSCP {roce.dscp}"
    several = replace(SEEN, dcb=replace(SEEN.dcb, dscp_priorities={roce.dscp: (0, 3)}))
    assert plan.differences(wanted, several)["dscp_to_priority"][0]["priority 0 and 3"] == f"DSCP {roce.dscp}"
    assert not {"name", "interface", "is_vf", "may_mark", "buffer_bytes"} & set(found)
    assert plan.differences(wanted, Seen(wanted)) == {}


def test_expected_settings_are_the_wanted_ones_or_else_the_current_ones():
    wanted, _cannot = planned()
    seen = replace(SEEN, nic=replace(PORT, forced_tos=1, pfc=(5,), cable_m=7, buffer_bytes=(9,) * 8))
    then = plan.expected(wanted, seen)
    assert (then.pfc, then.forced_tos, then.cable_m, then.buffer_bytes) == (wanted.pfc, wanted.forced_tos, 7, (9,) * 8)
    assert then.queues == wanted.queues
    assert plan.expected(wanted, replace(seen, cannot={"pfc": "no such part"})).pfc == (5,)
