# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NICs are configured for a policy with the tool that the host has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from messages import raises
from nic_policy import LOSSY, NIC, bring
from switches import policies

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import buffers, mlnx_qos
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import seen_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import NicRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import nic_checks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import ensure, read


def test_the_reference_policy_is_applied_with_the_vendor_driver(host):
    system = host()
    predicted = bring(system, check=True)
    assert system.effects == []
    done = bring(system)
    assert (predicted.before, predicted.after) == (done.before, done.after)
    assert predicted.facts["nics"]["mlx5_0"] == done.facts["nics"]["mlx5_0"]
    nic = done.facts["nics"]["mlx5_0"]
    assert nic["trust"] == "dscp"
    assert [nic["dscp_to_priority"][at] for at in (0, 25, 26, 27, 48, 63)] == [0, 0, 3, 0, 6, 0]
    assert nic["priority_to_class"] == (0, 0, 0, 3, 0, 0, 6, 0)
    assert nic["queues"][3] == {"strict": False, "bandwidth_percent": 50, "ecn": None}
    assert nic["queues"][6]["strict"] is True
    assert nic["pfc"] == (3,)
    assert nic["notification"] == nic["reaction"] == (3,)
    assert (nic["cnp_dscp"], nic["cm_tos"], nic["forced_tos"], nic["ip_mtu_bytes"]) == (48, 106, 106, 9000)
    assert nic["priority_to_buffer"] == (0, 0, 0, 1, 0, 0, 0, 0)
    assert done.facts["cannot"] == {}
    del system.effects[:]
    again = bring(system)
    assert (again.changed, system.effects, again.before) == (False, [], {})


def test_changes_are_listed_by_priority_and_queue(host):
    after = bring(host(), check=True).after
    assert after["mlx5_0 dscp_to_priority"] == {
        "priority 0": "DSCP 0-25,27-47,49-63",
        "priority 3": "DSCP 26",
        "priority 6": "DSCP 48",
    }
    assert after["mlx5_0 pfc"] == [3]
    queues = ("50%", "strict", "strict", "50%", *["strict"] * 4)
    assert after["mlx5_0 queues"] == {str(at): queue for at, queue in enumerate(queues)}


def test_pfc_is_turned_on_last_and_turned_off_first(host):
    system = host()
    bring(system)
    assert system.effects[-1].startswith("dcb pfc set dev ens1np0 prio-pfc")
    assert [effect for effect in system.effects if "prio-pfc" in effect] == [system.effects[-1]]
    del system.effects[:]
    bring(system, policy=LOSSY)
    assert "3:off" in system.effects[0]
    assert [effect for effect in system.effects if "prio-pfc" in effect] == [system.effects[0]]
    assert bring(system, policy=LOSSY).changed is False


def test_pfc_is_off_while_the_lossless_priority_changes(host):
    system = host()
    bring(system, {"mlx5_0": {}})
    del system.effects[:]
    bring(system, {"mlx5_0": {}}, {"classes": {"roce": {"traffic_class": 4}}})
    pfc = [effect for effect in system.effects if "prio-pfc" in effect]
    assert system.effects[0] == pfc[0]
    assert system.effects[-1] == pfc[1]
    assert "on" not in pfc[0]
    assert "4:on" in pfc[1]


def test_a_policy_is_applied_to_two_nics(host):
    system, both = host(), {"mlx5_0": {}, "mlx5_1": {}}
    bring(system, both)
    assert bring(system, both, {"classes": {"roce": {"traffic_class": 4}}}).changed
    assert bring(system, both, LOSSY).changed
    assert bring(system, both).changed
    assert not bring(system, both).changed


def test_a_foreign_dscp_mapping_is_replaced(host):
    system = host()
    bring(system)
    system.dcb["ens1np0"].app.append([26, 5])
    outcome = bring(system)
    assert outcome.before == {"mlx5_0 dscp_to_priority": {"priority 3 and 5": "DSCP 26"}}
    assert system.dcb["ens1np0"].show("app")["dscp_prio"][26] == [26, 3]
    assert len(system.dcb["ens1np0"].app) == 64
    assert not any("app add" in effect for effect in system.effects)


def test_settings_that_the_upstream_driver_lacks_are_reported(host):
    system = host("mlx5-upstream")
    system.put("/sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/np_cnp_dscp", "4\n")
    outcome = bring(system)
    assert outcome.after["mlx5_0 cnp_dscp"] == 48
    assert set(outcome.facts["cannot"]["mlx5_0"]) == {"notification", "reaction", "forced_tos"}
    assert "ROCE_CC_PRIO_MASK_P1" in outcome.facts["cannot"]["mlx5_0"]["reaction"]
    # The NIC has it, too, because the path's proof gets nothing else.
    assert outcome.facts["nics"]["mlx5_0"]["cannot"] == outcome.facts["cannot"]["mlx5_0"]
    assert system.read("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos") == "106"


def test_a_vf_gets_only_the_settings_that_a_vf_has(host):
    system = host("mlx5-upstream")
    outcome = bring(system, {"mlx5_2": {}, "mlx5_0": {}})
    vf = outcome.facts["nics"]["mlx5_2"]
    assert (vf["is_vf"], vf["may_mark"], vf["cm_tos"], vf["ip_mtu_bytes"]) == (True, True, 106, 9000)
    assert vf["dscp_to_priority"] == (None,) * 64
    assert "the port belongs to its physical function (0000:3b:00.0)" in outcome.facts["cannot"]["mlx5_2"]["pfc"]
    assert not any(command[0] == "dcb" and command[-1] == "ens1v0" for command in system.commands)
    # The physical function is set first, or the VF's packets would be in no class.
    places = [effect for effect in system.effects if "app" in effect or "ens1v0" in effect]
    assert "app" in places[0]
    assert not bring(system, {"mlx5_2": {}, "mlx5_0": {}}).changed


def test_a_vf_whose_physical_function_does_not_trust_dscp_is_refused(host):
    system = host("mlx5-upstream")
    assert read.read(system, ["mlx5_2"])["mlx5_2"].nic.may_mark is False
    with pytest.raises(HostError, match=r"mlx5_2 \(VF of mlx5_0\): .*mlx5_0 trusts pcp; add mlx5_0 to roce_host_nics"):
        bring(system, {"mlx5_2": {}})
    assert system.effects == []
    bring(system, {"mlx5_0": {}})
    assert read.read(system, ["mlx5_2"])["mlx5_2"].nic.may_mark is True
    assert list(bring(system, {"mlx5_2": {}}).after) == ["mlx5_2 cm_tos", "mlx5_2 ip_mtu_bytes"]


def test_a_device_with_its_interface_in_a_container_is_left_out(host):
    system = host("mlx5-upstream")
    Path(system.path("/sys/class/net/ens1v0")).unlink()
    found, left_out = read.names(system)
    assert found == ["mlx5_0"]
    assert list(left_out) == ["mlx5_2"]
    with pytest.raises(HostError, match="mlx5_2"):
        read.read(system, ["mlx5_2"])


def test_a_vf_in_a_guest_is_recognized_by_its_device_id(host):
    outcome = bring(host("mlx5-guest"), {"mlx5_0": {}})
    nic = outcome.facts["nics"]["mlx5_0"]
    assert (nic["is_vf"], nic["may_mark"], nic["cm_tos"]) == (True, None, 106)
    assert list(outcome.after) == ["mlx5_0 cm_tos", "mlx5_0 ip_mtu_bytes"]


def test_a_policy_is_applied_to_software_roce(host):
    outcome = bring(host("rxe"), {"rxe0": {}})
    nic = outcome.facts["nics"]["rxe0"]
    assert (nic["interface"], nic["trust"], nic["cm_tos"]) == ("dcb0", "dscp", 106)
    assert set(outcome.facts["cannot"]["rxe0"]) == {"notification", "reaction", "cnp_dscp", "forced_tos"}


def test_no_tos_is_forced_with_two_classes(host):
    policy = {
        "classes": {
            "storage": {"dscp": 18, "traffic_class": 2, "bandwidth_percent": 20},
            "roce": {"mode": "lossy"},
        }
    }
    system = host()
    system.put("/sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\n")
    predicted = bring(system, {"mlx5_0": {}}, policy, "roce", check=True)
    outcome = bring(system, {"mlx5_0": {}}, policy, "roce")
    assert predicted.facts == outcome.facts
    nic = outcome.facts["nics"]["mlx5_0"]
    assert (nic["cm_tos"], nic["forced_tos"], nic["pfc"]) == (106, None, (2,))
    assert nic["notification"] == (2, 3)
    assert system.read("/sys/class/infiniband/mlx5_0/tc/1/traffic_class") == ""
    # The first class of the policy is kept by name, because a file with sorted keys loses their order.
    assert ensure.settings(policy, {"mlx5_0": {}}, None)["rdma_class"] == "storage"


def test_dcbx_is_taken_over_from_firmware_and_willing_interfaces(host):
    system = host()
    system.dcb["ens1np0"].dcbx = {"lld_managed": True, "ieee": True}
    system.dcb["ens1np0"].ets["willing"] = True
    assert bring(system).after["mlx5_0 dcbx_by_host"] is True
    assert not bring(system).changed
    system.dcb["ens1np0"].ets["willing"] = True
    assert bring(system).after == {"mlx5_0 dcbx_by_host": True}
    assert not bring(system).changed


def test_a_nic_without_dcb_settings_is_restored(host):
    system = host()
    system.dcb["ens1np0"].dcbx = {"lld_managed": True, "ieee": True}
    before = {"mlx5_0": ensure.shown(read.read(system, ["mlx5_0"])["mlx5_0"])}
    assert (before["mlx5_0"]["trust"], before["mlx5_0"]["dcbx_by_host"]) == ("pcp", False)
    bring(system)
    assert ensure.restore(system, before).changed
    assert system.dcb["ens1np0"].app == []
    assert system.dcb["ens1np0"].dcbx == {"lld_managed": True, "ieee": True}
    assert not ensure.restore(system, before).changed


def test_a_nic_is_not_restored_to_the_settings_of_another(host):
    system = host()
    before = {"mlx5_0": {**ensure.shown(read.read(system, ["mlx5_0"])["mlx5_0"]), "name": "mlx5_1"}}
    with raises(HostError, "mlx5_0", "mlx5_1"):
        ensure.restore(system, before)
    assert system.effects == []


# mlnx_qos


def test_mlnx_qos_is_used_if_dcb_is_not_installed(host):
    system = host()
    system.tools = {"mlnx_qos"}
    system.mlnx_qos = (Path(__file__).parents[2] / "recordings/nics/mlnx_qos.txt").read_text()
    nic = read.read(system, ["mlx5_0"])["mlx5_0"].nic
    assert nic.dscp_to_priority == tuple(dscp // 8 for dscp in range(64))
    assert (nic.trust, nic.pfc, nic.cable_m, nic.dcbx_by_host) == ("dscp", (4,), 7, False)
    assert nic.priority_to_class == (1, 0, 2, 2, 3, 4, 5, 6)
    assert [queue and (queue.strict, queue.bandwidth_percent) for queue in nic.queues][:5] == [
        None,
        None,
        (False, 40),
        (False, 60),
        (True, None),
    ]
    assert nic.buffer_bytes[0] == 262016
    with pytest.raises(HostError, match="keep"):  # the recording does not change
        bring(system)
    commands = [effect for effect in system.effects if effect.startswith("mlnx_qos")]
    need = buffers.lossless_bytes(400, 5, 9000)
    dscps = [at for at in range(64) if {26: 3, 48: 6}.get(at, 0) != at // 8]
    assert commands == [
        "mlnx_qos -i ens1np0 -f 0,0,0,0,0,0,0,0 --cable_len 7",
        "mlnx_qos -i ens1np0 -d os",
        "mlnx_qos -i ens1np0 -f 0,0,0,0,0,0,0,0 --cable_len 5",
        f"mlnx_qos -i ens1np0 --buffer_size 262016,{need},0,0,0,0,0,0",
        "mlnx_qos -i ens1np0 --prio2buffer 0,0,0,1,0,0,0,0",
        "mlnx_qos -i ens1np0 -p 0,0,0,3,0,0,6,0 "
        "-s ets,strict,strict,ets,strict,strict,strict,strict -t 50,0,0,50,0,0,0,0",
        "mlnx_qos -i ens1np0 --trust dscp",
        "mlnx_qos -i ens1np0 " + " ".join(f"--dscp2prio set,{at},{ {26: 3, 48: 6}.get(at, 0) }" for at in dscps),
    ]
    on = mlnx_qos.set_pfc("ens1np0", (3,), 5)
    assert on == [["mlnx_qos", "-i", "ens1np0", "-f", "0,0,0,1,0,0,0,0", "--cable_len", "5"]]


def test_invalid_output_of_mlnx_qos_is_refused(host):
    system = host()
    system.tools = {"mlnx_qos"}
    system.mlnx_qos = "Interface name is required\n"
    with pytest.raises(HostError, match="mlnx_qos"):
        bring(system)


# Any policy


@given(policy=policies())
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_policy_holds_after_one_run(host, policy):
    system = host()
    wanted = ensure.settings(policy, {"mlx5_0": NIC if len(policy["classes"]) == 1 else {}}, None)
    ensure.ensure(system, wanted)
    assert not ensure.ensure(system, wanted).changed
    seen = read.read(system, ["mlx5_0"])["mlx5_0"].nic
    plan = read_policy(policy)
    for each in (*plan.classes, plan.cnp):
        assert seen.dscp_to_priority[each.dscp] == each.priority
        assert seen.priority_to_class[each.priority] == each.traffic_class
    assert seen.pfc == tuple(sorted(each.priority for each in plan.lossless))
    assert sum(queue.bandwidth_percent or 0 for queue in seen.queues if queue) == 100


TWO = {"classes": {"roce": {}, "storage": {"dscp": 10, "traffic_class": 4, "bandwidth_percent": 20}}}
THREE_CLASSES = {"classes": {"roce": {"traffic_class": 1}}, "cnp": {"traffic_class": 2}}


@pytest.mark.parametrize(
    ("recording", "name", "settings", "policy", "class_count"),
    [
        ("mlx5-vendor", "mlx5_0", NIC, {}, 8),
        ("mlx5-upstream", "mlx5_0", NIC, {}, 8),
        ("mlx5-vendor", "mlx5_0", {}, TWO, 8),
        ("mlx5-vendor", "mlx5_0", NIC, THREE_CLASSES, 3),
        ("mlx5-guest", "mlx5_0", {}, {}, 8),
    ],
)
def test_what_a_run_leaves_is_what_the_path_expects(host, recording, name, settings, policy, class_count):
    system = host(recording)
    for interface in system.dcb.values():
        interface.ets["ets_cap"] = class_count
    reading = json.loads(json.dumps(bring(system, {name: settings}, policy).facts["nics"][name]))
    seen = seen_of(name, reading, {}, None if settings else "without cable_m the driver keeps its buffers")
    request = NicRequest(**settings)
    assert list(nic_checks.as_planned(seen, request, read_policy(policy))) == []
    other_mtu = replace(seen, nic=replace(seen.nic, ip_mtu_bytes=8000))
    assert [finding.claim for finding in nic_checks.as_planned(other_mtu, request, read_policy(policy))] == [
        "ip_mtu_bytes"
    ]


# Stages of a fabric's rollout


def test_each_stage_changes_only_its_settings_and_pfc_is_turned_on_last(host):
    system = host()
    wanted = ensure.settings({}, {"mlx5_0": NIC}, None)
    assert not ensure.ensure(system, wanted, stage="less_pfc").changed
    assert ensure.ensure(system, wanted, stage="settings").changed
    assert not any("prio-pfc" in effect for effect in system.effects)
    assert not ensure.ensure(system, wanted, stage="settings").changed
    del system.effects[:]
    assert ensure.ensure(system, wanted).changed
    assert [effect.split()[:3] for effect in system.effects] == [["dcb", "pfc", "set"]]
    lossy = ensure.settings(LOSSY, {"mlx5_0": NIC}, None)
    del system.effects[:]
    assert list(ensure.ensure(system, lossy, stage="less_pfc").after) == ["mlx5_0 pfc"]
    assert [effect.split()[:3] for effect in system.effects] == [["dcb", "pfc", "set"]]
    assert "mlx5_0 pfc" not in ensure.ensure(system, lossy).after


@pytest.mark.parametrize("recording", ["mlx5-vendor", "mlx5-upstream"])
def test_earlier_settings_are_restored(host, recording):
    system = host(recording)
    bring(system, policy=LOSSY)
    before = {name: ensure.shown(one) for name, one in read.read(system, ["mlx5_0"]).items()}
    bring(system)
    assert {name: ensure.shown(one) for name, one in read.read(system, ["mlx5_0"]).items()} != before
    assert list(ensure.restore(system, before, stage="less_pfc").after) == ["mlx5_0 pfc"]
    done = ensure.restore(system, json.loads(json.dumps(before)))
    assert done.facts["nics"] == before
    assert not ensure.restore(system, before).changed
