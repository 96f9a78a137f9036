# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A reading of counters is judged by the increase since the earlier one, which it replaces."""

from __future__ import annotations

import json

import ib_sites
import pytest
import sites
import yaml
from ansible.errors import AnsibleActionFail
from made_up_ports import counters, found

from ansible_collections.sailloft.fleet.plugins.action import ib_fabric_health
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import ManagerReadings, pack

SITE, GUIDS = ib_sites.small()
FOUND = found(fabric_of(SITE, "compute"))
ERRORS = {("leaf-1-2", 4): {"SymbolErrorCounter": 500}, ("spine-2", 2): {"SymbolErrorCounter": 500}}


@pytest.fixture
def judged(make, tmp_path):
    """Return a function that judges a reading."""
    blueprint = tmp_path / "blueprint.yml"
    blueprint.write_text(yaml.safe_dump(sites.changed(**ib_sites.TREE)))

    def run(read_at_s, counted, check_mode=False, **others):
        readings = tmp_path / "ports.json.gz"
        ports = ManagerReadings(True, found=FOUND, counters=counters(counted), read_at_s=read_at_s)
        readings.write_bytes(pack(ports))
        action = make(
            ib_fabric_health,
            blueprint=str(blueprint),
            fabric="compute",
            guids=GUIDS,
            readings={"node-1": str(readings)},
            path=str(tmp_path / "proofs"),
            **others,
        )
        action._task.check_mode = check_mode
        return action.run(task_vars={})

    return run


def test_the_increase_since_the_last_run_is_judged(judged):
    assert judged(0, ERRORS)["holds"] is False
    assert judged(3600, ERRORS)["holds"] is True
    assert judged(7200, {port: {"SymbolErrorCounter": 900} for port in ERRORS}, check_mode=True)["changed"] is True
    # Check mode has not kept its reading.
    result = judged(7200, {port: {"SymbolErrorCounter": 1000} for port in ERRORS}, spare_uplinks=1)
    assert [fault["part"] for fault in result["faults"]] == ["cable"]
    assert (result["holds"], result["ports"]) == (False, [])


def test_the_result_is_a_proof_and_metrics(judged, tmp_path):
    first = judged(0, ERRORS, metrics_path=str(tmp_path / "metrics"))
    proof = json.loads((tmp_path / "proofs/infiniband-compute-health.json").read_text())
    assert ("failed" in first, {claim["layer"] for claim in proof["claims"]}) == (False, {"unread"})
    judged(3600, {port: {"SymbolErrorCounter": 1000} for port in ERRORS}, metrics_path=str(tmp_path / "metrics"))
    proof = json.loads((tmp_path / "proofs/infiniband-compute-health.json").read_text())
    (failed,) = [claim for claim in proof["claims"] if claim["holds"] is False]
    assert failed["claim"] == "leaf-1-2 ib4 - spine-2 ib2: the link"
    lines = (tmp_path / "metrics/sailloft_ib_health_compute.prom").read_text().splitlines()
    link = 'link="leaf-1-2 ib4 - spine-2 ib2",part="cable",check="port_symbol_errors"'
    port = 'node="spine-2",port="2",counter="SymbolErrorCounter"'
    assert f'sailloft_ib_link_fault{{fabric="compute",{link}}} 1' in lines
    assert f'sailloft_ib_port_counter_total{{fabric="compute",{port}}} 1000' in lines
    assert 'sailloft_ib_links{fabric="compute",state="healthy"} 15' in lines
    assert 'sailloft_reading_timestamp_seconds{reading="ib_health_compute"} 3600' in lines


def test_ports_are_returned_for_isolation_or_refused(judged):
    (port,) = judged(0, {}, isolate=["leaf-1-2 ib4"], spare_uplinks=1)["ports"]
    assert (port["guid"], port["port"], port["state"]) == (GUIDS["leaf-1-2"], 4, "disabled")
    with pytest.raises(AnsibleActionFail, match="leaf-1-2"):
        judged(0, {}, isolate=["leaf-1-2 ib4"])


def test_readings_without_counters_are_refused(make, tmp_path, judged):
    judged(0, {})
    blueprint, readings = tmp_path / "blueprint.yml", tmp_path / "fabric.json.gz"
    readings.write_bytes(pack(ManagerReadings(True, found=FOUND)))
    for given in ({}, {"readings": {"node-1": str(readings)}}):
        place = {"blueprint": str(blueprint), "path": str(tmp_path)}
        action = make(ib_fabric_health, fabric="compute", guids=GUIDS, **place, **given)
        with pytest.raises(AnsibleActionFail, match="part: ports"):
            action.run(task_vars={})
