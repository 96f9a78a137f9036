# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stages from running configurations to a policy and back, each computed from the result of the previous one.

One file because all tests share the simulated rollout.
"""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from refusals import refuses
from roce_path import nic
from sonic_configs import ASICS, default_config
from switches import policies

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import restore, rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import stages as migration
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

LINK = {"speed_gbit_s": 400, "cable_m": 5}
SWITCHES: dict[str, Any] = {
    "leaf1": {"system": "sonic", "asic": "as_imaged", "ports": {"Ethernet0": LINK, "Ethernet4": LINK}},
    "leaf2": {"system": "cumulus", "asic": "spectrum4", "ports": {"swp1": LINK, "swp2": LINK}},
}
NVUE = {"interface": {"swp1": {}, "swp2": {"link": {"mtu": 9216}}}, "qos": {"roce": {"enable": "on"}}}
LOSSY, LOSSLESS = ({"classes": {"roce": {"mode": mode}}} for mode in ("lossy", "lossless"))
Texts = dict[str, str]


def defaults() -> Texts:
    return {"leaf1": json.dumps(default_config()), "leaf2": json.dumps(NVUE)}


def planned(running: Texts, policy: dict[str, Any], check: bool = False, **other_params: Any) -> dict[str, Any]:
    params = {**dict.fromkeys(("hosts", "nics", "nics_wanted", "backup_path")), "asics": ASICS}
    return rollout.planned(
        {**params, "switches": SWITCHES, "policy": policy, "running": running, **other_params}, check, True
    )


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merge a patch as RFC 7396 defines it."""
    for key, value in patch.items():
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value


def sent(running: Texts, changes: Texts) -> Texts:
    """Return the configurations after ``changes``."""
    changed = dict(running)
    for name, text in changes.items():
        config = json.loads(running[name])
        if SWITCHES[name]["system"] == "cumulus":
            merge(config, json.loads(text)[0]["set"])
        else:
            for patch in text.split("\n\n"):
                config = jsonpatch.apply_patch(config, json.loads(patch))
        changed[name] = json.dumps(config)
    return changed


def come_to(running: Texts, policy: dict[str, Any]) -> tuple[Texts, list[str]]:
    """Apply all stages as a run would; return the final configurations and the names of the stages."""
    names: list[str] = []
    while True:
        result = planned(running, policy)
        if not result["stages"]:
            assert not result["changed"]
            return running, names
        names.append(result["stages"][0]["name"])
        assert names == sorted(set(names), key=list(migration.STEPS).index), "a stage comes once, and in its turn"
        running = sent(running, result["changes"])
        check_headroom({name: running[name] for name in result["changes"]})


def check_headroom(running: Texts) -> None:
    """Check that each port with PFC has headroom, on switches that this project has configured."""
    for name, text in running.items():
        ports = SYSTEMS[SWITCHES[name]["system"]].parse(text, name).ports
        for port in SWITCHES[name]["ports"]:
            for priority in ports[port].pfc:
                assert ports[port].headroom[priority] or ports[port].cable_m, (name, port)


def test_migration_from_lossy_to_lossless_and_back_runs_its_stages_in_order():
    lossy, _names = come_to(defaults(), LOSSY)
    lossless, names = come_to(lossy, LOSSLESS)
    assert names == [migration.SWITCHES_SET, migration.SWITCHES_ALL]
    back, names = come_to(lossless, LOSSY)
    assert names == [migration.SWITCHES_LESS_PFC, migration.SWITCHES_SET]
    assert come_to(back, LOSSLESS)[0] == lossless


@given(policies(), policies())
@settings(max_examples=4)
def test_the_first_plan_names_what_each_stage_of_the_run_interrupts(first, second):
    running, _names = come_to(defaults(), first)
    named = {stage["name"]: stage["interruptions"] for stage in planned(running, second)["stages"]}
    while (result := planned(running, second))["stages"]:
        stage = result["stages"][0]
        assert named.pop(stage["name"]) == stage["interruptions"], stage["name"]
        running = sent(running, result["changes"])
    assert named == {}


def test_host_stages_are_last_to_lossless_and_first_to_lossy():
    lossy, lossless = (read_policy(policy) for policy in (LOSSY, LOSSLESS))
    running, _names = come_to(defaults(), LOSSY)
    buffers = dict.fromkeys(("priority_to_buffer", "buffer_bytes"), (None,) * 8)  # left to the driver
    now, wanted = ({"gpu1": {"mlx5_0": {**asdict(nic(policy)), **buffers}}} for policy in (lossy, lossless))
    forward = planned(running, LOSSLESS, nics=now, nics_wanted=wanted)
    assert [(stage["step"], stage["switches"], stage["hosts"]) for stage in forward["stages"]] == [
        ("settings", ["leaf1", "leaf2"], []),
        ("all", ["leaf1", "leaf2"], []),
        ("all", [], ["gpu1"]),
    ]
    running, _names = come_to(running, LOSSLESS)
    back = planned(running, LOSSY, nics=wanted, nics_wanted=now)
    assert [(stage["step"], stage["switches"], stage["hosts"]) for stage in back["stages"]] == [
        ("less_pfc", [], ["gpu1"]),
        ("less_pfc", ["leaf1", "leaf2"], []),
        ("settings", ["leaf1", "leaf2"], []),
    ]
    assert back["changes"] == {}, "the first stage is the host's"


def test_the_reading_of_another_nic_plans_nothing():
    data = asdict(nic(read_policy(LOSSY)))
    nics = {"gpu1": {"mlx5_1": data}}
    assert data["name"] == "mlx5_0"
    with refuses("host gpu1: NIC mlx5_1", "mlx5_0"):
        planned(defaults(), LOSSY, nics=nics, nics_wanted=nics)


def test_pfc_of_a_foreign_configuration_is_removed_in_one_stage():
    """SONiC's default pauses priorities 3 and 4, `qos roce` pauses 3: both become lossy in one step."""
    stages = planned(defaults(), LOSSY)["stages"]
    assert [(stage["name"], stage["switches"]) for stage in stages] == [(migration.SWITCHES_SET, ["leaf1", "leaf2"])]


def test_a_difference_outside_the_common_model_is_a_change():
    running, _names = come_to(defaults(), LOSSLESS)
    config = json.loads(running["leaf1"])
    config["BUFFER_QUEUE"]["Ethernet0|3-4"] = {"profile": "egress_lossy_profile"}  # RoCE's queue would drop packets
    result = planned({**running, "leaf1": json.dumps(config)}, LOSSLESS)
    assert [(stage["name"], stage["switches"]) for stage in result["stages"]] == [(migration.SWITCHES_SET, ["leaf1"])]
    assert "egress_lossless_profile" in result["whole"]["leaf1"]
    assert [stage["after_header"] for stage in result["diff"]] == ["leaf1"]


def test_a_difference_outside_the_common_model_joins_the_stage_of_settings():
    running, _names = come_to(defaults(), LOSSLESS)
    config = json.loads(running["leaf1"])
    config["BUFFER_QUEUE"]["Ethernet0|3-4"] = {"profile": "egress_lossy_profile"}
    tree = json.loads(running["leaf2"])
    tree["interface"]["swp2"]["link"]["mtu"] = 1500
    result = planned({"leaf1": json.dumps(config), "leaf2": json.dumps(tree)}, LOSSLESS)
    (stage,) = result["stages"]
    assert (stage["name"], stage["step"], stage["switches"]) == (migration.SWITCHES_SET, "settings", ["leaf2", "leaf1"])
    assert sorted(result["changes"]) == ["leaf1", "leaf2"]
    assert list(stage["interruptions"].values()) == [["leaf1"]]  # a key of several queues is split
    assert result["table"][0] == "1. switches have their classes, queues and headroom: leaf2, leaf1"


def test_a_difference_outside_the_common_model_is_a_stage_of_settings_before_pauses_begin():
    running, _names = come_to(defaults(), LOSSLESS)
    config = json.loads(running["leaf1"])
    config["BUFFER_QUEUE"]["Ethernet0|3-4"] = {"profile": "egress_lossy_profile"}
    lossy, _names = come_to(running, LOSSY)
    steps = planned({"leaf1": json.dumps(config), "leaf2": lossy["leaf2"]}, LOSSLESS)["stages"]
    assert [(stage["name"], stage["switches"]) for stage in steps] == [
        (migration.SWITCHES_SET, ["leaf2", "leaf1"]),
        (migration.SWITCHES_ALL, ["leaf2"]),
    ]


def test_a_switch_as_wanted_has_no_stage_and_no_boot_configuration():
    running, _names = come_to(defaults(), LOSSLESS)
    result = planned(running, LOSSLESS)
    assert result == {
        "changed": False,
        "stages": [],
        "possible_stages": [],
        "table": ["all have the policy"],
        "changes": {},
        "whole": {},
        "boot": {},
        "unfinished": {"path": "", "switches": []},
        "left_out": [],
        "diff": [],
    }


@settings(max_examples=15)
@given(policies(), policies())
def test_any_policy_is_reached_from_any_other(first, second):
    running, _names = come_to(defaults(), first)
    come_to(running, second)


def test_the_boot_script_of_linux_contains_all_settings():
    switches = {"sw01": {"system": "linux", "ports": {"p1": LINK}}}
    reading = {"links": [{"ifname": "p1", "mtu": 1500}], "qdiscs": [], "filters": {"p1": []}, "sysctl": {}}
    running = {"sw01": json.dumps(reading)}
    first = planned(running, LOSSY, switches=switches)
    assert [stage["name"] for stage in first["stages"]] == [migration.SWITCHES_SET]
    assert first["boot"] == first["changes"]
    assert planned({"sw01": first["changes"]["sw01"]}, LOSSY, switches=switches)["stages"] == []


def test_a_lossless_class_is_refused_on_linux_before_a_backup_is_written(tmp_path):
    switches = {"sw01": {"system": "linux", "ports": {"p1": LINK}}}
    reading = {"links": [{"ifname": "p1", "mtu": 1500}], "qdiscs": [], "filters": {"p1": []}, "sysctl": {}}
    with pytest.raises(FabricError) as refused:
        planned({"sw01": json.dumps(reading)}, LOSSLESS, switches=switches, backup_path=str(tmp_path))
    assert refused.value.subject == "sw01"
    assert all(fact in str(refused.value) for fact in ("class roce", "linux", "PFC", "roce_policy", "roce_switches"))
    assert list(tmp_path.iterdir()) == []


def test_backups_are_private_and_only_of_switches_that_will_change(tmp_path):
    running, _names = come_to(defaults(), LOSSLESS)
    running["leaf1"] = json.dumps(default_config())
    folder = tmp_path / "backups" / "run"
    planned(running, LOSSLESS, check=True, backup_path=str(folder))
    assert not folder.exists()
    planned(running, LOSSLESS, backup_path=str(folder))
    sums, backup = sorted(folder.iterdir())
    assert sums.name == "SHA256SUMS"
    assert (backup.name, backup.read_text()) == ("leaf1.sonic", running["leaf1"])
    assert (backup.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("garbage", ["", "{", "[]", "% Invalid input", '{"PORT": 3}', "\x00"])
@pytest.mark.parametrize("name", SWITCHES)
def test_an_invalid_reading_is_refused_with_its_switch_and_writes_nothing(tmp_path, name, garbage):
    running = {**defaults(), name: garbage}
    with pytest.raises(FabricError) as caught:
        planned(running, LOSSLESS, backup_path=str(tmp_path))
    assert str(caught.value).startswith(f"{name}: ")
    assert list(tmp_path.iterdir()) == []


def test_a_switch_that_the_inventory_does_not_have_is_refused():
    with refuses("switch leaf3"):
        planned({**defaults(), "leaf3": "{}"}, LOSSLESS)


def test_a_stage_that_remains_after_it_was_sent_is_refused_with_its_devices():
    running, _names = come_to(defaults(), LOSSY)
    first, second = planned(running, LOSSLESS)["stages"]
    with pytest.raises(FabricError) as caught:
        planned(running, LOSSLESS, done=first["name"])
    assert caught.value.subject == "leaf1, leaf2"
    assert "switches have their classes, queues and headroom" in caught.value.cause
    with refuses("leaf1, leaf2"):
        planned(running, LOSSLESS, done=second["name"])  # an earlier stage remains
    assert len(planned(running, LOSSLESS, done=migration.SWITCHES_LESS_PFC)["stages"]) == 2
    with refuses("done", "'x'", "NICs no longer pause"):
        planned(running, LOSSLESS, done="x")


def test_possible_stages_start_with_the_first_remaining_stage():
    running, _names = come_to(defaults(), LOSSY)
    assert planned(running, LOSSLESS)["possible_stages"] == [migration.SWITCHES_SET, migration.SWITCHES_ALL]
    lossy, lossless = (read_policy(policy) for policy in (LOSSY, LOSSLESS))
    buffers = dict.fromkeys(("priority_to_buffer", "buffer_bytes"), (None,) * 8)
    now, wanted = ({"gpu1": {"mlx5_0": {**asdict(nic(policy)), **buffers}}} for policy in (lossy, lossless))
    with_nics = planned(running, LOSSLESS, nics=now, nics_wanted=wanted)["possible_stages"]
    assert with_nics == [migration.SWITCHES_SET, migration.NICS_SET, migration.SWITCHES_ALL, migration.NICS_ALL]
    assert planned(running, LOSSY)["possible_stages"] == []


# Interrupted runs


JUNOS = {
    "leaf3": {"system": "junos", "asic": "tomahawk3", "queue_buffer_bytes": 50_000_000, "ports": {"et-0/0/0": LINK}}
}


def unfinished(folder: Path, *changed: str) -> dict[str, Any]:
    for name in changed:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    running = {**defaults(), "leaf3": "set interfaces et-0/0/0 mtu 1514\n"}
    run_name = str(folder / "20260102T000000Z")
    return planned(running, LOSSLESS, check=True, switches={**SWITCHES, **JUNOS}, backup_path=run_name)["unfinished"]


def test_switches_that_an_interrupted_run_may_not_have_saved_are_named(tmp_path):
    last = "20260101T000000Z"
    assert unfinished(tmp_path) == {"path": "", "switches": []}
    changed = (f"{last}/leaf2.cumulus.change", f"{last}/leaf3.junos.change")  # Junos saves with each commit
    assert unfinished(tmp_path, *changed) == {"path": str(tmp_path / last), "switches": ["leaf2"]}
    assert unfinished(tmp_path, "other/leaf1.sonic.change")["switches"] == ["leaf2"]
    assert unfinished(tmp_path, f"{last}/finished") == {"path": "", "switches": []}


# Restoration


def restored(running: Texts, backup: Texts, switches: dict[str, Any]) -> dict[str, Any]:
    params = {**dict.fromkeys(("restore_path", "backup_path")), "running": running, "switches": switches}
    return restore.restored({**params, "backup": backup}, False)


def test_a_switch_without_a_backup_is_refused():
    texts = defaults()
    with pytest.raises(FabricError) as refused:
        restored(texts, {"leaf2": texts["leaf2"]}, SWITCHES)
    assert refused.value.subject == "switch leaf1"


def test_a_restored_switch_is_as_in_its_backup():
    running, _names = come_to(defaults(), LOSSLESS)
    result = restored(running, defaults(), SWITCHES)
    assert result["as_before"] == {"leaf1": False, "leaf2": False}
    back = restored(sent(running, result["changes"]), defaults(), SWITCHES)
    as_before = {"leaf1": True, "leaf2": True}
    assert back == {"changed": False, "changes": {}, "as_before": as_before, "boot": {}, "left_out": []}


@settings(max_examples=15)
@given(policies(), policies())
def test_cumulus_is_restored_from_any_policy_to_any_other(first, second):
    original, _names = come_to(defaults(), first)
    changed, _names = come_to(original, second)
    original, changed = ({"leaf2": each["leaf2"]} for each in (original, changed))
    back = sent(changed, restored(changed, original, SWITCHES)["changes"])
    result = restored(back, original, SWITCHES)
    assert (result["changes"], result["as_before"]) == ({}, {"leaf2": True})


def test_restoring_cumulus_keeps_later_settings_of_others():
    original = {"leaf2": json.dumps(NVUE)}
    tree = json.loads(sent(original, planned(original, LOSSLESS)["changes"])["leaf2"])
    tree["system"]["timezone"] = "Etc/UTC"
    tree["interface"]["swp1"]["ip"] = {"address": {"10.0.0.1/31": {}}}
    back = sent({"leaf2": json.dumps(tree)}, restored({"leaf2": json.dumps(tree)}, original, SWITCHES)["changes"])
    restored_tree = json.loads(back["leaf2"])
    assert restored_tree["system"]["timezone"] == "Etc/UTC"
    assert not restored_tree["system"].get("forwarding", {}).get("ecmp-hash")
    assert restored_tree["interface"]["swp1"]["ip"] == {"address": {"10.0.0.1/31": {}}}
    assert restored_tree["qos"] == {"roce": {"enable": "on"}}


READ = json.loads(Path(__file__).parents[1].joinpath("systems/linux_reading.json").read_text())
LINUX = {"sw01": {"system": "linux"}}


def linux(reading: dict[str, Any]) -> Texts:
    return {"sw01": json.dumps(reading)}


def test_default_qdisc_mtu_and_hash_of_linux_are_restored():
    original = copy.deepcopy(READ)
    original["qdiscs"] = [{"kind": "fq_codel", "handle": "0:", "dev": dev, "root": True} for dev in ("p1", "p2")]
    original["filters"] = {dev: [] for dev in original["filters"]}
    original["sysctl"]["net.ipv4.fib_multipath_hash_policy"] = "0"
    for link in original["links"]:
        link["mtu"] = 1500 if link["ifname"] == "p1" else link["mtu"]
    lines = restored(linux(READ), linux(original), LINUX)["changes"]["sw01"].splitlines()
    assert lines[:2] == ["#!/bin/sh", "set -eu"]
    assert "tc qdisc del dev p1 root 2>/dev/null || true" in lines
    assert "ip link set dev p1 mtu 1500" in lines
    assert "sysctl -q -w net.ipv4.fib_multipath_hash_policy=0" in lines
    assert len(lines) == 6
    assert restored(linux(original), linux(original), LINUX)["as_before"] == {"sw01": True}


def test_an_earlier_policy_of_linux_is_restored():
    now = copy.deepcopy(READ)
    now["qdiscs"] = [qdisc for qdisc in now["qdiscs"] if qdisc["dev"] != "p2"]
    script = restored(linux(now), linux(READ), LINUX)["changes"]["sw01"]
    assert "dev p1" not in script
    assert "tc qdisc add dev p2 root handle 1: ets bands" in script
    assert "tc filter add dev p2" in script


def test_a_linux_qdisc_that_cannot_be_restored_is_refused():
    original = copy.deepcopy(READ)
    original["qdiscs"] = [{"kind": "htb", "handle": "1:", "dev": "p1", "root": True, "options": {}}]
    with refuses("sw01: p1", "htb"):
        restored(linux(READ), linux(original), LINUX)


def test_a_circle_of_lossless_links_is_refused_before_anything_is_planned():
    names = [f"s{number}" for number in range(5)]
    switches = {
        name: {
            "system": "eos",
            "asic": "tomahawk3",
            "ports": {
                "Ethernet1/1": {**LINK, "peer": {"switch": names[(at + 1) % 5], "port": "Ethernet2/1"}},
                "Ethernet2/1": {**LINK, "peer": {"switch": names[at - 1], "port": "Ethernet1/1"}},
                "Ethernet3/1": {**LINK, "peer": {"host": f"gpu{at}", "port": "mlx5_0"}},
            },
        }
        for at, name in enumerate(names)
    }
    running = dict.fromkeys(names, "hostname x\n")
    with refuses("s0 -> s1 -> s2 -> s3 -> s4 -> s0", "circle", "lossy"):
        planned(running, LOSSLESS, switches=switches)
    assert planned(running, LOSSY, switches=switches)["stages"]
