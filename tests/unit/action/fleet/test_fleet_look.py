# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The whole fleet is looked at on the controller: files are written once, and a killed run is completed."""

from __future__ import annotations

import json
import os
import time

import pytest
from ansible.errors import AnsibleActionFail
from fleet_answers import answer, fault

from ansible_collections.sailloft.fleet.plugins.action import fleet_look
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.hosts import NODE, STORE
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import compare
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

GROUPS = {"all": ["localhost", "gpu-1", "leaf1"], "gpu_nodes": ["gpu-1"], "roce_switches": ["leaf1"]}
FILES = ("fleet.html", "fleet.json", "fleet-log.jsonl")


@pytest.fixture
def look(make, tmp_path):
    """Return a function that looks, with the result of the node where it is read anew."""
    (tmp_path / "proofs").mkdir()
    claim = compare("switch", "leaf1: its settings", "a", "a", "running")
    drift = Proof("fabric_drift", "Drift", "fabric_drift", [claim]).to_json()
    (tmp_path / "proofs/fabric_drift.json").write_text(drift)

    def run(result=None, **given):
        own = {NODE: result} if result else {}
        hostvars = {"gpu-1": own, "leaf1": {"roce_switch_ports": {"swp1": {"peer": {"host": "gpu-1"}}}}}
        action = make(fleet_look, path=str(tmp_path / "fleet"), proofs=str(tmp_path / "proofs"), **given)
        return action.run(task_vars={"groups": GROUPS, "hostvars": hostvars})

    return run


def texts(folder):
    return {name: (folder / "fleet" / name).read_bytes() for name in FILES}


def test_a_second_look_writes_the_same_bytes_and_is_no_change(look, tmp_path):
    first = look(answer())
    assert (first["changed"], first["holds"]) == (True, True)
    assert (first["counts"]["ok"], first["changes"]) == (2, [])
    before = texts(tmp_path)
    second = look()
    assert (second["changed"], second["holds"], second["changes"]) == (False, True, [])
    assert texts(tmp_path) == before


def test_check_mode_writes_nothing_and_shows_what_would_be_logged(look, tmp_path):
    assert look(answer(), check_mode=True)["changed"]
    assert not (tmp_path / "fleet").exists()
    look(answer())
    before = texts(tmp_path)
    shown = look(answer(faults=[fault()]), check_mode=True)
    assert shown["changed"]
    assert "gpu-1" in shown["diff"]["after"]
    assert texts(tmp_path) == before


def test_a_change_is_appended_to_the_log(look, tmp_path):
    look(answer())
    sick = look(answer(faults=[fault()]))
    assert not sick["holds"]
    look(answer())
    lines = [json.loads(line) for line in texts(tmp_path)["fleet-log.jsonl"].splitlines()]
    assert [(line["host"], line["kind"], line["before"][:3], line["after"][:5]) for line in lines] == [
        ("gpu-1", "health", "ok:", "fault"),
        ("gpu-1", "health", "fau", "ok: n"),
    ]


@pytest.mark.parametrize("kept_bytes", [0, 20])
def test_the_log_of_a_killed_run_is_completed(look, tmp_path, kept_bytes):
    look(answer())
    look(answer(faults=[fault()]))
    whole = texts(tmp_path)
    (tmp_path / "fleet/fleet-log.jsonl").write_bytes(whole["fleet-log.jsonl"][:kept_bytes])
    (tmp_path / "fleet/fleet.html").unlink()
    look()
    assert texts(tmp_path) == whole


def test_what_was_not_read_is_not_known(look):
    seen = look()
    assert not seen["holds"]
    assert (seen["counts"]["unknown"], seen["counts"]["ok"]) == (1, 1)
    assert any("gpu-1" in line for line in seen["lines"])


def test_an_old_proof_is_not_known(look, tmp_path):
    old = time.time() - 40 * 86400
    os.utime(tmp_path / "proofs/fabric_drift.json", (old, old))
    seen = look(answer())
    assert (seen["holds"], seen["counts"]["unknown"]) == (False, 1)


def test_a_damaged_state_is_refused(look, tmp_path):
    look(answer())
    (tmp_path / "fleet/fleet.json").write_text("{")
    with pytest.raises(AnsibleActionFail, match=r"fleet\.json"):
        look()


def test_a_blueprint_gives_racks(look, tmp_path):
    assert look(answer(), blueprint="inventories/small/blueprint.yml")["changed"]
    assert '"racks":[["' in texts(tmp_path)["fleet.html"].decode()


def test_states_are_metrics_and_boot_servers_only_if_all_were_asked(make, tmp_path):
    groups = {"all": ["gpu-1", "boot1", "boot2"], "gpu_nodes": ["gpu-1"], "boot_servers": ["boot1", "boot2"]}
    store = {STORE: {"channels": [], "images": [], "missing": [], "statement": 3}}

    def run(boot2):
        hostvars = {"gpu-1": {NODE: answer()}, "boot1": store, "boot2": boot2}
        paths = {"path": str(tmp_path / "fleet"), "proofs": str(tmp_path), "metrics_path": str(tmp_path / "metrics")}
        make(fleet_look, **paths).run(task_vars={"groups": groups, "hostvars": hostvars})
        return {each.name: each.read_text() for each in (tmp_path / "metrics").iterdir()}

    assert list(run({})) == ["sailloft_fleet.prom"]
    written = run({STORE: {"unreachable": True}})
    assert 'sailloft_fleet_state{device="gpu-1",kind="health"} 0\n' in written["sailloft_fleet.prom"]
    assert 'sailloft_boot_server_read{device="boot2"} 0\n' in written["sailloft_boot_servers.prom"]
    assert 'sailloft_reading_timestamp_seconds{reading="boot_servers"} ' in written["sailloft_boot_servers.prom"]
