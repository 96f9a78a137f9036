# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of a fabric: its claims about the readings of devices, and the settings without a result."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from messages import Mentions, raises
from proof_requests import judged, params, running

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove, worse
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs, rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.configs import wanted_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS


def told(proof: Any, holds: bool | None) -> list[tuple[str, Any, Any]]:
    return [(claim.claim, claim.seen, claim.reason) for claim in proof.claims if claim.holds is holds]


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_the_proof_of_a_fabric_with_the_policy_holds(system):
    proof, first = prove(params(system))
    assert told(proof, False) == []
    assert first == ""
    assert proof.holds
    claims_held = [claim.claim for claim in proof.claims if claim.holds]
    assert [f"{name}: its configuration" for name in ("leaf1", "leaf2", "spine1")] == claims_held[:3]
    # Settings that the system does not show have no result.
    reasons = {claim.reason for claim in proof.claims if claim.holds is None}
    # If headroom is compared in bytes, the cable that it is for is not compared.
    not_asked = set() if "headroom" in SYSTEMS[system].not_held else {"cable_m"}
    assert reasons == {reason for field, reason in SYSTEMS[system].not_held.items() if field not in not_asked}
    assert all(claim.seen is None for claim in proof.claims if claim.holds is None)


def test_pfc_of_linux_is_not_claimed():
    proof, _first = prove(params("linux"))
    reason = "the kernel's bridge and router send and obey no PFC"
    setting = "priority of pauses of traffic class, queue of paused priority"
    assert told(proof, None) == [
        (f"{name}: its configuration: {setting}", None, reason) for name in ("leaf1", "leaf2", "spine1")
    ]


def test_changes_that_the_policy_would_still_make_are_named():
    """The lossy buffer of RoCE's queue is such a change: no field that all systems share shows it."""
    request = params("sonic")
    config = json.loads(request["running"]["spine1"])
    config["BUFFER_QUEUE"]["Ethernet0|3-4"] = {"profile": "egress_lossy_profile"}
    request["running"]["spine1"] = json.dumps(config)
    proof, first = prove(request)
    ((claim, seen, _reason),) = told(proof, False)
    assert claim == "spine1: what the policy would still change"
    assert "BUFFER_QUEUE" in seen
    assert first == f"spine1: what the policy would still change: wanted nothing, seen {seen}"


@pytest.mark.parametrize("system", ["eos", "junos", "sonic"])
def test_a_switch_that_cannot_be_read_fails_and_the_others_are_judged(system):
    request = params(system)
    request["running"]["spine1"] = "connection lost"
    proof, first = prove(request)
    assert not proof.holds
    ((claim, seen, reason),) = told(proof, False)
    assert (claim.partition(":")[0], seen, first) == ("spine1", None, reason)
    assert first == Mentions("spine1")
    held = {claim.claim for claim in proof.claims if claim.holds}
    assert {"leaf1: its configuration", "leaf2: its configuration"} <= held
    assert not any(claim.claim.startswith("spine1") for claim in proof.claims if claim.holds is not False)
    path = report.checked({**request, "paths": [], "rdma_class": None, "thresholds": True})
    assert {found["where"].split(" ")[0] for found in path["faults"]} == {"spine1"}
    assert any(found["where"] == "spine1" and found["seen"] in reason for found in path["faults"])


def test_a_run_made_nothing_worse_where_a_switch_could_not_be_read_before():
    request = params("eos")
    request["running"]["spine1"] = "connection lost"
    proof, _first = prove(request)
    assert worse(proof, {**request, "running_before": request["running"], "nics_before": request["nics"]}) == []
    readable = {**request["running"], "spine1": params("eos")["running"]["spine1"]}
    failed = worse(proof, {**request, "running_before": readable, "nics_before": request["nics"]})
    assert [claim.partition(":")[0] for claim in failed] == ["spine1"]


def with_one_change(value: Any) -> Iterator[Any]:
    """Yield ``value`` with one number in it changed; of equal entries of a table, the first."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for change in with_one_change(getattr(value, field.name)):
                yield replace(value, **{field.name: change})
    elif isinstance(value, tuple):
        for index in sorted({value.index(entry) for entry in value}):
            for change in with_one_change(value[index]):
                yield (*value[:index], change, *value[index + 1 :])
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + (1 if value < 100 else 50)


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_the_path_finds_what_the_proof_finds(system):
    wanted = wanted_switches(params(system))["spine1"]
    (qos,) = wanted.distinct_ports()
    hash_fields = [wanted.ecmp_fields[:-1], wanted.ecmp_fields[1:]]
    changed = [replace(wanted, ports=dict.fromkeys(wanted.ports, change)) for change in with_one_change(qos)]
    failures = 0
    for switch in [*changed, *(replace(wanted, ecmp_fields=hashed) for hashed in hash_fields)]:
        with suppress(FabricError):  # what the system does not have, or this project does not plan
            faults, failed, _first = judged(system, running(system, switch))
            assert bool(faults) == bool(failed), (switch, faults, failed)
            failures += bool(failed)
    assert failures >= 5


@pytest.mark.parametrize(
    ("system", "lines"),
    [
        ("eos", "qos profile sailloft-roce-0\n   qos trust dscp\n"),
        ("nxos", "class-map type qos match-any sailloft-tc3-0\n  match dscp 30\n"),
        ("junos", "set class-of-service schedulers sailloft-0 priority low\n"),
    ],
)
def test_the_path_names_what_the_policy_would_still_remove(system, lines):
    faults, failed, _first = judged(system, params(system)["running"]["spine1"] + lines)
    assert [fault["seen"] for fault in faults] == [claim.seen for claim in failed]
    assert "sailloft" in faults[0]["seen"]


def test_an_ambiguous_configuration_is_named():
    request = params("sonic")
    config = json.loads(request["running"]["spine1"])
    config["BUFFER_QUEUE"]["Ethernet0|3"] = {"profile": "egress_lossy_profile"}
    request["running"]["spine1"] = json.dumps(config)
    _proof, first = prove(request)
    assert first.startswith("spine1: ")
    assert all(entry in first for entry in ("BUFFER_QUEUE|Ethernet0|3: ", "BUFFER_QUEUE|Ethernet0|3-4"))


def test_a_device_that_was_not_read_neither_holds_nor_fails():
    request = params("sonic")
    del request["running"]["leaf2"]
    del request["nics"]["gpu2"], request["applications"]["gpu2"]
    proof, first = prove(request)
    assert first == ""
    assert told(proof, None) == [
        (f"{name}: RoCE's settings", None, f"{name} was not read") for name in ("gpu2", "leaf2")
    ]
    assert not any("leaf2" in claim.claim or "gpu2" in claim.claim for claim in proof.claims if claim.holds)


def test_a_failure_of_a_configuration_is_named_before_one_of_a_path():
    request = params("sonic")
    request["nics"]["gpu1"]["mlx5_0"] = {**request["nics"]["gpu1"]["mlx5_0"], "notification": None}
    _proof, first = prove(request)
    assert first == (
        "gpu1 mlx5_0: the notification point of priority 3 is on: wanted 3, seen nothing: "
        "marked packets are answered with no CNP, and the sender never slows down"
    )
    config = json.loads(request["running"]["leaf1"])
    config["PORT"]["Ethernet0"]["mtu"] = "1500"
    request["running"]["leaf1"] = json.dumps(config)
    _proof, first = prove(request)
    assert first == "leaf1: Ethernet0: largest IP packet, in bytes: wanted 9100, seen 1500"


def of_each_step(asked: dict[str, Any]) -> tuple[set[str], set[str], Any]:
    """Return the devices with faults in the path, those with failed claims in the proof, and the plan in check mode."""
    faults = report.checked({**asked, "paths": [], "rdma_class": None, "thresholds": True})["faults"]
    failed = {claim.claim for claim in prove(asked)[0].claims if claim.holds is False}
    shown = rollout.planned({**asked, **dict.fromkeys(("nics_wanted", "backup_path"))}, True, False)
    return {fault["where"].split(" ")[0] for fault in faults}, {re.split("[: ]", claim)[0] for claim in failed}, shown


def set_up_port(settings: dict[str, Any], change: str) -> None:
    """Make a mistake in the variables of leaf1, as to its link to spine1."""
    port = next(port for port, each in settings["ports"].items() if "switch" in each["peer"])
    if change == "port":
        settings["ports"]["nonesuch"] = settings["ports"].pop(port)
    elif change == "far port":
        settings["ports"][port]["peer"]["port"] = "Ethernet33/1"
    else:
        settings["ports"][port]["speed_gbit_s"] = {"speed": 399, "speed of one end": 200}[change]


@pytest.mark.parametrize(
    ("change", "devices"),
    [
        ("asic", {"leaf1"}),
        ("system", {"leaf1"}),
        ("port", {"leaf1"}),
        ("speed", {"leaf1"}),
        ("speed of one end", {"leaf1", "spine1"}),
        ("far port", {"leaf1", "spine1"}),
    ],
)
def test_a_mistake_in_the_variables_of_one_switch_concerns_only_it(change, devices, tmp_path):
    asked = copy.deepcopy(params("eos"))
    leaf = asked["switches"]["leaf1"]
    if change in leaf:
        leaf[change] = "nonesuch"
    else:
        set_up_port(leaf, change)
    path, proof, shown = of_each_step(asked)
    assert (path, proof) == (devices, devices)
    assert any(claim.holds and claim.claim.startswith("leaf2") for claim in prove(asked)[0].claims)
    assert shown["left_out"] == [Mentions(*devices, "--limit")]
    compared = configs.compared(asked)["differences"]
    assert {name for name, found in compared.items() if found} == devices
    with raises(FabricError, *devices):
        rollout.planned({**asked, "nics_wanted": {}, "backup_path": str(tmp_path)}, False, False)
    asked["running"] = {"leaf2": asked["running"]["leaf2"]}
    assert rollout.planned({**asked, "nics_wanted": {}, "backup_path": None}, False, False)["left_out"] == []


def test_a_nic_at_two_ports_concerns_their_switches():
    asked = copy.deepcopy(params("eos"))
    for settings in asked["switches"]["leaf2"]["ports"].values():
        if "host" in settings["peer"]:
            settings["peer"] = {"host": "gpu1", "port": "mlx5_0"}
    path, proof, _shown = of_each_step(asked)
    assert path >= {"leaf1", "leaf2"}
    assert proof >= {"leaf1", "leaf2"}


@pytest.mark.parametrize("change", [{"switches": {}}, {"asics": {"own": {}}}, {"policy": {"nonesuch": 1}}])
def test_what_concerns_the_whole_fabric_is_refused(change):
    with pytest.raises(FabricError):
        prove({**params("eos"), **change})


@pytest.mark.parametrize("odd", [None, 5, [5], {"mlx5_0": None}, {"mlx5_0": {"name": "mlx5_0"}}, "speed", "inventory"])
def test_an_odd_reading_concerns_its_host(odd):
    asked = copy.deepcopy(params("eos"))
    nic = copy.deepcopy(asked["nics"]["gpu2"]["mlx5_0"])
    asked["nics"]["gpu2"] = {"mlx5_0": {**nic, "speed_gbit_s": "400"}} if odd == "speed" else odd
    if odd == "inventory":
        asked["nics"]["gpu2"], asked["hosts"] = {"mlx5_0": nic}, {"gpu2": ["mlx5_0"]}
    proof, first = prove(asked)
    assert [(claim.claim, claim.reason) for claim in proof.claims if claim.holds is False] == [
        ("gpu2: it was read", Mentions("gpu2"))
    ]
    assert first == Mentions("gpu2")
    assert any(claim.holds and claim.claim.startswith("gpu1 mlx5_0: ") for claim in proof.claims)
    path = report.checked({**asked, "paths": [], "rdma_class": None, "thresholds": True})
    assert {fault["where"].split(" ")[0] for fault in path["faults"]} == {"gpu2"}
