#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a whole host with our reader, and with ``lspci -vvv`` plus ``lstopo``, in turns in one run.

    benchmarks/topology_read.py                                  # this machine
    benchmarks/topology_read.py --ssh "ssh -p 2222 root@hv01"    # another machine; it needs pciutils and hwloc
    benchmarks/topology_read.py --ssh "..." -i inventories/lab --limit hv01    # and as Ansible's tasks

There are three comparisons, and each figure is the median of its rounds. The peer's two programs print text and XML,
which a role would still have to parse; the time for that is not counted.

- reading: in a running interpreter, like a module that Ansible has started.
- processes: a Python that is started only for this, with its start and imports, against the same two programs.
- tasks: the time of a play's tasks, one task of host_topology_info against two of ansible.builtin.command.

Needs root on the machine, otherwise both sides see 64 bytes of config space. Nothing is left on the machine.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "ansible_collections/sailloft/fleet"

# The program that runs on the machine that is read.
MEASURE = r"""
import json, os, statistics, subprocess, sys, time
rounds = int(sys.argv[1])
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
reader = "from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host"
reader += "; read_host()"
things = {
    "read": read_host,
    "lspci": lambda: subprocess.run(["lspci", "-vvv"], **quiet),
    "lstopo": lambda: subprocess.run(["lstopo-no-graphics", "--of", "xml"], **quiet),
    "process": lambda: subprocess.run([sys.executable, "-c", reader], **quiet),
    "python": lambda: subprocess.run([sys.executable, "-c", "pass"], **quiet),
}
seconds = {name: [] for name in things}
for _ in range(rounds):
    for name, thing in things.items():
        start = time.perf_counter()
        thing()
        seconds[name].append(time.perf_counter() - start)
host = read_host()
print(json.dumps({
    "seconds": {name: statistics.median(values) for name, values in seconds.items()},
    "functions": len(host.functions),
    "whole": all(function.config_bytes >= 256 for function in host.functions),
    "machine": os.uname().nodename,
}))
"""

CALLBACK = "ansible.posix.json"
TASKS: dict[str, dict[str, object]] = {
    "ours": {"sailloft.fleet.host_topology_info": {}},
    "lspci": {"ansible.builtin.command": "lspci -vvv", "changed_when": False},
    "lstopo": {"ansible.builtin.command": "lstopo-no-graphics --of xml", "changed_when": False},
}


def tasks(inventory: str, limit: str, rounds: int) -> dict[str, float]:
    """Return the median seconds of each of TASKS, in turns in one play. Ends the program if the play fails."""
    turns: list[dict[str, object]] = [{"name": name, **task} for _ in range(rounds) for name, task in TASKS.items()]
    connect = {"name": "the connection is there", "ansible.builtin.ping": {}}
    with tempfile.TemporaryDirectory() as folder:
        play = Path(folder, "play.yml")
        play.write_text(
            json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [connect, *turns]}]), encoding="utf-8"
        )
        done = subprocess.run(
            ["ansible-playbook", "-i", inventory, "--limit", limit, play],
            cwd=ROOT,
            # The text of any other callback would be mixed with the JSON.
            env={**os.environ, **dict.fromkeys(("ANSIBLE_STDOUT_CALLBACK", "ANSIBLE_CALLBACKS_ENABLED"), CALLBACK)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"the tasks on {limit} of {inventory} failed:\n{done.stdout[-3000:]}")
    seconds = defaultdict(list)
    for task in json.loads(done.stdout)["plays"][0]["tasks"]:
        start, end = (datetime.fromisoformat(task["task"]["duration"][name].rstrip("Z")) for name in ("start", "end"))
        seconds[task["task"]["name"]].append((end - start).total_seconds())
    return {name: statistics.median(seconds[name]) for name in TASKS}


def code() -> bytes:
    """Return a tar archive with the library, laid out for Python's imports, and the program that measures it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for part in ("common", "pci", "topology"):
            for path in sorted((ROOT / "plugins/module_utils" / part).rglob("*.py")):
                archive.add(path, f"{PACKAGE}/{path.relative_to(ROOT)}")
        measure = tarfile.TarInfo("measure.py")
        measure.size = len(MEASURE.encode())
        archive.addfile(measure, io.BytesIO(MEASURE.encode()))
    return buffer.getvalue()


def main() -> int:
    """Run the benchmark. Return 0 if everything was measured, whatever the ratios are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ssh", default="", help="command that reaches the machine; empty: this machine")
    parser.add_argument("--rounds", type=int, default=9, help="rounds to take the median of (default 9)")
    parser.add_argument("-i", "--inventory", help="compares Ansible's tasks as well, on --limit of this inventory")
    parser.add_argument("--limit", default="all", help="the host that --ssh reaches, by its name in the inventory")
    options = parser.parse_args()
    script = (
        "set -e; d=$(mktemp -d); trap 'rm -rf $d' EXIT; tar xf - -C $d; cd $d; "
        f"python3 -m compileall -q . ; python3 measure.py {options.rounds}"
    )
    command = [*shlex.split(options.ssh), script] if options.ssh else ["sh", "-c", script]
    done = subprocess.run(command, input=code(), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        print(
            f"the measurement ended with {done.returncode}; it needs python3, lspci, lstopo-no-graphics",
            file=sys.stderr,
        )
        return 1
    result = json.loads(done.stdout)
    seconds = {name: value * 1000 for name, value in result["seconds"].items()}
    peer = seconds["lspci"] + seconds["lstopo"]
    access = "all of config space" if result["whole"] else "64 bytes of config space: run it as root"
    print(f"{result['machine']}: {result['functions']} PCI functions, {access}; median of {options.rounds}, ms")
    print(f"  lspci -vvv {seconds['lspci']:.1f} + lstopo {seconds['lstopo']:.1f} = {peer:.1f}")
    print(f"  reading    {seconds['read']:.1f}: {seconds['read'] / peer:.2f} of lspci -vvv plus lstopo")
    print(
        f"  processes  {seconds['process']:.1f}: {seconds['process'] / peer:.2f} of lspci -vvv plus lstopo "
        f"(Python's own start is {seconds['python']:.1f} of it)"
    )
    if options.inventory:
        waited = tasks(options.inventory, options.limit, options.rounds)
        peer = waited["lspci"] + waited["lstopo"]
        print(
            f"  tasks      {waited['ours'] * 1000:.0f}: {waited['ours'] / peer:.2f} of lspci -vvv "
            f"{waited['lspci'] * 1000:.0f} plus lstopo {waited['lstopo'] * 1000:.0f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
