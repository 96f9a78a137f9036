# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A switch that is set up as its vendor's guide says: what is read, what changes, and that a second run has no change.

The configurations are written for these tests, after the syntax of the guides: AMD's for Arista and Cisco, Juniper's
configlet for DCQCN, SONiC's default, and NVIDIA's ``nv set qos roce``.

One file because all its cases begin with the configurations of the vendors' guides.
"""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import pytest
from eos_switch import Box
from junos_switch import commit
from messages import Mentions
from nvue_server import merge
from nxos_switch import apply
from refusals import refuses
from sonic_configs import default_config
from switches import OWN_ASICS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs, restore, rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

EOS = """\
! Command: show running-config
! device: leaf1 (DCS-7388-16CD, EOS-4.33.0F)
hostname leaf1
qos map traffic-class 3 to dscp 26
qos map traffic-class 7 to dscp 48
qos profile RDMA
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   !
   uc-tx-queue 3
      random-detect ecn minimum-threshold 1500 segments maximum-threshold 9000 segments max-mark-probability 25 weight 0
      random-detect ecn count
interface Ethernet1/1
   load-interval 5
   mtu 9214
   speed 400g-8
   no switchport
   service-profile RDMA
end
"""
NXOS = """\
hostname leaf1
class-map type qos match-all RDMA
  match dscp 26
class-map type qos match-all CNPS
  match dscp 48
policy-map type qos IN
  class RDMA
    set qos-group 3
  class CNPS
    set qos-group 7
  class class-default
    set qos-group 0
policy-map type queuing OUT
  class type queuing c-out-8q-q7
    priority level 1
  class type queuing c-out-8q-q3
    bandwidth remaining percent 60
    random-detect minimum-threshold 300 packets maximum-threshold 1200 packets drop-probability 9 weight 0 ecn
  class type queuing c-out-8q-q-default
    bandwidth remaining percent 40
policy-map type network-qos NQ
  class type network-qos c-8q-nq3
    mtu 9216
    pause pfc-cos 3
  class type network-qos c-8q-nq-default
    mtu 9216
system qos
  service-policy type network-qos NQ
  service-policy type queuing output OUT
interface Ethernet1/1
  mtu 9216
  service-policy type qos input IN
  priority-flow-control mode on
"""
JUNOS = """\
set system host-name leaf1
set class-of-service classifiers dscp rdma-in forwarding-class CNPS loss-priority low code-points 110000
set class-of-service classifiers dscp rdma-in forwarding-class RDMA loss-priority low code-points 011010
set class-of-service drop-profiles rdma interpolate fill-level 50
set class-of-service drop-profiles rdma interpolate fill-level 85
set class-of-service drop-profiles rdma interpolate drop-probability 0
set class-of-service drop-profiles rdma interpolate drop-probability 100
set class-of-service shared-buffer ingress buffer-partition lossless percent 66
set class-of-service shared-buffer ingress buffer-partition lossless-headroom percent 24
set class-of-service shared-buffer ingress buffer-partition lossy percent 10
set class-of-service shared-buffer egress buffer-partition lossless percent 66
set class-of-service shared-buffer egress buffer-partition lossy percent 34
set class-of-service forwarding-classes class CNPS queue-num 3
set class-of-service forwarding-classes class RDMA queue-num 4
set class-of-service forwarding-classes class RDMA no-loss
set class-of-service forwarding-classes class RDMA pfc-priority 3
set class-of-service congestion-notification-profile rdma input dscp code-point 011010 pfc
set class-of-service congestion-notification-profile rdma output ieee-802.1 code-point 011 flow-control-queue 4
set class-of-service interfaces et-* congestion-notification-profile rdma
set class-of-service interfaces et-* scheduler-map rdma
set class-of-service interfaces et-* unit * classifiers dscp rdma-in
set class-of-service scheduler-maps rdma forwarding-class CNPS scheduler cnps
set class-of-service scheduler-maps rdma forwarding-class RDMA scheduler rdma
set class-of-service schedulers rdma drop-profile-map loss-priority any protocol any drop-profile rdma
set class-of-service schedulers rdma explicit-congestion-notification
set class-of-service schedulers cnps priority strict-high
set interfaces et-0/0/0 mtu 9216
"""
CUMULUS = json.dumps(
    {"qos": {"roce": {"enable": "on", "mode": "lossless"}}, "interface": {"swp1": {"link": {"mtu": 9216}}}}
)
GUIDES = {
    "eos": ("tomahawk4", "Ethernet1/1", EOS),
    "nxos": ("nexus", "Ethernet1/1", NXOS),
    "junos": ("tomahawk5", "et-0/0/0", JUNOS),
    "cumulus": ("spectrum4", "swp1", CUMULUS),
    "sonic": ("as_imaged", "Ethernet0", json.dumps(default_config())),
}
UNKNOWN = {
    "eos": Mentions("1500 segments", "9000 segments", "25%"),
    "nxos": Mentions("300 packets", "1200 packets", "9%"),
}


def request(system: str, text: str, **others: Any) -> dict[str, Any]:
    asic, port, _text = GUIDES[system]
    settings = {"system": system, "asic": asic, "ports": {port: {"speed_gbit_s": 400, "cable_m": 5}}}
    given = {"policy": {}, "hosts": None, "asics": OWN_ASICS, "running": {"leaf1": text}, "nics": {}, **others}
    return {
        **dict.fromkeys(("nics_wanted", "backup_path", "running_before")),
        "switches": {"leaf1": {**settings, "queue_buffer_bytes": 10_000_000}},
        **given,
        "name": "fabric",
        "applications": {},
    }


def sent(system: str, running: str, change: str) -> str:
    """Return the configuration after a change, by the tests' model of the switch."""
    if system == "eos":
        box = Box(running)
        box.apply(change.splitlines())
        return box.text()
    if system == "nxos":
        return apply(running, change)
    if system == "junos":
        return commit(running, change)
    config = json.loads(running)
    if system == "sonic":
        for patch in change.split("\n\n"):
            config = jsonpatch.apply_patch(config, json.loads(patch))
    else:
        for part in json.loads(change):
            for verb, tree in part.items():
                assert verb in ("set", "unset")
                merge(config, tree)
    return json.dumps(config)


@pytest.mark.parametrize("system", sorted(GUIDES))
def test_a_guides_configuration_is_read_changed_and_then_needs_no_change(system):
    text = GUIDES[system][2]
    stages: list[str] = []
    while True:
        result = rollout.planned(request(system, text), False, False)
        if not result["stages"]:
            break
        stages.append(result["stages"][0]["name"])
        assert len(stages) == len(set(stages)), stages
        text = sent(system, text, result["changes"]["leaf1"])
    assert stages
    assert result["whole"] == {}
    compared = configs.compared(request(system, text))
    assert compared["differences"] == {"leaf1": []}


@pytest.mark.parametrize("system", sorted(UNKNOWN))
def test_thresholds_without_known_bytes_are_named_by_path_proof_and_comparison(system):
    text = GUIDES[system][2]
    queue = configs.parsed(request(system, text))["parsed"]["leaf1"]["ports"]["Ethernet1/1"]["queues"]["3"]
    assert (queue["ecn"], queue["unknown_ecn"]) == (None, UNKNOWN[system])
    differences = configs.compared(request(system, text))["differences"]["leaf1"]
    assert any((found["what"], found["seen"]) == ("queue 3", UNKNOWN[system]) for found in differences)
    links = {"leaf1": {**request(system, text)["switches"]["leaf1"]}}
    links["leaf1"]["ports"] = {
        port: {**settings, "peer": {"host": "gpu1", "port": "mlx5_0"}}
        for port, settings in links["leaf1"]["ports"].items()
    }
    asked = request(system, text, switches=links)
    proof, _first = prove(asked)
    path = report.checked({**asked, "paths": [], "rdma_class": None, "thresholds": True})
    fault = Mentions("queue", 3, "ECN")
    assert any((claim.claim, claim.seen) == (fault, UNKNOWN[system]) for claim in proof.claims if claim.holds is False)
    assert any((found["what"], found["seen"]) == (fault, UNKNOWN[system]) for found in path["faults"])


def test_thresholds_in_percent_are_of_the_inventorys_queue():
    port = configs.wanted_and_seen(request("junos", JUNOS)).seen["leaf1"].ports["et-0/0/0"]
    ecn = port.queues[4].ecn
    assert (ecn.minimum_bytes, ecn.maximum_bytes, port.queues[4].unknown_ecn) == (5_000_000, 8_500_000, None)
    alone = SYSTEMS["junos"].parse(JUNOS, "leaf1").ports["et-0/0/0"].queues[4]
    assert (alone.ecn, alone.unknown_ecn) == (None, Mentions(50, 85))


def test_a_threshold_of_an_unknown_size_changes_only_with_the_whole_policy():
    """A first stage that only removes PFC would have to write the thresholds, which are not known in bytes."""
    storage = EOS.replace("priority 3 no-drop", "priority 3 no-drop\n   priority-flow-control priority 4 no-drop")
    result = rollout.planned(request("eos", storage), False, False)
    assert result["stages"][0]["switches"] == ["leaf1"]
    assert "random-detect ecn minimum-threshold" in result["changes"]["leaf1"]
    assert "segments" not in result["changes"]["leaf1"]


@pytest.mark.parametrize(
    "statement",
    [
        "ingress buffer-partition lossy dynamic-threshold 9",
        "ingress buffer-partition lossless percent 660",
        "ingress percent 50",
        "egress percent 20",
    ],
)
def test_other_settings_of_the_buffer_are_named(statement):
    text = f"{JUNOS}set class-of-service shared-buffer {statement}\n"
    differences = configs.compared(request("junos", text))["differences"]["leaf1"]
    assert any(statement in found["seen"] for found in differences)
    guide = configs.compared(request("junos", JUNOS))["differences"]["leaf1"]
    assert not any("shared-buffer" in found["seen"] for found in guide)


def both(leaf2: str) -> dict[str, Any]:
    """Return the request of two switches, of which leaf1 is set up as by the guide for EOS."""
    asked = request("eos", EOS)
    asked["switches"]["leaf2"] = asked["switches"]["leaf1"]
    asked["running"]["leaf2"] = leaf2
    return asked


def test_check_mode_plans_the_switches_that_can_be_read_and_a_run_is_refused_for_the_others(tmp_path):
    shown = rollout.planned(both("% connection lost"), True, True)
    alone = rollout.planned(request("eos", EOS), True, True)
    assert [stage["switches"] for stage in shown["stages"]] == [["leaf1"]]
    assert (shown["whole"], alone["left_out"]) == (alone["whole"], [])
    assert shown["left_out"] == [Mentions("leaf2", "connection lost", "--limit", "all:!leaf2")]
    with refuses("leaf2", "connection lost", "--limit", "all:!leaf2"):
        rollout.planned({**both("% connection lost"), "backup_path": str(tmp_path / "backups")}, False, False)
    assert not list(tmp_path.iterdir())


def test_without_any_readable_switch_nothing_is_planned():
    nothing = rollout.planned({**both("nothing"), "running": {"leaf1": "nothing", "leaf2": ""}}, True, False)
    assert (nothing["stages"], nothing["changes"], nothing["whole"]) == ([], {}, {})
    assert nothing["left_out"] == [Mentions("leaf1", "leaf2")]


def test_a_comparison_names_a_switch_that_cannot_be_read_beside_the_others():
    compared = configs.compared(both("nothing"))
    ((found,), others) = compared["differences"]["leaf2"], compared["differences"]["leaf1"]
    assert (found["ports"], found["message"], compared["as_wanted"]) == ([], Mentions("leaf2"), False)
    assert others == configs.compared(request("eos", EOS))["differences"]["leaf1"]
    assert "leaf2" not in compared["not_held"]


# What is appended to leaf2's configuration for Junos, and a fact of the refusal.
REFUSED = {
    "plan": ("set class-of-service shared-buffer egress buffer-partition lossless percent 0\n", "shared-buffer"),
    "change": (
        f"# inherit\n<configuration-set>\n{JUNOS}set forwarding-options enhanced-hash-key inet no-protocol\n"
        "</configuration-set>\n",
        "enhanced-hash-key",
    ),
}


def with_refused(kind: str) -> dict[str, Any]:
    asked = both(f"{JUNOS}{REFUSED[kind][0]}")
    asked["switches"]["leaf2"] = request("junos", "")["switches"]["leaf1"]
    return asked


@pytest.mark.parametrize("kind", REFUSED)
def test_a_switch_that_cannot_be_changed_to_the_policy_stops_neither_check_mode_nor_a_limited_run(kind, tmp_path):
    asked, fact = with_refused(kind), REFUSED[kind][1]
    alone = rollout.planned(request("eos", EOS), True, True)
    shown = rollout.planned(asked, True, True)
    assert ([stage["switches"] for stage in shown["stages"]], shown["whole"]) == ([["leaf1"]], alone["whole"])
    assert shown["left_out"] == [Mentions("leaf2", fact, "--limit", "all:!leaf2")]
    with refuses("leaf2", fact, "--limit", "all:!leaf2"):
        rollout.planned({**asked, "backup_path": str(tmp_path / "backups")}, False, False)
    assert not list(tmp_path.iterdir())
    del asked["running"]["leaf2"]
    assert rollout.planned(asked, False, False)["whole"] == alone["whole"]


def test_a_switch_that_cannot_be_planned_fails_with_the_refusal_beside_the_others():
    asked, fact = with_refused("plan"), REFUSED["plan"][1]
    compared = configs.compared(asked)
    assert [fact in found["message"] for found in compared["differences"]["leaf2"]] == [True]
    assert compared["differences"]["leaf1"] == configs.compared(request("eos", EOS))["differences"]["leaf1"]
    failed = [claim for claim in prove(asked)[0].claims if claim.holds is False]
    assert {claim.claim.split(":")[0] for claim in failed if "lossless" in str(claim.seen)} == {"leaf2"}
    assert any(claim.claim.startswith("leaf1:") for claim in failed)
    path = report.checked({**asked, "paths": [], "rdma_class": None, "thresholds": True})
    assert any(found["where"] == "leaf2" and "lossless" in found["seen"] for found in path["faults"])


def test_configurations_are_parsed_only_if_all_can_be_read():
    with refuses("leaf2: configuration"):
        configs.parsed(both("nothing"))


@pytest.mark.parametrize("system", sorted(GUIDES))
@pytest.mark.parametrize("settings", ["system", "all"])
def test_a_switch_that_was_taken_over_is_returned_to_its_guides_configuration(system, settings):
    backup = text = GUIDES[system][2]
    while True:
        asked = request(system, text)
        result = rollout.planned(asked, False, False)
        if not result["stages"]:
            break
        text = sent(system, text, result["changes"]["leaf1"])
    given = asked["switches"] if settings == "all" else {"leaf1": {"system": system}}
    back = {"restore_path": None, "backup_path": None, "switches": given, "backup": {"leaf1": backup}}
    returned = sent(system, text, restore.restored({**back, "running": {"leaf1": text}}, False)["changes"]["leaf1"])
    last = restore.restored({**back, "running": {"leaf1": returned}}, False)
    assert (last["changes"], last["as_before"]) == ({}, {"leaf1": True})
    assert configs.compared(request(system, returned)) == configs.compared(request(system, backup))
