#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure a converge without changes: gpu_host and gpu_vm, against the same state with one task per setting.

    benchmarks/noop_converge.py -i inventories/lab --limit hv01

The host must already be converged. Both sides run with the same Ansible, connection and pipelining, one after the
other, and both must report 0 changed. The peer is peers/one_task_a_setting.yml. It gets the host's addresses and
current values, so that it does not have to search for them.

A round trip is one command or one file over the connection: the lines "SSH: EXEC", "PUT" and "FETCH" that Ansible
prints with -vvv.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timed import ROOT, BenchmarkError, status, timed

ROUND_TRIP = re.compile(r"^<[^>]+> (?:SSH: EXEC|EXEC|PUT|FETCH) ", re.MULTILINE)
RECAP = re.compile(r"^\S+\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)

# Our side, without the packages, which both sides would check in the same way.
OURS = """
- hosts: gpu_hosts
  gather_facts: false
  vars: {packages_install: false}
  roles:
    - sailloft.fleet.gpu_host
    - sailloft.fleet.gpu_vm
"""
# Reads the data about the host that the peer needs.
READ = """
- hosts: gpu_hosts
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: sailloft.fleet.gpu_host, tasks_from: read}
    - ansible.builtin.import_role: {name: sailloft.fleet.gpu_vm, tasks_from: read}
    - ansible.builtin.slurp: {src: /etc/sailloft/gpu_host.json}
      register: saved
    - ansible.builtin.command: tail -n 1 /etc/default/grub.d/90-sailloft.cfg
      register: grub
      changed_when: false
    - ansible.builtin.copy:
        content: "{{ {'topology': gpu_host_topology_read.topology, 'settings': gpu_host_read.outcomes.settings.outcomes,
                      'domains': gpu_vm_read.domains | map(attribute='name'), 'saved': saved.content | b64decode,
                      'grub': grub.stdout} | to_json }}"
        dest: "{{ benchmark_facts }}"
        mode: "0600"
      delegate_to: localhost
"""


@dataclass
class Run:
    """One run of ansible-playbook."""

    seconds: float
    round_trips: int
    changed: int


def play(playbook: Path, arguments: list[str]) -> Run:
    """Run a playbook. Raises BenchmarkError with the end of its output where it fails."""
    seconds, output = timed(["ansible-playbook", *arguments, str(playbook)], ANSIBLE_PIPELINING="true")
    recap = RECAP.findall(output)
    if not recap:
        raise BenchmarkError(f"{playbook.name} was on no host:\n{output[-3000:]}")
    return Run(seconds, len(ROUND_TRIP.findall(output)), sum(int(changed) for changed, _, _ in recap))


def peer_variables(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of peers/one_task_a_setting.yml from the data of the host."""
    functions = facts["topology"]["functions"]
    tuned = facts["settings"]["pci_tuning"]["devices"]
    known = {function["address"]: function for function in functions}
    return {
        "peer_grub_line": facts["grub"],
        "peer_settings": facts["saved"],
        "peer_domains": facts["domains"],
        "peer_huge_pages": [
            {
                "path": f"/sys/devices/system/node/node{pages['node']}/hugepages/"
                f"hugepages-{pages['size_mib'] * 1024}kB/nr_hugepages",
                "value": str(pages["total"]),
            }
            for pages in facts["settings"]["hugepages"]["hugepages"]
        ],
        "peer_sriov": [
            {"address": address, "value": str(known[address]["sriov"]["now"])}
            for address in facts["settings"]["sriov"]["functions"]
        ],
        "peer_drivers": [
            {"address": function["address"], "value": "vfio-pci"}
            for function in functions
            if function["driver"] == "vfio-pci"
        ],
        "peer_read_requests": [
            {"address": address, "value": known[address]["max_read_request_bytes"]}
            for address, device in tuned.items()
            if "max_read_request_bytes" in device
        ],
        "peer_acs_ports": [
            {"address": address, "value": known[address]["acs"]["control"]}
            for address, device in tuned.items()
            if "acs" in device
        ],
    }


def compare(arguments: list[str], rounds: int) -> None:
    """Print both sides and their ratios. Raises BenchmarkError if one of them changed something."""
    with tempfile.TemporaryDirectory() as folder:
        ours, read, facts, variables = (Path(folder, name) for name in ("ours.yml", "read.yml", "facts", "vars.json"))
        ours.write_text(OURS, encoding="utf-8")
        read.write_text(READ, encoding="utf-8")
        play(read, [*arguments, "-e", f"benchmark_facts={facts}"])
        variables.write_text(
            json.dumps(peer_variables(json.loads(facts.read_text(encoding="utf-8")))), encoding="utf-8"
        )
        sides: dict[str, list[Run]] = {"gpu_host + gpu_vm": [], "one task a setting": []}
        for _ in range(rounds):
            sides["gpu_host + gpu_vm"].append(play(ours, arguments))
            sides["one task a setting"].append(
                play(ROOT / "benchmarks/peers/one_task_a_setting.yml", [*arguments, "-e", f"@{variables}"])
            )
    best = {name: min(runs, key=lambda run: run.seconds) for name, runs in sides.items()}
    for name, runs in sides.items():
        changed = sum(run.changed for run in runs)
        if changed:
            raise BenchmarkError(f"{name} changed {changed} things, so it was no no-op: converge the host first")
        print(f"{name:<20}{best[name].seconds:>8.1f} s{best[name].round_trips:>6} round trips, 0 changed")
    mine, peer = best.values()
    print(
        f"one task a setting needs {peer.round_trips / mine.round_trips:.1f} times the round trips "
        f"and {peer.seconds / mine.seconds:.1f} times the time"
    )


def main() -> int:
    """Run the benchmark. Return 0 if both sides ran and changed nothing, whatever the ratios are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-i", "--inventory", default="inventories/lab")
    parser.add_argument("--limit", default="gpu_hosts", help="hosts to compare on (default: gpu_hosts)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each side; the faster one counts (default 2)")
    options = parser.parse_args()
    arguments = ["-vvv", "-i", options.inventory, "--limit", f"{options.limit},localhost"]
    return status(lambda: compare(arguments, options.rounds))


if __name__ == "__main__":
    sys.exit(main())
