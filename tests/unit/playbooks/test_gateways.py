# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""gateways.yml with the real ansible-runner; the gateways are shells on this machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MEMORY = Path("/dev/shm")
# connect GATEWAY COMMAND, like ssh; if ANSWERS is set, all gateways work.
CONNECT = """#!/bin/sh
case $1$ANSWERS in
  gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255 ;;
  bare) PATH=/usr/bin:/bin exec sh -c "$2" ;;
  loud) echo Welcome; exec sh -c "$2" ;;
  *) exec sh -c "$2" ;;
esac
"""
# On the gateway "cut", a task kills the worker. The parent of the shell is a fork of ansible-playbook, and the parent
# of this fork's parent is ansible-runner.
PLAY = """
- name: Check
  hosts: all:!waves
  gather_facts: false
  tasks:
    - name: Check the secret
      ansible.builtin.assert:
        that: secret | length == 12
        quiet: true
    - name: Kill the worker
      ansible.builtin.debug:
        msg: "{{ lookup('pipe', 'kill -9 $(ps -o ppid= -p $(ps -o ppid= -p $PPID)); sleep 9') }}"
      when: runner_gateway == 'cut' and not well
    - name: Check the memory
      ansible.builtin.fail: {msg: "{{ inventory_hostname }}: 3 DIMMs are missing"}
      when: inventory_hostname == 'gpu-2' and not well
  vars: &vars
    well: "{{ lookup('ansible.builtin.env', 'ANSWERS') | bool }}"
- name: Change in waves
  hosts: waves
  gather_facts: false
  serial: 1
  vars: *vars
  tasks:
    - name: Check the NICs
      ansible.builtin.fail: {msg: no link}
      when: inventory_hostname == 'gpu-8' and not well
"""
GATEWAYS = {"one": (1, 3), "gone": (4, 4), "bare": (5, 5), "cut": (6, 6), "loud": (7, 7), "waves": (8, 9)}


# What hosts end as in the first run, and what is told of it, by gateway.
STATES = {
    "gpu-1": "ok",
    "gpu-2": "failed",
    "gpu-3": "ok",
    "gpu-8": "failed",
    **dict.fromkeys(("gpu-4", "gpu-5", "gpu-6", "gpu-7", "gpu-9"), "unknown"),
}
TOLD = {
    "one": ("one: 3 hosts: 1 failed, 2 ok", "1 host: Check the memory: failed: HOST: 3 DIMMs are missing: gpu-2"),
    "gone": (
        "1 host: gone: not reached: ssh: connect to host gone port 22: No route to host; check that `ssh gone true`",
    ),
    "bare": ("1 host: bare: ansible-runner was not found; install ansible and ansible-runner there",),
    "cut": ("1 host: cut: the connection or the worker ended before the run",),
    "loud": ("1 host: loud: the run did not begin: Failed to JSON parse a line from worker stream.",),
    "waves": ("1 host: waves: the run ended before it finished there: gpu-9",),
}


def site(folder: Path, gateways: tuple[str, ...] = tuple(GATEWAYS)) -> list[str]:
    """Write a site and return the command that runs its playbook on the gateways."""
    (folder / "connect").write_text(CONNECT)
    (folder / "connect").chmod(0o755)
    (folder / "play.yml").write_text(PLAY)
    (folder / "password").write_text("of the vault")
    (folder / "value").write_text("never shown!")
    given = {"cwd": folder, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    encrypt = ["ansible-vault", "encrypt", "--vault-password-file", "password", "--output", "-", "value"]
    secret = "".join(f"      {line}\n" for line in subprocess.run(encrypt, check=True, **given).stdout.splitlines())
    lines = ["all:", "  vars:", "    ansible_connection: local", f"    secret: !vault |\n{secret}  children:"]
    for name in gateways:
        first, last = GATEWAYS[name]
        lines += [
            f"    {name}:",
            f"      hosts: {{'gpu-[{first}:{last}]': }}",
            f"      vars: {{runner_gateway: {name}}}",
        ]
    (folder / "hosts.yml").write_text("\n".join(lines))
    command = ["ansible-playbook", "-i", "hosts.yml", "--vault-password-file", "password", "-e"]
    named = {"gateways_playbook": str(folder / "play.yml"), "gateways_connect": str(folder / "connect")}
    return [*command, json.dumps(named), str(ROOT / "playbooks/gateways.yml")]


def play(command, folder, **variables):
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"), **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@pytest.mark.fleet  # ansible-runner on each gateway
@pytest.mark.long
def test_lost_gateways_are_reported_and_a_resumed_run_completes_their_hosts(tmp_path):
    command, before = site(tmp_path), set(MEMORY.glob("sailloft.*"))
    first = play(command, tmp_path)
    assert first.returncode == 2, first.stdout + first.stderr
    hosts = json.loads((tmp_path / "runs/play/record.json").read_text())["hosts"]
    states = {host: each["state"] for host, each in hosts.items()}
    numbers = [number for first, last in GATEWAYS.values() for number in range(first, last + 1)]
    assert states == {f"gpu-{number}": STATES[f"gpu-{number}"] for number in numbers}
    left = sum(state != "ok" for state in states.values())
    end = "hosts are not done; correct the failures in the report, and run again with -e gateways_resume=true"
    for line in (*(line for name in GATEWAYS for line in TOLD[name]), f"{left} of {len(states)} {end}"):
        assert line in first.stdout

    # The worker's directory is removed, and the files written here are for the user alone and have no secret.
    assert set(MEMORY.glob("sailloft.*")) <= before
    assert (tmp_path / "runs/play").stat().st_mode & 0o077 == 0
    written = [path.read_text() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert not [
        text for text in [*written, first.stdout, first.stderr] if "never shown!" in text or "of the vault" in text
    ]

    second = play([*command, "-e", "gateways_resume=true"], tmp_path, ANSWERS="1")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "one: starting on 1 host" in second.stdout
    hosts = json.loads((tmp_path / "runs/play/record.json").read_text())["hosts"]
    assert {each["state"] for each in hosts.values()} == {"ok"}
    assert "waves: 2 hosts: 2 ok" in second.stdout


@pytest.mark.long
@pytest.mark.fleet  # runs a playbook
def test_a_run_with_hosts_without_a_gateway_is_refused_before_it_starts(tmp_path):
    command = site(tmp_path)
    missing = play([*command, "-e", "{runner_gateway: ''}"], tmp_path)
    assert "gpu-[1-9]: no gateway; set runner_gateway, or name the hosts" in missing.stdout
    assert not (tmp_path / "runs").exists()
