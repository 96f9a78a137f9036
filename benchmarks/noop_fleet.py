#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure a rollout to a fleet without changes: our playbooks, against the same state with one task per setting.

    benchmarks/noop_fleet.py
    benchmarks/noop_fleet.py --hosts 200 --delay 0.05

Stand-in hosts answer each round trip after a fixed time and use no processor time, because real hosts do not use the
controller's processors. They are servers with 8 GPUs and 8 NIC ports that have every setting (inventories/vela). Their
answer has the NCCL topology of a virtual machine with all GPUs of a recorded server. Our side is
playbooks/gpu_hosts.yml and gpu_vms.yml, with the packages; the peer does not check packages. Both sides run with the
same Ansible, forks and pipelining, one after the other, and both must report 0 changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from noop_converge import Run, play
from timed import ROOT, BenchmarkError, controller_s, status

sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.nccl_topology import for_guest
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

OURS = [{"import_playbook": str(ROOT / "playbooks" / name)} for name in ("gpu_hosts.yml", "gpu_vms.yml")]
SERVER = ROOT / "tests/recordings/supermicro-4029gp-ve.json"
SETTINGS = '{"sriov": {}}\n'
GPUS, PORTS, ACS_PORTS = 8, 8, 12
PEER = {
    "peer_grub_line": 'GRUB_CMDLINE_LINUX="iommu=pt"',
    "peer_settings": SETTINGS,
    "peer_domains": ["train-001"],
    "peer_huge_pages": [
        {"path": f"/sys/devices/system/node/node{node}/nr_hugepages", "value": "704"} for node in (0, 1)
    ],
    "peer_sriov": [{"address": f"0000:{at:02x}:00.0", "value": "1"} for at in range(PORTS)],
    "peer_drivers": [{"address": f"0000:{at:02x}:00.0", "value": "vfio-pci"} for at in range(GPUS)],
    "peer_read_requests": [{"address": f"0000:{at:02x}:00.0", "value": 4096} for at in range(GPUS + PORTS)],
    "peer_acs_ports": [{"address": f"0000:{at:02x}:00.0", "value": 0x5D} for at in range(ACS_PORTS)],
}
CHECKSUM = hashlib.sha1(SETTINGS.encode()).hexdigest()
OUTPUTS = {  # the keys are parts of the command line
    "nr_hugepages": "704", "sriov_numvfs": "1", "/driver": "../../vfio-pci", "CAP_EXP": "5000", "ECAP_ACS": "005d",
    "domstate": "running", "dominfo": "Autostart:      enable", "": "",
}  # fmt: skip
ANSWERS = {  # stand_ins/answering.py
    "command": {
        "of": {
            part: {"changed": True, "rc": 0, "stdout": output, "stdout_lines": [output], "stderr": ""}
            for part, output in OUTPUTS.items()
        }
    },
    "stat": {"changed": False, "stat": {"exists": True, "isdir": False, "islnk": False, "checksum": CHECKSUM}},
    "*": {"changed": False},
}
VARIABLES = {
    "gpu_host_hugepages": [{"node": node, "size_mib": 1024, "count": 704} for node in (0, 1)],
    "gpu_host_sriov": [{"devices": ["15b3:*"], "count": 1, "drivers_autoprobe": False}],
    "gpu_host_vfio": ["gpu"],
    "gpu_vm_domains": [{"name": "train-001", "memory_mib": 1441792, "gpus": {"count": GPUS}, "nics": {"per_gpu": 1}}],
}


def compared() -> dict[str, Any]:
    """Return gpu_host's answer, with the topology for a virtual machine that has all GPUs of a server."""
    host = read_saved(json.loads(SERVER.read_text(encoding="utf-8"))["topology"])
    (plan,) = plan_domains(host, parse_specs([{"name": "train-001", "memory_mib": 16384, "gpus": {"count": GPUS}}]))
    told = {"name": plan.name, "nccl_topology": for_guest(plan, host)}
    lists: dict[str, list[str]] = {name: [] for name in ("missing", "notes", "failures", "pending")}
    same = {"changed": False, "diff": {"before": {}, "after": {}}, "reboot_required": False, "reboot_due": False}
    return {"gpu_host": {**same, **lists, "virtual_machines": {"domains": [told], "differences": []}}}


def compare(hosts: int, delay_s: float) -> None:
    """Print both sides and their ratios. Raises BenchmarkError if one of them changed something."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "round_trips"
        os.environ.update(
            ANSIBLE_CONNECTION_PLUGINS=str(ROOT / "benchmarks/stand_ins"),
            ANSIBLE_CACHE_PLUGIN="memory",
            STAND_IN_FOLDER=str(folder),
            STAND_IN_DELAY_S=str(delay_s),
        )
        (folder / "answers.json").write_text(json.dumps({**ANSWERS, **compared()}), encoding="utf-8")
        (folder / "ours.yml").write_text(json.dumps(OURS), encoding="utf-8")
        common = {
            "ansible_connection": "answering",
            "ansible_pipelining": True,
            "ansible_python_interpreter": sys.executable,
        }
        names: dict[str, dict[str, str]] = {f"host-{number:04}": {} for number in range(hosts)}
        inventory = {"gpu_hosts": {"hosts": names, "vars": {**common, **VARIABLES, **PEER}}}
        (folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
        sides = {
            "gpu_hosts + gpu_vms": folder / "ours.yml",
            "one task a setting": ROOT / "benchmarks/peers/one_task_a_setting.yml",
        }
        print(f"{hosts} hosts, each round trip {delay_s:g} s")
        done: list[tuple[Run, float, float]] = []
        for side, playbook in sides.items():
            log.write_text("", encoding="utf-8")
            before = controller_s()
            run = play(playbook, ["-i", str(folder / "hosts.json")])
            used_s, trips = controller_s() - before, log.stat().st_size / hosts
            done.append((run, used_s, trips))
            if run.changed:
                raise BenchmarkError(f"{side} changed {run.changed} things, so it was no no-op")
            print(f"{side:<20}{run.seconds:>8.1f} s, {used_s:.1f} s of processor time, {trips:.1f} round trips a host")
        mine, peer = done
        print(
            f"one task a setting needs {peer[0].seconds / mine[0].seconds:.1f} times the time, "
            f"{peer[1] / mine[1]:.1f} times the processor time and {peer[2] / mine[2]:.1f} times the round trips"
        )


def main() -> int:
    """Run the benchmark. Return 0 if both sides ran and changed nothing, whatever the ratios are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=50, help="stand-in hosts (default 50)")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds that a round trip takes (default 0.05)")
    options = parser.parse_args()
    return status(lambda: compare(options.hosts, options.delay))


if __name__ == "__main__":
    sys.exit(main())
