#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPU virtual machines on vSphere: one call for a cluster, against a loop of community.vmware's modules.

    benchmarks/vsphere.py                        # 200 virtual machines on 50 hosts
    benchmarks/vsphere.py --hosts 5 --sample 2

First all GPUs of all hosts are enabled for passthrough, on a vCenter each: vsphere_host_passthrough, which chooses them
by kind, against vmware_host_passthrough, which is told their addresses and takes all hosts of a cluster too.

Then virtual machines, both on one simulated vCenter (tests/vcsim). Ours plans and makes all virtual machines, and runs
again with no change: vsphere_gpu_vm in one play of its own. The peer does as much as it can: vmware_guest makes a
virtual machine with its reservations and advanced settings, and a second time changes nothing; it has no DirectPath
device, latency sensitivity, virtual NUMA, placement or preflight. Each of its tasks costs the same, so ``--sample`` of
them are run in one play, and the figures for all are that times the number. Requests are those that the simulator
counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in (".collections", "tests/support/vm", "tests/support/vsphere")]

from simulated_vcenter import PASSWORD, USER, VCenter, esxi, serving, site
from vsphere_requests import server

VMS_OF_HOST = 4
TARGET = 5.0
MEMORY_MIB = 65536


def four_gpus() -> Any:
    """A server with four GPUs: the emulated one, with a neighbour to each of its two."""
    host = server()
    for function in [item for item in host.functions if item.kind == "gpu"]:
        twin = type(function)(**{**vars(function), "address": function.address[:-1] + "1", "iommu_group": None})
        host.functions.append(twin)
    for node in host.numa_nodes:
        node.cpus = list(range(node.id * 32, node.id * 32 + 32))
        node.siblings = [node.cpus[at : at + 2] for at in range(0, 32, 2)]
    host.functions.sort(key=lambda item: item.address)
    return host


def play(tasks: list[dict[str, Any]], folder: str) -> float:
    """Run tasks as one play on the controller; return the seconds it took. Fails with its output."""
    path = Path(folder) / "play.yml"
    path.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOWS": "1"}
    command = [
        "ansible-playbook",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
    ]
    start = time.monotonic()
    ended = subprocess.run([*command, str(path)], cwd=ROOT, env=environment, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(ended.stdout + ended.stderr)
    return time.monotonic() - start


def measured(vcenter: VCenter, tasks: list[dict[str, Any]], folder: str) -> tuple[int, float]:
    """Return the requests to the API and the seconds of a play."""
    vcenter.forget()
    seconds = play(tasks, folder)
    return sum(vcenter.requests().values()), seconds


def ours(vcenter: VCenter, hosts: int) -> list[dict[str, Any]]:
    """Return the one task of ours."""
    domains = [
        {
            "name": f"vm-{host:03}-{number}",
            "gpus": {"count": 1},
            "memory_mib": MEMORY_MIB,
            "vcpus": 4,
            "disks": [{"size_mib": 1024}],
            "vsphere": {"host": f"esx{host:03}"},
        }
        for host in range(hosts)
        for number in range(VMS_OF_HOST)
    ]
    login = {**vcenter.login, "cluster": "gpu"}
    return [{"sailloft.fleet.vsphere_gpu_vm": {**login, "domains": domains, "state": "running"}}]


def peer(vcenter: VCenter, count: int, hosts: int) -> list[dict[str, Any]]:
    """Return the tasks of the peer: a virtual machine each, as far as its module goes, on one host after the other."""
    login = {"hostname": "127.0.0.1", "port": vcenter.port, "username": USER, "password": PASSWORD}
    return [
        {
            "community.vmware.vmware_guest": {
                **login,
                "validate_certs": False,
                "name": f"peer-{number}",
                "datacenter": "DC0",
                "folder": "/DC0/vm",
                "esxi_hostname": f"esx{number % hosts:03}",
                "guest_id": "otherLinux64Guest",
                "state": "present",
                "disk": [{"size_mb": 1024, "type": "thin", "datastore": "LocalDS_0"}],
                "hardware": {
                    "memory_mb": MEMORY_MIB,
                    "num_cpus": 4,
                    "boot_firmware": "efi",
                    "memory_reservation_lock": True,
                },
                "advanced_settings": [
                    {"key": "pciPassthru.use64bitMMIO", "value": "TRUE"},
                    {"key": "pciPassthru.64bitMMIOSizeGB", "value": "256"},
                    {"key": "numa.nodeAffinity", "value": "0"},
                ],
            }
        }
        for number in range(count)
    ]


def passthrough(inactive: dict[str, Any], folder: str) -> list[tuple[int, float]]:
    """Return the requests and seconds of ours and of the peer, with all devices of all hosts disabled before."""
    gpus = [item.address for item in four_gpus().functions if item.kind == "gpu"]
    found = []
    for own in (True, False):
        with serving(inactive) as vcenter:
            mine = {**vcenter.login, "cluster": "gpu", "settings": [{"devices": ["gpu"]}]}
            login = {"hostname": "127.0.0.1", "port": vcenter.port, "username": USER, "password": PASSWORD}
            theirs = {**login, "validate_certs": False, "cluster": "gpu", "devices": [{"device": it} for it in gpus]}
            module = "sailloft.fleet.vsphere_host_passthrough" if own else "community.vmware.vmware_host_passthrough"
            found.append(measured(vcenter, [{module: mine if own else theirs}], folder))
    return found


def main() -> None:
    """Measure both and print the ratios; fails where one misses its target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--sample", type=int, default=8)
    options = parser.parse_args()
    total = options.hosts * VMS_OF_HOST
    names = [f"esx{number:03}" for number in range(options.hosts)]
    described = site(*(esxi(four_gpus(), name) for name in names))
    inactive = site(*(esxi(four_gpus(), name, active=False) for name in names))
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        (requests, seconds), (peers, peer_seconds) = passthrough(inactive, folder)
        print(
            f"GPUs of {options.hosts} hosts enabled for passthrough: {requests} requests and {seconds:.1f} s; "
            f"vmware_host_passthrough {peers} requests and {peer_seconds:.1f} s: "
            f"1/{peers / requests:.1f} of the requests, 1/{peer_seconds / seconds:.1f} of the time"
        )
    with tempfile.TemporaryDirectory() as folder, serving(described) as vcenter:
        sample = peer(vcenter, options.sample, options.hosts)
        base = play([{"ansible.builtin.meta": "noop"}], folder)
        for what in ("planned and made", "no change"):
            requests, seconds = measured(vcenter, ours(vcenter, options.hosts), folder)
            peers, peer_seconds = measured(vcenter, sample, folder)
            # What Ansible needs for any play is not the tasks'.
            times = total / options.sample
            all_peers, all_seconds = peers * times, base + (peer_seconds - base) * times
            print(
                f"{total} virtual machines on {options.hosts} hosts, {what}: {requests} requests and {seconds:.1f} s; "
                f"vmware_guest ({options.sample} measured) {all_peers:.0f} requests and {all_seconds:.0f} s: "
                f"1/{all_peers / requests:.1f} of the requests, 1/{all_seconds / seconds:.1f} of the time"
            )
            missed = missed or all_peers < TARGET * requests or all_seconds < TARGET * seconds
    if missed:
        sys.exit(f"the target is at most 1/{TARGET:.0f} of both")


if __name__ == "__main__":
    main()
