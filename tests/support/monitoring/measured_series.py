# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Series of a small sick fleet: what the real node exporter and our code say, and dcgm-exporter's names."""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from pathlib import Path

from sockets import free_port

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import drift
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.metrics import boot_server_metrics
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition, Fault, Unmeasured
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Moment, Place
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State
from ansible_collections.sailloft.fleet.plugins.module_utils.health.verdict import prometheus, verdict
from ansible_collections.sailloft.fleet.plugins.module_utils.logs import counts
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.series import at
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.dcgm import FIELDS
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import READ_AT, Metric, exposition
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

PORT = "class/infiniband/mlx5_0/ports/1"
# The files of one active port, as the kernel has them. Node exporter 1.5 reads no other collector's files from here.
SYS = {
    "class/infiniband/mlx5_0/fw_ver": "28.39.1002",
    "class/infiniband/mlx5_0/board_id": "MT_0000000838",
    "class/infiniband/mlx5_0/hca_type": "MT4129",
    f"{PORT}/state": "1: DOWN",
    f"{PORT}/phys_state": "3: Disabled",
    f"{PORT}/rate": "400 Gb/sec (4X NDR)",
    f"{PORT}/counters/port_xmit_data": "1000",
    f"{PORT}/counters/port_rcv_data": "1000",
    f"{PORT}/counters/link_downed": "3",
    f"{PORT}/counters/symbol_error": "7",
}
COLLECTORS = (
    "cpu",
    "meminfo",
    "loadavg",
    "filesystem",
    "netdev",
    "diskstats",
    "infiniband",
    "textfile",
    "stat",
    "time",
)
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


def textfiles() -> dict[str, str]:
    """Return the files of a node with faults and of a fabric that differs, written by the code of the collection."""
    now = Moment(time.time(), "boot-1", 100.0)
    faults = tuple(
        Fault(check, place, "a fault", "hardware", "drain", "gpu-lost", now, now)
        for check, place in (
            ("gpu_row_remap_pending", Place("gpu", "0000:4b:00.0")),
            ("port_down", Place("port", "mlx5_0/1")),
        )
    )
    unmeasured = (Unmeasured("pcie_width", Place("gpu", "0000:5d:00.0"), 2, "no answer", now),)
    values = {"gpu_temperature": {"gpu 0000:4b:00.0": 50.0}}
    state = State("n1", Round(7, now, 1.0, 60.0), Condition(faults=faults, unmeasured=unmeasured), values=values)
    claims = [
        Claim("port", "leaf1 swp1: its PFC", "3", "none", False, "read", "differs"),
        Claim("port", "leaf2 swp1: its PFC", "3", "3", True, "read", ""),
        Claim(drift.UNREAD, "leaf3: it was read", "its settings", None, False, "the device", "leaf3: no answer"),
    ]
    devices = dict.fromkeys(("leaf1", "leaf2", "leaf3"), "switch")
    return {
        "sailloft_health.prom": prometheus(verdict(state, now)),
        # A line of rsyslogd 8.2302 (impstats), as the tests of the logs have it from the real one.
        "sailloft_logs.prom": counts.metrics(
            [{"name": "kafka", "origin": "core.queue", "size": 7, "enqueued": 9, "discarded.full": 2}]
        ),
        "sailloft_fabric_drift.prom": exposition(
            [
                *drift.metrics(Proof("drift", "drift", "drift", claims), devices),
                Metric(READ_AT, "When this was read.", [({"reading": "fabric_drift"}, 1.0)]),
            ]
        ),
        "sailloft_boot_servers.prom": exposition(boot_server_metrics({"boot1": "no answer"})),
    }


def scraped(folder: Path) -> str:
    """Return the answer of the real node exporter on a made-up /sys, with our textfiles."""
    for name, text in SYS.items():
        path = folder / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    written = folder / "textfiles"
    written.mkdir()
    for name, text in textfiles().items():
        (written / name).write_text(text, encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus-node-exporter",
        f"--web.listen-address={address}",
        f"--path.sysfs={folder}/sys",
        f"--collector.textfile.directory={written}",
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in COLLECTORS),
    ]
    with open(folder / "log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            for _try in range(600):
                try:
                    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                        return str(answer.read().decode())
                except OSError:
                    time.sleep(0.05)
            raise AssertionError((folder / "log").read_text())
        finally:
            process.terminate()


def of_dcgm() -> str:
    """Return an answer in the form of dcgm-exporter, with our counters: its program needs a GPU and is not here."""
    lines = []
    for name, _kind, _help in FIELDS:
        for gpu in (0, 1):
            labels = f'gpu="{gpu}",UUID="GPU-{gpu}",pci_bus_id="00000000:4B:00.0",modelName="NVIDIA H100",hpc_job="42"'
            lines.append(f"{name}{{{labels}}} {200 if 'REASONS' in name else 50}")
    return "\n".join(lines)


def series(node_exporter: str) -> dict[str, tuple[float, bool]]:
    """Return value and whether it grows by series, as Prometheus stores them with the labels of the targets."""
    n1 = at("n1", rack="r1", feed="a")
    stored: dict[str, tuple[float, bool]] = {}
    for job, text in (("node", node_exporter), ("dcgm", of_dcgm())):
        counters = set(re.findall(r"^# TYPE (\w+) counter", text, re.M))
        counters |= {name for name, kind, _help in FIELDS if kind == "counter"}
        for name, labels, value in SAMPLE.findall(re.sub(r"(?m)^#.*\n?", "", text)):
            joined = ",".join(part for part in (labels, f'job="{job}"', n1) if part)
            stored[f"{name}{{{joined}}}"] = (float(value), name in counters)
    hosts = {n1: 1.0, at("n2", rack="r1", feed="a"): 1.0, at("n3", rack="r2"): 0.0, at("leaf1", role="switch"): 1.0}
    for labels, value in hosts.items():
        stored[f'up{{job="node",{labels}}}'] = (value, False)
        stored[f'probe_success{{job="ssh",{labels}}}'] = (value, False)
    stored[f'up{{job="dcgm",{at("n2", rack="r1", feed="a")}}}'] = (0.0, False)
    stored[f'sailloft_health_status{{job="node",spare="true",{at("n2", rack="r1", feed="a")}}}'] = (0.0, False)
    return stored
