#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make GPU virtual machines on vSphere: one call for a cluster, against a loop of community.vmware's modules.

    benchmarks/vsphere.py                        # 200 virtual machines on 50 hosts
    benchmarks/vsphere.py --hosts 5 --sample 2

First, all GPUs of all hosts are enabled for passthrough, on a separate vCenter for each side, and a second time without
a change. Our side is vsphere_host_passthrough, which chooses GPUs by kind, looks for virtual machines that use them and
reads back whether a host needs a reboot. The peer is one task of vmware_host_passthrough, which gets the GPUs'
addresses; it also changes all hosts of a cluster, but does none of these checks. A loop over the hosts, which it needs
where addresses differ, would cost more. The two sides alternate; the seconds are medians of ``--rounds``.

Then virtual machines are made, by both sides on one simulated vCenter (tests/vcsim). Our side plans and makes all
virtual machines with vsphere_gpu_vm in one play, and runs again without a change. The peer does as much as it can:
vmware_guest makes a virtual machine with its reservations and advanced settings, and changes nothing the second time;
it has no DirectPath device, latency sensitivity, virtual NUMA, placement or preflight. The cost of each of its tasks
does not depend on the number of virtual machines, so only ``--sample`` of them run in one play, and the figures are
scaled up to all. The simulator counts the requests. Seconds are the time of ansible-playbook with its start, which is
printed as well.

The target is for the sums, in the first run and without a change, and for the virtual machines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in (".collections", "tests/support/vm", "tests/support/vsphere")]

from simulated_vcenter import PASSWORD, USER, VCenter, esxi, serving, site
from vsphere_requests import server

VMS_OF_HOST = 4
TARGET = 5.0
MEMORY_MIB = 65536


def four_gpus() -> Any:
    """Return a server with four GPUs: the emulated server, with a neighbour for each of its two GPUs."""
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
    """Run tasks as one play on the controller and return its seconds. If it fails, end the program with its output."""
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
    ended = subprocess.run(
        [*command, str(path)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        sys.exit(ended.stdout + ended.stderr)
    return time.monotonic() - start


def measured(vcenter: VCenter, tasks: list[dict[str, Any]], folder: str) -> tuple[int, float]:
    """Return the requests to the API and the seconds of a play."""
    vcenter.forget()
    seconds = play(tasks, folder)
    return sum(vcenter.requests().values()), seconds


def ours(vcenter: VCenter, hosts: int) -> list[dict[str, Any]]:
    """Return our side's only task."""
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
    """Return the peer's tasks: one per virtual machine, with what its module supports, on one host after the other."""
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


class Figures(NamedTuple):
    """The requests and seconds of our side and of the peer."""

    requests: float
    seconds: float
    peer_requests: float
    peer_s: float

    def __str__(self) -> str:
        return (
            f"{self.requests:.0f} requests and {self.seconds:.1f} s; the peer {self.peer_requests:.0f} requests and "
            f"{self.peer_s:.1f} s: 1/{self.peer_requests / self.requests:.1f} of the requests, "
            f"1/{self.peer_s / self.seconds:.1f} of the time"
        )

    @property
    def met(self) -> bool:
        """Return True if requests and seconds are both at most the target's share of the peer's."""
        return self.peer_requests >= TARGET * self.requests and self.peer_s >= TARGET * self.seconds


def passthrough(hosts: int, rounds: int, folder: str) -> list[Figures]:
    """Return the figures of a run that enables all GPUs of all hosts, and of a run without a change."""
    described = site(*(esxi(four_gpus(), f"esx{number:03}", active=False) for number in range(hosts)))
    gpus = [item.address for item in four_gpus().functions if item.kind == "gpu"]
    rows: list[list[tuple[int, float]]] = [[], [], [], []]
    for _round in range(rounds):
        for own in (True, False):
            with serving(described) as vcenter:
                mine = {**vcenter.login, "cluster": "gpu", "settings": [{"devices": ["gpu"]}]}
                login = {"hostname": "127.0.0.1", "port": vcenter.port, "username": USER, "password": PASSWORD}
                theirs = {
                    **login,
                    "validate_certs": False,
                    "cluster": "gpu",
                    "devices": [{"device": it} for it in gpus],
                }
                name = "sailloft.fleet.vsphere_host_passthrough" if own else "community.vmware.vmware_host_passthrough"
                for again in (0, 1):
                    rows[2 * again + (not own)].append(measured(vcenter, [{name: mine if own else theirs}], folder))
    medians = [(row[0][0], statistics.median(seconds for _requests, seconds in row)) for row in rows]
    return [Figures(*medians[0], *medians[1]), Figures(*medians[2], *medians[3])]


def virtual_machines(hosts: int, count: int, base: float, folder: str) -> list[Figures]:
    """Return the figures of a first run and of one without a change; the peer's are scaled up from ``count`` of all."""
    found = []
    with serving(site(*(esxi(four_gpus(), f"esx{number:03}") for number in range(hosts)))) as vcenter:
        sample = peer(vcenter, count, hosts)
        for _again in range(2):
            mine = measured(vcenter, ours(vcenter, hosts), folder)
            requests, seconds = measured(vcenter, sample, folder)
            # The base time that Ansible needs for any play is not part of the tasks.
            times = hosts * VMS_OF_HOST / count
            found.append(Figures(*mine, requests * times, base + (seconds - base) * times))
    return found


def main() -> None:
    """Measure both sides and print the ratios; fail if a target is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--sample", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        base = statistics.median(play([{"ansible.builtin.meta": "noop"}], folder) for _round in range(options.rounds))
        print(f"the start of Ansible, which is in all seconds: {base:.1f} s", flush=True)
        devices = passthrough(options.hosts, options.rounds, folder)
        machines = virtual_machines(options.hosts, options.sample, base, folder)
    for what, device, machine in zip(("the first run", "no change"), devices, machines):
        whole = Figures(*(sum(pair) for pair in zip(device, machine)))
        print(f"GPUs of {options.hosts} hosts enabled for passthrough, {what}: {device}")
        print(f"{options.hosts * VMS_OF_HOST} virtual machines planned and made, {what}: {machine}")
        print(f"both, {what}: {whole}")
        missed = missed or not (machine.met and whole.met)
    if missed:
        sys.exit(f"the target is at most 1/{TARGET:.0f} of both")


if __name__ == "__main__":
    main()
