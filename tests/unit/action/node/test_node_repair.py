# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decisions on the controller, from variables of the inventory, the scheduler's list, proofs and the log."""

from __future__ import annotations

import json
import os
import time

import pytest
from ansible.errors import AnsibleActionFail
from fleet_answers import answer, fault

from ansible_collections.sailloft.fleet.plugins.action import node_repair, node_repair_ended
from ansible_collections.sailloft.fleet.plugins.filter import node_repair_history
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

HEALTHY = [f"ok{number:02}" for number in range(12)]
NODES = ["gpu-1", *HEALTHY]


class Controller:
    """The controller of a site with one sick node."""

    def __init__(self, make, folder):
        self.make, self.folder = make, folder
        self.own = {name: {"node_health_read": answer(age_s=1.0)} for name in NODES}
        self.own["gpu-1"]["node_health_read"] = answer(age_s=1.0, faults=[fault()])
        self.listed = {name: {"out": False, "busy": False} for name in NODES}

    def decide(self, check_mode=False, **given):
        """Run the action, after what it asks for."""
        for variables in self.own.values():
            variables["__node_repair_asked_s"] = str(time.time() + 5)
        arguments = {
            "path": str(self.folder / "repair"),
            "proofs": str(self.folder),
            "nodes": NODES,
            "scheduler": "command",
            "commands": {"list": ["list"], "drain": ["out"], "return": ["in"]},
            "listed": json.dumps(self.listed),
            **given,
        }
        return self.make(node_repair, check_mode=check_mode, **arguments).run(task_vars={"hostvars": self.own})

    def end(self, step, failed=False, **given):
        """Say how a step of the sick node ended."""
        arguments = {"path": str(self.folder / "repair"), "node": "gpu-1", "step": step, "failed": failed, **given}
        return self.make(node_repair_ended, **arguments).run(task_vars={})

    @property
    def log(self):
        """Steps and results in the log."""
        rows = (self.folder / "repair/repair-log.jsonl").read_text().splitlines()
        return [(row["step"], row["result"]) for row in map(json.loads, rows) if "node" in row]


@pytest.fixture
def site(make, tmp_path):
    """A site with one sick node."""
    return Controller(make, tmp_path)


def test_check_mode_shows_and_writes_nothing(site, tmp_path):
    made = site.decide(check_mode=True)
    assert made["decisions"]["gpu-1"]["step"] == "drain"
    assert any("gpu-1: drain: begun" in line for line in made["lines"])
    assert list(tmp_path.iterdir()) == []


def test_a_repair_until_a_person(site, tmp_path):
    assert site.decide(listed=None)["listing"] == ["list"]
    drain = site.decide()["decisions"]
    assert drain["gpu-1"]["command"][:2] == ["out", "gpu-1"]
    reason = drain["gpu-1"]["command"][2]
    assert reason.startswith("sailloft-repair: ")
    site.listed["gpu-1"] = {"out": True, "busy": False, "reason": reason}
    site.end("drain")
    made = site.decide()
    assert (made["decisions"]["gpu-1"]["step"], made["decisions"]["gpu-1"]["kind"]) == ("reset", "gpu")
    assert made["decisions"]["gpu-1"]["place"] == fault()["place"]
    assert made["open"] == ["gpu-1"]
    site.end("reset", failed=True, reason="nvidia-smi: busy")
    assert site.log[-1] == ("reset", "failed")
    with pytest.raises(AnsibleActionFail, match="was not begun"):
        site.end("reset")


def test_jobs_that_must_leave_are_evicted_before_the_step(site):
    def listed(reason=""):
        metadata = {"annotations": {"sailloft.io/repair": reason}} if reason else {}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        nodes = [
            {
                "kind": "Node",
                "metadata": {"name": name, **(metadata if name == "gpu-1" else {})},
                "spec": {"unschedulable": bool(reason) and name == "gpu-1"},
                "status": ready,
            }
            for name in NODES
        ]
        pod = {"kind": "Pod", "metadata": {}, "spec": {"nodeName": "gpu-1"}, "status": {"phase": "Running"}}
        return {"scheduler": "kubernetes", "commands": {}, "listed": json.dumps({"items": [*nodes, pod]})}

    assert site.decide(**listed())["decisions"]["gpu-1"]["step"] == "drain"
    site.end("drain")
    assert site.decide(**listed("sailloft-repair: x"))["decisions"] == {}
    late = {"settings": {"kill_jobs": True, "wait_s": 0}}
    time.sleep(1.1)
    made = site.decide(**listed("sailloft-repair: x"), **late)["decisions"]["gpu-1"]
    assert (made["step"], made["command"][:3]) == ("evict", ["kubectl", "drain", "gpu-1"])
    site.end("evict", failed=True, reason="budget")
    assert site.decide(**listed("sailloft-repair: x"), **late)["decisions"]["gpu-1"]["step"] == "person"


def test_a_proof_of_the_repair_returns_it_and_an_old_one_does_not(site, tmp_path):
    (tmp_path / "gpu-1.json").write_text(Proof("gpu-1", "t", "gpu-1", [Claim("x", "y", "1", "1", True, "z")]).to_json())
    os.utime(tmp_path / "gpu-1.json", (1, 1))
    site.decide()
    site.end("drain")
    site.listed["gpu-1"] = {"out": True, "busy": False, "reason": "sailloft-repair: x"}
    site.decide()
    site.end("reset")
    site.own["gpu-1"]["node_health_read"] = answer(age_s=1.0)
    assert site.decide()["decisions"]["gpu-1"]["step"] == "prove"
    site.end("prove")
    made = site.decide()
    assert made["decisions"] == {}
    assert made["waiting"] == ["gpu-1"]
    future = time.time() + 60
    os.utime(tmp_path / "gpu-1.json", (future, future))
    made = site.decide()
    assert made["decisions"]["gpu-1"]["command"] == ["in", "gpu-1", ""]
    site.end("return")
    assert site.log[-1] == ("return", "done")
    counted = node_repair_history.node_repair_history(str(tmp_path / "repair"))
    assert counted["failures"] == 1
    assert any("gpu-1: return: done" in line for line in counted["lines"])


def test_a_person_gets_a_bundle(site, tmp_path):
    site.own["gpu-1"]["node_health_read"] = answer(age_s=1.0, faults=[fault(action="person")])
    site.decide()
    site.end("drain")
    site.listed["gpu-1"] = {"out": True, "busy": False, "reason": "sailloft-repair: x"}
    assert site.decide()["decisions"]["gpu-1"]["step"] == "person"
    assert site.end("person", readings={"kernel": "Xid 79"})["files"] == [str(tmp_path / "repair/gpu-1.json")]
    assert json.loads((tmp_path / "repair/gpu-1.json").read_text())["readings"] == {"kernel": "Xid 79"}
    site.decide(repaired=["gpu-1"])
    assert ("person", "repaired by a person") in site.log


def test_racks_switches_and_feeds_follow_from_the_inventory(site):
    for name in ("gpu-1", "ok00", "ok01"):
        ports = {"mlx5_0": {"peer": "leaf-1 Ethernet1/1"}}
        site.own[name].update(site_rack="r1", site_ports=ports, site_domains={"feed": "A"})
    for kind in ("rack", "leaf", "feed"):
        made = site.decide(check_mode=True, settings={"domain_most_out": {kind: 10}})
        assert made["decisions"] == {}
        assert kind in made["lines"][-1]


def test_a_node_without_devices_that_may_be_reset_is_rebooted(site):
    for resets, expected in (([], "reboot"), ("gpu,nic", "reset"), (["nic"], "reboot")):
        site.own["gpu-1"]["node_repair_resets"] = resets
        site.decide(path=str(site.folder / str(resets)))
        site.end("drain", path=str(site.folder / str(resets)))
        site.listed["gpu-1"] = {"out": True, "busy": False, "reason": "sailloft-repair: x"}
        assert site.decide(path=str(site.folder / str(resets)))["decisions"]["gpu-1"]["step"] == expected
        site.listed["gpu-1"] = {"out": False, "busy": False}


@pytest.mark.parametrize("domains", [5, {"feed": 5.5}, {"feed": [None]}, {"feed": {"A": 1}}])
def test_domains_that_cannot_be_read_name_their_node(site, domains):
    site.own["ok03"]["site_domains"] = domains
    with pytest.raises(AnsibleActionFail, match="ok03"):
        site.decide()


@pytest.mark.parametrize("off_s", [-365 * 86400, 365 * 86400])
def test_with_a_clock_that_the_nodes_do_not_have_nothing_is_decided(site, off_s):
    for variables in site.own.values():
        variables["node_health_read"]["health"]["now_unix_s"] = time.time() + off_s
    # One node with a wrong clock is that node's.
    site.own["ok00"]["node_health_read"]["health"]["now_unix_s"] = time.time()
    with pytest.raises(AnsibleActionFail, match="clock"):
        site.decide()
    for name in HEALTHY:
        site.own[name]["node_health_read"]["health"]["now_unix_s"] = time.time()
    assert site.decide()["decisions"]["gpu-1"]["step"] == "drain"


def test_a_log_of_the_future_stops_everything(site, monkeypatch):
    present = time.time
    monkeypatch.setattr(time, "time", lambda: present() + 86400)
    site.decide()
    monkeypatch.setattr(time, "time", present)
    with pytest.raises(AnsibleActionFail, match="future"):
        site.decide()


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"settings": {"most_out": 101}}, "most_out"),
        ({"settings": {"together": 1}}, "together"),
        ({"settings": {"kill": True}}, "kill"),
        ({"settings": {"domain_most_out": {"rack": "many"}}}, "rack"),
        ({"settings": {"domain_most_out": {"rak": 10}}}, "rak"),
        ({"commands": {"lst": []}}, "lst"),
        ({"commands": {}}, "node_repair_commands"),
        ({"listed": "nothing"}, "JSON"),
        ({"only": ["gpu-9"]}, "gpu-9"),
        ({"repaired": ["gpu-1"]}, "gpu-1"),
        ({"scheduler": "pbs"}, "pbs"),
    ],
)
def test_bad_input_gets_one_error(site, given, fact):
    with pytest.raises(AnsibleActionFail, match=fact):
        site.decide(**given)


def test_a_damaged_log_stops_everything(site, tmp_path):
    (tmp_path / "repair").mkdir()
    (tmp_path / "repair/repair-log.jsonl").write_text("nonsense\n")
    with pytest.raises(AnsibleActionFail, match="line 1"):
        site.decide()
