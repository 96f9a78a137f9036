# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module: it takes the inventory and the readings, and returns the first broken hop."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from inventories import inventory, no_headroom
from messages import Mentions
from plain_system import PLAIN
from proof_requests import params as proof_request
from roce_path import nic, reading
from switches import OWN_ASICS, PORTS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

PATHS = [{"source": {"host": "gpu1", "nic": "mlx5_0"}, "destination": {"host": "gpu2", "nic": "mlx5_0"}}]


def params(system, **changes):
    """Return the module's parameters; all devices match the policy, which is lossy if the system has no PFC."""
    policy_settings = {"classes": {"roce": {"mode": "lossy"}}} if system == "linux" else {}
    policy = read_policy(policy_settings)
    switches = inventory(system, PORTS[system])
    wanted = plan(policy, read_switches(switches, asics=OWN_ASICS))
    data = reading(nic(policy))
    return {
        "policy": policy_settings,
        "switches": switches,
        "asics": OWN_ASICS,
        "running": {name: SYSTEMS[system].render(switch) for name, switch in wanted.items()},
        "nics": {"gpu1": {"mlx5_0": {**data, "driver": "mlx5_core"}}, "gpu2": {"mlx5_0": data}},
        "hosts": None,
        "applications": {host: [{"name": "NCCL", "tos": 106, "queue_pairs": 4}] for host in ("gpu1", "gpu2")},
        "paths": PATHS,
        "rdma_class": None,
        "thresholds": True,
        "name": "fabric",
        **changes,
    }


@pytest.mark.parametrize("system", sorted(SYSTEMS))
@pytest.mark.parametrize("paths", [PATHS, []])
def test_the_path_holds_with_the_rendered_configuration_of_each_system(system, paths):
    result = report.checked(params(system, paths=paths))
    assert result["faults"] == []
    assert result["holds"] is True
    reason = no_headroom(system)
    assert {(finding["what"], finding["reason"]) for finding in result["unseen"]} == (
        {("priority 3 has headroom", reason)} if reason else set()
    )
    # Once for each port where RoCE enters: three on the path, six in the fabric.
    count = (3 if paths else 6) * bool(reason)
    less = f"; {count} of their settings cannot be read" if count else ""
    assert result["message"] == f"all {result['parts']} parts are as the policy says{less}"
    lines = [line for line in result["table"] if line.startswith("n/a ")]
    assert lines == ([f"n/a x{count} {reason}"] if reason else [])


def test_buffers_left_to_the_driver_are_reported_as_unseen():
    request = params("sonic")
    shared = {**request["nics"]["gpu2"]["mlx5_0"], "priority_to_buffer": [0] * 8}
    request["nics"]["gpu2"] = {"mlx5_0": shared}
    claim = "priority 3 has an ingress buffer of its own"
    for hosts, unseen in (
        (None, []),
        ({"gpu2": None}, []),
        ({"gpu2": {"mlx5_0": {"speed_gbit_s": 400, "cable_m": 5}}}, []),
        ({"gpu2": {"mlx5_0": {}}}, [claim]),
        ({"gpu2": {"mlx5_0": None}}, [claim]),
    ):
        result = report.checked({**request, "hosts": hosts})
        assert [finding["what"] for finding in result["unseen"]] == unseen
        assert [finding["what"] for finding in result["faults"]] == ([] if unseen else [claim])


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_a_switch_without_a_reading_is_the_first_broken_hop(system):
    request = params(system)
    del request["running"]["spine1"]
    result = report.checked(request)
    assert result["holds"] is False
    assert result["first_fault"]["where"].startswith("spine1 ")
    assert "nothing is known of it" in result["message"]


def test_the_message_describes_the_first_broken_hop(fake_system):
    request = params(fake_system)
    request["applications"]["gpu1"][0]["tos"] = 104
    result = report.checked(request)
    assert result["message"] == Mentions("gpu1 NCCL", "106", "104")
    assert any("gpu1 NCCL" in line for line in result["table"])


@pytest.fixture
def fake_system(monkeypatch):
    """Register a system whose text is a plan's name, for tests that do not depend on a system's syntax."""
    texts = {}

    def render(switch):
        texts[switch.name] = switch
        return switch.name

    system = replace(PLAIN, name="told", render=render, parse=lambda text, _name: texts[text], not_held={})
    monkeypatch.setitem(SYSTEMS, "told", system)
    monkeypatch.setitem(PORTS, "told", ("p1", "p2"))
    return "told"


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"rdma_class": "storage"}, "class storage: the policy has no such RoCE class; name one of roce"),
        ({"paths": [{"source": {"host": "gpu1", "nic": "x"}}]}, r"paths\[0\]: destination is missing"),
        ({"paths": [{**PATHS[0], "source": {"host": "gpu1"}}]}, r"paths\[0\].source: nic is missing"),
        ({"paths": [{**PATHS[0], "destination": {"nic": "mlx5_0"}}]}, r"paths\[0\].destination: host is missing"),
        ({"paths": [{**PATHS[0], "over": "spine1"}]}, r"paths\[0\]: unknown setting"),
        ({"paths": [{**PATHS[0], "source": {**PATHS[0]["source"], "port": "x"}}]}, r"source: unknown setting"),
        (
            {"paths": [{"source": {"host": "gpu9", "nic": "a"}, "destination": {"host": "gpu1", "nic": "mlx5_0"}}]},
            "NIC gpu9 a: it has no cable",
        ),
        (
            {"applications": {"gpu1": [{"name": "NCCL", "tos": 106, "qps": 4}]}},
            "host gpu1: application: unknown setting 'qps'",
        ),
        ({"nics": {}}, "host gpu1: its applications are given, but not its NICs"),
        ({"applications": {"gpu1": 5}}, "host gpu1: applications: 5 is not a list"),
        (
            {"applications": {"gpu1": [{"name": "NCCL", "tos": 300}]}},
            "300 is not valid; use a whole number from 0 to 255",
        ),
    ],
)
def test_invalid_input_is_refused(fake_system, change, fact):
    request = params(fake_system)
    with pytest.raises(FabricError, match=fact):
        report.checked({**request, "applications": {"gpu1": request["applications"]["gpu1"]}, **change})


@pytest.mark.parametrize(("count", "more_faults"), [(1, ""), (2, "1 more"), (3, "2 more")])
def test_the_message_counts_the_other_faults(count, more_faults):
    faults = [fault(f"leaf{number}: the MTU", 9000, 1500, "packets are lost") for number in range(1, count + 1)]
    assert report.message(5, faults) == Mentions("leaf1", "MTU", "9000", "1500", more_faults)
    assert ("more" in report.message(5, faults)) is (count > 1)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("BUFFER_QUEUE", {"Ethernet0|3-4": {"profile": "egress_lossy_profile"}}),
        ("WRED_PROFILE", {"SAILLOFT_ECN_600000_6000000_100": {"yellow_min_threshold": "1"}}),
        ("QUEUE", {"Ethernet0|0": {"scheduler": "scheduler.0", "wred_profile": "AZURE_LOSSLESS"}}),
    ],
)
def test_what_the_plan_would_still_change_is_named(table, change):
    request = {**proof_request("sonic"), "paths": [], "rdma_class": None, "thresholds": True}
    config = json.loads(request["running"]["spine1"])
    for key, fields in change.items():
        known = (
            next((name for name in config[table] if key in name), key)
            if "SAILLOFT" not in key
            else next(name for name in config[table] if name.startswith("SAILLOFT"))
        )
        config[table][known] = {**config[table].get(known, {}), **fields}
    request["running"]["spine1"] = json.dumps(config)
    faults = report.checked(request)["faults"]
    assert faults
    assert all(fault["where"].startswith("spine1") for fault in faults)


def test_a_nic_with_another_speed_than_the_inventory_is_named():
    request = params("eos", paths=[])
    request["nics"]["gpu2"] = {"mlx5_0": {**request["nics"]["gpu2"]["mlx5_0"], "speed_gbit_s": 100}}
    (fault,) = report.checked(request)["faults"]
    assert (fault["where"], fault["wanted"], fault["seen"]) == ("gpu2 mlx5_0", "400 Gbit/s", "100 Gbit/s")


def test_a_nic_with_another_speed_in_the_inventory_than_its_port_is_named():
    request = params("eos", paths=[])
    request["hosts"] = {"gpu2": {"mlx5_0": {"speed_gbit_s": 100, "cable_m": 5}}}
    faults = report.checked(request)["faults"]
    assert ("gpu2 mlx5_0", "400 Gbit/s", "100 Gbit/s") in [
        (fault["where"], fault["wanted"], fault["seen"]) for fault in faults
    ]


def test_the_reading_of_another_nic_is_not_taken_for_the_nic():
    request = params("eos", paths=[])
    request["nics"]["gpu2"] = {"mlx5_0": {**request["nics"]["gpu2"]["mlx5_0"], "name": "mlx5_1"}}
    (fault, *_others) = [each for each in report.checked(request)["faults"] if each["where"] == "gpu2"]
    assert fault["seen"] == Mentions("gpu2", "mlx5_0", "mlx5_1")


def test_a_host_without_a_named_application_is_asked_for_its_traffic_class():
    request = params("eos", paths=[])
    del request["applications"]["gpu2"]
    result = report.checked(request)
    assert result["holds"] is False
    (fault,) = result["faults"]
    assert (fault["where"], fault["wanted"], fault["seen"]) == ("gpu2", 106, None)
    assert fault["consequence"] == Mentions("roce_host_applications", "NCCL_IB_TC=106", "UCX_IB_TRAFFIC_CLASS=106")
    assert "GID_INDEX" not in fault["consequence"]  # the reading has no GIDs
    request["nics"]["gpu2"]["mlx5_0"]["gids"] = [None, "RoCE v1, IPv6", "RoCE v2, link-local", "RoCE v2, IPv4"]
    (fault,) = report.checked(request)["faults"]
    assert fault["consequence"] == Mentions("NCCL_IB_GID_INDEX=3")


def test_a_hypervisor_is_not_asked_for_an_application():
    request = params("eos", paths=[], guests={"gpu2-vm": "gpu2", "vm9": None})
    del request["applications"]["gpu2"]
    result = report.checked(request)
    assert result["faults"] == []
    assert [finding["where"] for finding in result["unseen"] if "gpu2-vm" in finding["reason"]] == ["gpu2-vm"]


@pytest.mark.parametrize("paths", [PATHS, []])
def test_each_application_of_one_name_is_checked(paths):
    request = params("eos", paths=paths)
    request["applications"]["gpu1"].append({"name": "NCCL", "tos": 104, "queue_pairs": 4})
    (fault,) = report.checked(request)["faults"]
    assert (fault["where"], fault["wanted"], fault["seen"]) == ("gpu1 NCCL", 106, 104)
