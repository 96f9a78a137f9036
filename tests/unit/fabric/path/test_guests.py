# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The path from a guest's application over its VF and the physical function to the fabric."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from messages import Mentions, raises
from proof_requests import params as proof_request
from roce_path import nic, reading

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import OF_THE_PORT
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove

MAC = "b2:4d:a3:3d:57:fb"
GUESTS = {"vm1": "gpu1"}
PATH = [{"source": {"host": "vm1", "nic": "mlx5_5"}, "destination": {"host": "gpu2", "nic": "mlx5_0"}}]
BACK = [{"source": PATH[0]["destination"], "destination": PATH[0]["source"]}]


def vf_in_guest(**changes):
    """Return the reading of a VF in its guest: its port's settings are not there."""
    wanted = reading(nic(read_policy({})))
    reason = "it is a VF, and the port belongs to its physical function"
    vf = Nic("mlx5_5", "eth1", is_vf=True, cm_tos=wanted["cm_tos"], ip_mtu_bytes=wanted["ip_mtu_bytes"])
    return {**wanted, **asdict(vf), "cannot": dict.fromkeys(OF_THE_PORT, reason), "mac": MAC, **changes}


def request(paths=(), guest=None, vf=None, pf=None, **changes):
    """Return the arguments for a fabric in which vm1 is a guest of gpu1, with a VF of its only NIC."""
    given = proof_request("eos")
    shown = {"index": 3, "mac": MAC, "vlan": 0, "qos": 0, "mode": "legacy", "representor": None, **(vf or {})}
    given["nics"]["gpu1"] = {"mlx5_0": {**given["nics"]["gpu1"]["mlx5_0"], "vfs": [shown], **(pf or {})}}
    given["nics"]["vm1"] = {"mlx5_5": vf_in_guest(**(guest or {}))}
    given["applications"]["vm1"] = given["applications"].pop("gpu1")
    options = {"guests": GUESTS, "paths": list(paths), "rdma_class": None, "thresholds": True, **changes}
    return json.loads(json.dumps({**given, **options}))


def where(findings):
    return [finding["where"] for finding in findings]


def not_known(asked):
    return [fault for fault in report.checked(asked)["faults"] if "not known beyond" in fault["consequence"]]


WHOLE = {
    "is_vf": False,
    "may_mark": True,
    "cannot": {},
    **{name: reading(nic(read_policy({})))[name] for name in OF_THE_PORT},
}


@pytest.mark.parametrize("paths", [(), PATH, BACK])
def test_a_guest_is_followed_to_the_port_of_its_vf(paths):
    result = report.checked(request(paths))
    assert result["faults"] == []
    # The guest's port settings and its trust are those of the physical function, so they are known.
    assert [place for place in where(result["unseen"]) if "vm1" in place or "VF" in place] == []


@pytest.mark.parametrize("paths", [(), PATH])
def test_a_path_begins_with_the_application_of_the_guest(paths):
    wrong = request(paths, pf={"trust": "pcp"})
    wrong["applications"]["vm1"][0]["tos"] = 104
    assert where(report.checked(wrong)["faults"])[:2] == ["vm1 NCCL", "vm1 mlx5_5"]
    assert "gpu1 mlx5_0" in where(report.checked(wrong)["faults"])


@pytest.mark.parametrize("paths", [(), PATH, BACK])
@pytest.mark.parametrize(
    ("changes", "place", "seen"),
    [
        ({"guest": {"ip_mtu_bytes": 1500}}, "vm1 mlx5_5", 1500),
        ({"vf": {"vlan": 100, "qos": 5}}, "gpu1 mlx5_0 VF 3", "VLAN 100 with priority 5"),
        ({"pf": {"pfc": []}}, "gpu1 mlx5_0", []),
    ],
)
def test_a_fault_is_where_it_was_read(paths, changes, place, seen):
    faults = report.checked(request(paths, **changes))["faults"]
    assert (place, seen) in [(fault["where"], fault["seen"]) for fault in faults]


def test_a_vlan_without_a_priority_or_with_that_of_the_class_is_no_fault():
    for qos in (0, 3):
        assert report.checked(request(vf={"vlan": 100, "qos": qos}))["faults"] == []


@pytest.mark.parametrize(
    ("vf", "fact"),
    [
        ({"mode": "switchdev", "representor": "ens1pf0vf3"}, "ens1pf0vf3"),
        ({"mode": "switchdev"}, "representor"),
        ({"mode": None}, "mode"),
    ],
)
@pytest.mark.parametrize("paths", [(), PATH, BACK])
def test_a_path_is_not_known_beyond_the_rules_of_a_representor(paths, vf, fact):
    asked = request(paths, vf=vf)
    faults = report.checked(asked)["faults"]
    assert [(fault["where"], fault["seen"]) for fault in faults] == [("gpu1 mlx5_0 VF 3", None)]
    assert faults[0]["consequence"] == Mentions("not known beyond", fact, "legacy")
    claims = [claim.holds for claim in prove(asked)[0].claims if "VF 3" in claim.claim]
    assert claims == [False]


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"guest": {"mac": "02:00:00:00:00:01"}}, ("02:00:00:00:00:01", "gpu1", "derive_addresses")),
        ({"guest": {"mac": None}}, ("gpu1",)),
        ({"pf": {"vfs": [], "vfs_unread": "ip is not installed"}}, ("ip is not installed",)),
        ({"guests": {"vm1": "gpu9"}}, ("gpu9", "roce_hosts")),
        ({"guest": WHOLE}, ("gpu1", "roce_switch_ports")),
        ({"guest": WHOLE, "guests": {"vm1": "gpu9"}}, ("gpu9", "roce_switch_ports")),
    ],
)
def test_a_guest_whose_port_is_not_known_fails_with_the_reason(changes, facts):
    asked = request(**changes)
    assert [fault["consequence"] for fault in not_known(asked)] == [Mentions("mlx5_5", "vm1", *facts)]
    assert [claim.claim for claim in prove(asked)[0].claims if claim.holds is False and "vm1" in claim.reason]
    with raises(FabricError, "vm1", "mlx5_5"):
        report.checked({**asked, "paths": PATH})


def test_two_vfs_with_the_mac_of_the_guest_decide_nothing():
    asked = request()
    vf = asked["nics"]["gpu1"]["mlx5_0"]["vfs"][0]
    asked["nics"]["gpu1"]["mlx5_0"]["vfs"] = [vf, {**vf, "index": 4}]
    assert where(not_known(asked)) == ["vm1 mlx5_5"]


def test_a_port_that_no_switch_names_is_not_known():
    asked = request()
    pf = asked["nics"]["gpu1"].pop("mlx5_0")
    asked["nics"]["gpu1"] = {"mlx5_0": {**pf, "vfs": []}, "mlx5_1": {**pf, "name": "mlx5_1"}}
    assert [fault["consequence"] for fault in not_known(asked)] == [Mentions("gpu1", "mlx5_1", "peer")]


def test_a_vf_of_a_host_itself_is_followed_to_its_port():
    asked = request(guests={})
    asked["nics"]["gpu1"]["mlx5_5"] = asked["nics"].pop("vm1")["mlx5_5"]
    asked["applications"]["gpu1"] = asked["applications"].pop("vm1")
    asked["nics"]["gpu1"]["mlx5_5"]["ip_mtu_bytes"] = 1500
    assert where(report.checked(asked)["faults"]) == ["gpu1 mlx5_5"]


@pytest.mark.parametrize("given", ["a VF", "a NIC", "no NIC", "unread"])
def test_the_proof_fails_if_a_guest_that_may_have_a_nic_was_not_read(given):
    """A NIC that a link has and its hypervisor does not may be the guest's. A hypervisor may be beyond --limit."""
    asked = request(pf={} if given == "a VF" else {"vfs": []})
    del asked["nics"]["vm1"], asked["applications"]["vm1"]
    if given == "a NIC":
        asked["nics"]["gpu1"] = {}
    elif given == "unread":
        del asked["nics"]["gpu1"]
    proof, first = prove(asked)
    failed = [claim.reason for claim in proof.claims if claim.holds is False and "vm1" in claim.claim]
    assert failed == ([Mentions("roce_hosts")] if given in ("a VF", "a NIC") else [])
    assert bool(first) == bool(failed)
    assert not [claim for claim in proof.claims if claim.holds and "vm1" in claim.claim]
    unread = [claim.reason for claim in proof.claims if claim.holds is None and "vm1" in claim.claim]
    assert unread == ([] if failed else [Mentions("vm1")])


def test_a_nic_without_a_link_and_a_host_without_nics_fail():
    asked = request()
    asked["nics"]["gpu2"]["mlx5_7"] = {**asked["nics"]["gpu2"]["mlx5_0"], "name": "mlx5_7"}
    asked["nics"]["gpu9"] = {"mlx5_0": asked["nics"]["gpu2"]["mlx5_0"]}
    asked["nics"]["vm2"] = {}
    asked["guests"] = {**GUESTS, "vm2": "gpu1"}
    asked["applications"].update(dict.fromkeys(["gpu9", "vm2"], asked["applications"]["gpu2"]))
    faults = report.checked(asked)["faults"]
    assert [(fault["where"], fault["consequence"]) for fault in faults] == [
        ("gpu2 mlx5_7", Mentions("roce_switch_ports", "roce_host_nics")),
        ("gpu9 mlx5_0", Mentions("roce_switch_ports", "roce_host_nics")),
        ("vm2", Mentions("roce_hosts")),
    ]
    failed = {claim.claim.partition(":")[0] for claim in prove(asked)[0].claims if claim.holds is False}
    assert failed == set(where(faults))
    assert report.checked({**asked, "paths": PATH})["faults"] == []


@pytest.mark.parametrize("guests", [{"vm1": 3}, {"vm1": ""}])
def test_a_hypervisor_that_is_no_name_is_refused(guests):
    with raises(FabricError, "guest vm1", "gpu_guest_host"):
        report.checked(request(guests=guests))


def with_vf_at_a_port(hypervisor):
    """Return a request in which the inventory names the VF of a guest as the peer of the port, with that hypervisor."""
    asked = request(guests={"vm1": hypervisor} if hypervisor else {})
    for ports in (switch["ports"] for switch in asked["switches"].values()):
        for port in ports.values():
            if port["peer"].get("host") == "gpu1":
                port["peer"] = {"host": "vm1", "port": "mlx5_5"}
    return asked


@pytest.mark.parametrize(("hypervisor", "fact"), [("gpu9", "gpu9"), ("gpu1", "gpu1 mlx5_0"), (None, "gpu_guest_host")])
def test_a_vf_that_is_the_peer_of_a_port_is_not_known_beyond_it(hypervisor, fact):
    """The cable ends at its physical function, whose settings would not be checked."""
    asked = with_vf_at_a_port(hypervisor)
    assert [(fault["where"], fault["consequence"]) for fault in not_known(asked)] == [
        ("vm1 mlx5_5", Mentions("mlx5_5", "vm1", fact))
    ]
    assert [claim.claim for claim in prove(asked)[0].claims if claim.holds is False and fact in claim.reason]
    with raises(FabricError, "vm1", "mlx5_5"):
        report.checked({**asked, "paths": PATH})


def test_a_vf_whose_port_and_that_of_its_physical_function_have_peers_is_not_known():
    asked = request()
    ports = asked["switches"]["leaf1"]["ports"]
    near = next(port for port in ports.values() if "host" in port["peer"])
    ports["Ethernet30/1"] = {**near, "peer": {"host": "vm1", "port": "mlx5_5"}}
    assert where(not_known(asked)) == ["vm1 mlx5_5"]


GIDS = ["RoCE v1, link-local", "RoCE v2, link-local", "RoCE v1, IPv4", "RoCE v2, IPv4", None, "RoCE v2, IPv6"]


@pytest.mark.parametrize(
    ("index", "seen"), [(0, GIDS[0]), (1, GIDS[1]), (2, GIDS[2]), (4, None), (9, None), (3, "held"), (5, "held")]
)
def test_the_gid_of_an_application_is_of_roce_v2_and_of_a_routed_address(index, seen):
    asked = request(guest={"gids": GIDS})
    asked["applications"]["vm1"][0]["gid_index"] = index
    faults = report.checked(asked)["faults"]
    assert [(fault["where"], fault["seen"]) for fault in faults] == ([] if seen == "held" else [("vm1 NCCL", seen)])
    if faults:
        assert faults[0]["consequence"] == Mentions("3", "5")


@pytest.mark.parametrize(
    ("program", "traffic_class", "gid_index"),
    [
        ("NCCL", "NCCL_IB_TC=106", "NCCL_IB_GID_INDEX=3"),
        ("NVSHMEM", "NVSHMEM_IB_TRAFFIC_CLASS=106", "NVSHMEM_IB_GID_INDEX=3"),
        ("UCX", "UCX_IB_TRAFFIC_CLASS=106", "UCX_IB_GID_INDEX=3"),
        ("mine", "", ""),
    ],
)
@pytest.mark.parametrize("tos", [104, 0])
def test_a_fault_of_an_application_names_the_variables_of_its_program(program, traffic_class, gid_index, tos):
    asked = request(guest={"gids": GIDS})
    asked["applications"]["vm1"] = [{"name": program, "tos": tos, "queue_pairs": 2, "gid_index": 0}]
    of_tos, of_gid = [fault["consequence"] for fault in report.checked(asked)["faults"]]
    assert [of_tos, of_gid] == [Mentions(traffic_class), Mentions(gid_index)] if traffic_class else "=" not in of_tos


NO_PATHS = ["NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_SPLIT_DATA_ON_QPS"]


@pytest.mark.parametrize(
    ("program", "environment", "seen_tos", "missing"),
    [
        ("NCCL", {"NCCL_IB_TC": 106, "NCCL_IB_SPLIT_DATA_ON_QPS": 1}, None, NO_PATHS[:1]),
        ("NCCL", {"NCCL_IB_TC": "106", "NCCL_IB_SPLIT_DATA_ON_QPS": "1", "NCCL_IB_ADAPTIVE_ROUTING": "1"}, None, []),
        ("NCCL", {"NCCL_IB_TC": "104", "NCCL_IB_ADAPTIVE_ROUTING": "0"}, 104, NO_PATHS),
        ("NCCL", {}, 0, NO_PATHS),
        ("NCCL", {"NCCL_IB_TC": "0x68"}, 104, NO_PATHS),
        ("NCCL", {"NCCL_IB_TC": "106x"}, "106x", NO_PATHS),
        ("NVSHMEM", {"NCCL_IB_TC": "106"}, 0, []),
        ("UCX", {}, None, ["UCX_IB_AR_ENABLE"]),  # its default is 106
        ("mine", {"NCCL_IB_TC": "0"}, None, []),
    ],
)
def test_a_declared_environment_is_compared_with_what_its_program_needs(program, environment, seen_tos, missing):
    asked = request()
    asked["applications"]["vm1"] = [{"name": program, "tos": 106, "queue_pairs": 2, "environment": environment}]
    result = report.checked(asked)
    assert [fault["seen"] for fault in result["faults"]] == ([] if seen_tos is None else [seen_tos])
    listed = [unseen["what"].split("=")[0] for unseen in result["unseen"] if "=" in unseen["what"]]
    assert sorted(listed) == missing


@pytest.mark.parametrize("environment", [[], "NCCL_IB_TC=106", {"A": None}, {"A": [106]}, {"A": True}, {1: 2}])
def test_an_environment_that_is_none_is_refused(environment):
    asked = request()
    asked["applications"]["vm1"] = [{"name": "NCCL", "tos": 106, "environment": environment}]
    with raises(FabricError, "environment"):
        report.checked(asked)


def test_a_gid_of_a_table_that_was_not_read_neither_holds_nor_fails():
    asked = request()
    asked["applications"]["vm1"][0]["gid_index"] = 3
    result = report.checked(asked)
    assert (result["faults"], where(result["unseen"])[0]) == ([], "vm1 NCCL")


def test_the_other_port_of_a_card_is_named_unless_it_is_covered():
    asked = request(pf={"uncovered": ["mlx5_1"]})
    (fault,) = report.checked(asked)["faults"]
    assert (fault["where"], fault["seen"]) == ("gpu1 mlx5_0", ["mlx5_1"])
    asked["nics"]["gpu1"]["mlx5_1"] = {**asked["nics"]["gpu2"]["mlx5_0"], "name": "mlx5_1"}
    assert where(report.checked({**asked, "paths": PATH})["faults"]) == []


def test_a_nic_without_a_speed_neither_holds_nor_fails():
    result = report.checked(request(pf={"speed_gbit_s": None}))
    assert result["faults"] == []
    assert [finding["wanted"] for finding in result["unseen"] if "speed" in finding["what"]] == ["400 Gbit/s"]


def test_equal_readings_of_a_guest_share_no_port():
    """Two guests with equal VFs, of which one has a physical function that trusts no DSCP."""
    asked = request(guests={"vm1": "gpu1", "vm2": "gpu2"})
    vf = {**asked["nics"]["gpu1"]["mlx5_0"]["vfs"][0], "mac": "02:00:00:00:00:02"}
    asked["nics"]["gpu2"]["mlx5_0"] = {**asked["nics"]["gpu2"]["mlx5_0"], "vfs": [vf], "trust": "pcp"}
    asked["nics"]["vm2"] = {"mlx5_5": {**asked["nics"]["vm1"]["mlx5_5"], "mac": vf["mac"]}}
    asked["applications"]["vm2"] = asked["applications"].pop("gpu2")
    faults = where(report.checked(asked)["faults"])
    assert "vm2 mlx5_5" in faults
    assert "vm1 mlx5_5" not in faults


def test_a_whole_nic_of_a_guest_is_checked_even_if_its_port_is_not_known():
    asked = request()
    asked["nics"]["vm1"] = {
        "mlx5_5": {**asked["nics"]["gpu2"]["mlx5_0"], "name": "mlx5_5", "cnp_dscp": 0, "reaction": []}
    }
    faults = report.checked(asked)["faults"]
    assert {fault["where"] for fault in faults} == {"vm1 mlx5_5"}
    assert [fault["seen"] for fault in faults] == [None, 0, []]
    assert where(not_known(asked)) == ["vm1 mlx5_5"]


@pytest.mark.parametrize("paths", [(), PATH, BACK])
def test_a_whole_nic_of_a_guest_is_followed_to_the_cable_of_its_hypervisor_by_its_mac(paths):
    asked = request(paths, guest=WHOLE, pf={"mac": MAC})
    asked["nics"]["gpu1"]["mlx5_1"] = {**asked["nics"]["gpu1"]["mlx5_0"], "name": "mlx5_1", "is_vf": True, "vfs": []}
    assert report.checked({**asked, "paths": PATH})["faults"] == []
    del asked["nics"]["gpu1"]["mlx5_1"]
    assert report.checked(asked)["faults"] == []
    asked["nics"]["vm1"]["mlx5_5"]["trust"] = "pcp"
    assert {fault["where"] for fault in report.checked(asked)["faults"]} == {"vm1 mlx5_5"}
    asked["nics"]["gpu1"]["mlx5_1"] = {**asked["nics"]["gpu1"]["mlx5_0"], "name": "mlx5_1"}
    assert "gpu1" in not_known({**asked, "paths": []})[0]["consequence"]


def test_a_whole_nic_of_a_guest_that_is_the_peer_of_a_port_is_followed():
    asked = request()
    asked["nics"]["vm1"] = {"mlx5_0": asked["nics"].pop("gpu1")["mlx5_0"]}
    for ports in (switch["ports"] for switch in asked["switches"].values()):
        for port in ports.values():
            if port["peer"].get("host") == "gpu1":
                port["peer"]["host"] = "vm1"
    assert report.checked(asked)["faults"] == []
