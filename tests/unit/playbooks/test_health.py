# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/health.yml on nodes that are directories: one healthy, three with one fault, one old, one that is gone."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import pytest
import rounds
import yaml
from playing import ROOT, ansible_playbook
from redfish_bmc import PASSWORD, USER, RedfishBmc, new, status

from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition, Fault
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State

pytestmark = pytest.mark.fleet
SICK = ("gpu-017", "gpu-203", "gpu-411")


def stored(place, faults=(), before_s=10.0):
    """Store a node's state of so many seconds ago."""
    now = state.moment()
    place.mkdir()
    ended = replace(now, boot_s=now.boot_s - before_s)
    state.save(State(place.name, Round(7, ended, 0.4, 60.0), Condition(faults)), str(place))


@pytest.fixture
def site(tmp_path):
    """Return a function that runs the playbook with the states in directories, and returns status and output."""
    now = state.moment()
    part = "GPU 4, slot 7, serial number: label on the tray"
    title, action = "GPU row remap pending", "reset_gpu"
    fault = Fault(
        "gpu_row_remap_pending", rounds.GPU, title, "hardware", action, "gpu-row-remap", now, now, part=part, seen="yes"
    )
    stored(tmp_path / "gpu-001")
    for name in SICK:
        stored(tmp_path / name, (fault,))
    stored(tmp_path / "gpu-300", before_s=5000.0)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    gone = {"ansible_connection": "ssh", "ansible_host": "192.0.2.1", "ansible_ssh_common_args": "-o ConnectTimeout=1"}
    hosts = dict.fromkeys(("gpu-001", *SICK, "gpu-300"), local)
    # One boot server has the dump of a node, the other no directory of them.
    dump = tmp_path / "boot01/gpu-300/20261129T125500Z"
    dump.mkdir(parents=True)
    (dump / "panic").write_text("[ 7.1] Kernel panic - not syncing: x\n")
    servers = {"hosts": dict.fromkeys(("boot01", "boot02"), local), "vars": {"boot_server_crash_dumps_gib": 1}}
    inventory = {"gpu_nodes": {"hosts": {**hosts, "gpu-500": gone}}, "boot_servers": servers}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": inventory}}))

    def run(*more):
        plays = yaml.safe_load((ROOT / "playbooks/health.yml").read_text())[1:]
        path = {"path": f"{tmp_path}/{{{{ inventory_hostname }}}}"}
        plays[0]["module_defaults"] = {"sailloft.fleet.crash_dumps_info": path}
        plays[-1]["module_defaults"] = {
            "sailloft.fleet.node_health_info": {"state_dir": f"{tmp_path}/{{{{ inventory_hostname }}}}"}
        }
        (tmp_path / "health.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
        return ansible_playbook("-i", str(tmp_path / "hosts.json"), *more, str(tmp_path / "health.yml"))

    return run


def test_the_table_names_each_node_and_the_run_fails_with_the_summary(site):
    rc, output = site()
    print(output)
    assert rc != 0
    assert "3 nodes: GPU 4: GPU row remap pending: gpu-[017,203,411]" in output
    assert "slot 7, serial number: label on the tray" in output
    assert "1 node: healthy: gpu-001" in output
    for name in ("gpu-300", "gpu-500"):
        assert any(line.strip().endswith(f": {name}") for line in output.splitlines()), name
    assert "1 of 6 nodes healthy, 3 with faults, 2 not known" in output
    assert re.search(r"boot01: gpu-300 crashed .*Kernel panic - not syncing: x", output)
    assert re.search(r"boot02: its crash dumps are not known: .*boot_server_crash_dumps_gib", output)


@pytest.mark.long
def test_a_report_does_not_fail(site):
    rc, output = site("-e", "health_report_only=true")
    assert rc == 0, output


def test_the_bmcs_of_all_nodes_are_asked_in_one_call(site, tmp_path):
    server = RedfishBmc(tmp_path / "bmc", new({"Bay2": status("Critical", Id="Bay2", LineInputStatus="LossOfInput")}))
    bmc = {"address": server.address, "username": USER, "password": PASSWORD, "ca": server.ca}
    try:
        variables = {"health_bmcs": True, "node_boot_bmc": bmc, "proofs_path": str(tmp_path / "proofs")}
        rc, output = site("-vvv", "-e", json.dumps(variables))
    finally:
        server.stop()
    assert rc != 0
    assert "6 nodes: bmc Bay2: power supply without input: feed or cord: gpu-[001,017,203,300,411,500]" in output
    proof = json.loads((tmp_path / "proofs/health-bmcs.json").read_text())
    assert [claim["holds"] for claim in proof["claims"]] == [False] * 6
    assert PASSWORD not in output + json.dumps(proof)
    assert server.changes == []
