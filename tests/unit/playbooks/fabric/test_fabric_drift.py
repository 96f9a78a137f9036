# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/fabric_drift.yml on two simulated leaves, and on hosts that cannot be read."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from simulated_fabric import LOSSLESS, SWITCHES, Fabric

pytestmark = pytest.mark.fleet

DRIFT = "playbooks/fabric_drift.yml"


def samples(file: Path) -> dict[str, float]:
    """Return the samples of a file of metrics by name and labels, in Prometheus' text format."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return {sample: float(value) for sample, _space, value in (line.rpartition(" ") for line in lines)}


def test_differences_are_reported_and_no_device_is_changed(fabric):
    fabric.apply(LOSSLESS, *SWITCHES)
    file = fabric.path / "metrics/sailloft_fabric_drift.prom"
    config = fabric.sonic()
    config["PORT"]["Ethernet0"]["mtu"] = "1500"
    fabric.set_sonic(config)
    status, output = fabric.play("-e", f"metrics_path={file.parent}", policy=LOSSLESS, playbook=DRIFT)
    assert status != 0
    assert re.search(r"differ: +1 of 2: leaf1", output)
    assert re.search(r"leaf1: .*largest IP packet.*wanted 9100, seen 1500", output)
    assert samples(file)['sailloft_fabric_drift_differences{device="leaf1",kind="switch"}'] >= 1
    assert samples(file)['sailloft_fabric_drift_device_read{device="leaf1",kind="switch"}'] == 1
    assert fabric.sonic() == config
    assert set(fabric.sonic_log()) == {"read"}
    assert set(fabric.nvue.events) == {"read"}


@pytest.mark.long
def test_no_difference_is_reported_where_none_is_and_a_limited_run_writes_no_metrics(fabric):
    fabric.apply(LOSSLESS, *SWITCHES)
    file = fabric.path / "metrics/sailloft_fabric_drift.prom"
    metrics = ("-e", f"metrics_path={file.parent}")
    status, output = fabric.play(*metrics, policy=LOSSLESS, playbook=DRIFT)
    assert status == 0, output
    claims = {
        result: samples(file)[f'sailloft_fabric_drift_claims{{result="{result}"}}'] for result in ("held", "failed")
    }
    assert claims["held"] >= 10 > claims["failed"] == 0
    assert {value for sample, value in samples(file).items() if "_differences" in sample} == {0}

    before = file.read_bytes()
    status, output = fabric.play(*metrics, "--limit", "leaf2", policy=LOSSLESS, playbook=DRIFT)
    assert status == 0, output
    assert file.read_bytes() == before, "the metrics of a part would hide the difference of the rest"
    assert f"{file}: not written" in output


@pytest.mark.long
def test_devices_that_cannot_be_read_fail_and_the_others_are_compared(fabric):
    """leaf1 shows garbage, gpu01 has no RDMA device, and gpu02 refuses its connection."""
    fabric.apply(LOSSLESS, "leaf2")
    inventory = json.loads((fabric.path / "inventory.json").read_text())
    nics = {"roce_host_nics": {"mlx5_0": {"speed_gbit_s": 400}}, "ansible_python_interpreter": sys.executable}
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_common_args": "-o ConnectTimeout=2"}
    inventory["roce_hosts"] = {"hosts": {"gpu01": {**nics, "ansible_connection": "local"}, "gpu02": {**nics, **gone}}}
    (fabric.path / "inventory.json").write_text(json.dumps(inventory))
    (fabric.leaf1 / "garbage").write_text("Traceback (most recent call last):")
    file = fabric.path / "metrics/sailloft_fabric_drift.prom"
    options = ("-e", f"metrics_path={file.parent}", "-e", "fabric_drift_traffic_s=1")
    status, output = fabric.play(*options, policy=LOSSLESS, playbook=DRIFT)
    assert status != 0
    assert re.search(r"not read: +3 of 4: gpu\[01-02\],leaf1", output), output
    read = {name: samples(file)[f"sailloft_fabric_drift_device_read{{{labels}}}"] for name, labels in KINDS.items()}
    assert read == {"leaf1": 0, "leaf2": 1, "gpu01": 0, "gpu02": 0}
    assert {sample for sample in samples(file) if "_differences" in sample} == {
        f"sailloft_fabric_drift_differences{{{KINDS['leaf2']}}}"
    }
    reasons = {claim["claim"]: claim["reason"] for claim in proof_of_drift(fabric) if claim["layer"] == "unread"}
    assert "not JSON" in reasons["leaf1: it was read"]
    assert "mlx5_0" in reasons["gpu01: it was read"]
    assert "127.0.0.1, port 1" in reasons["gpu02: it was read"]
    # The simulated switches count nothing that is measured, and hosts that were not read are not asked.
    traffic = [claim for claim in proof_of_drift(fabric) if claim["layer"] == "traffic"]
    assert {(claim["claim"].partition(":")[0], claim["holds"]) for claim in traffic} == {
        ("leaf1", None),
        ("leaf2", None),
    }


KINDS = {
    **{name: f'device="{name}",kind="switch"' for name in ("leaf1", "leaf2")},
    **{name: f'device="{name}",kind="host"' for name in ("gpu01", "gpu02")},
}


def proof_of_drift(fabric: Fabric) -> list[dict[str, Any]]:
    return json.loads((fabric.path / "proofs/fabric_drift.json").read_text())["claims"]
