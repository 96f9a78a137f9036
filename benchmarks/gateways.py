#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure how 1, 2 and 4 gateways shorten a run, against ansible-playbook on the controller alone.

    benchmarks/gateways.py
    benchmarks/gateways.py --hosts 40 --delay 0.5

Each stand-in host takes the same time, like a host that answers slowly, and almost no processor time. The controller
and each gateway work on FORKS hosts at once. FORKS is small enough that the delays take most of the time and the growth
is visible. Gateways are network namespaces on this machine, so they share its processors, and ssh is not measured: the
remaining difference is the cost of ansible-runner and of the division into slices.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from timed import ROOT, status, timed

FORKS = 4
GATEWAYS = (1, 2, 4)
PLAY = """
- name: Read the hosts
  hosts: all
  gather_facts: false
  tasks:
    - name: Read
      ansible.builtin.debug:
        msg: "{{ lookup('pipe', 'sleep DELAY') }}"
"""


def seconds(command: list[str], folder: Path) -> float:
    """Return the elapsed time of a command in the directory. Raises BenchmarkError where it fails."""
    return timed(command, folder, ANSIBLE_COLLECTIONS_PATH=str(ROOT / ".collections"))[0]


def compare(hosts: int, delay_s: float) -> None:
    """Print the times, their ratios to the controller alone and to one gateway, and linear growth for comparison."""
    load = "{:.1f}, {:.1f}, {:.1f}".format(*os.getloadavg())
    print(f"{hosts} hosts of {delay_s:g} s each, {FORKS} at once on the controller and on each gateway, load {load}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "play.yml").write_text(PLAY.replace("DELAY", f"{delay_s:g}"), encoding="utf-8")
        (folder / "connect").write_text('#!/bin/sh\nexec unshare --map-root-user --net sh -c "$2"\n', encoding="utf-8")
        (folder / "connect").chmod(0o755)
        plain = one = 0.0
        for gateways in (0, *GATEWAYS):
            each = {f"host-{n:04}": {"runner_gateway": f"gateway-{n % max(gateways, 1)}"} for n in range(hosts)}
            inventory = {"all": {"hosts": each, "vars": {"ansible_connection": "local"}}}
            (folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
            command = ["ansible-playbook", "-i", "hosts.json", "--forks", str(FORKS)]
            if not gateways:
                plain = seconds([*command, "play.yml"], folder)
                print(f"ansible-playbook    {plain:6.1f} s")
                continue
            variables = {
                "gateways_playbook": str(folder / "play.yml"),
                "gateways_connect": str(folder / "connect"),
                "gateways_forks": FORKS,
            }
            took = seconds([*command, "-e", json.dumps(variables), str(ROOT / "playbooks/gateways.yml")], folder)
            one = one or took
            print(
                f"gateways: {gateways}         {took:6.1f} s, {plain / took:.2f} times as fast as the controller, "
                f"{one / took:.2f} times as fast as one gateway, linear {gateways / GATEWAYS[0]:g}"
            )


def main() -> int:
    """Run the benchmark. Return 0 if all runs succeeded, whatever the ratios are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=32, help="stand-in hosts (default 32)")
    parser.add_argument("--delay", type=float, default=10.0, help="seconds that each takes (default 10)")
    options = parser.parse_args()
    return status(lambda: compare(options.hosts, options.delay))


if __name__ == "__main__":
    sys.exit(main())
