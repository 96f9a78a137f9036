# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/cabling.yml with an lldpcli that prints the neighbours of one server of inventories/small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.names import neighbours_file

ANSIBLE_PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"


def play(folder, seen):
    """Run it on gpu01; ``seen`` is {interface: (far device, far interface)}, or None if lldpcli fails."""
    rows = [
        {"name": name, "chassis": [{"name": [{"value": far}]}], "port": [{"id": [{"type": "ifname", "value": port}]}]}
        for name, (far, port) in (seen or {}).items()
    ]
    (folder / "seen.json").write_text(json.dumps({"lldp": [{"interface": rows}]}), encoding="utf-8")
    tool = folder / "lldpcli"
    tool.write_text(f"#!/bin/sh\n{'exit 1' if seen is None else f'cat {folder}/seen.json'}\n", encoding="utf-8")
    tool.chmod(0o755)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "cabling_hosts": "gpu01"}
    done = subprocess.run(
        [ANSIBLE_PLAYBOOK, "-i", "inventories/small", "playbooks/cabling.yml", "-e", json.dumps(local)],
        cwd=sites.PROJECT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "1000", "PATH": f"{folder}:{os.environ['PATH']}"},
    )
    return done.returncode, done.stdout + done.stderr


def cables_of_a_server():
    """Return what gpu01 sees of its correct cables."""
    seen = json.loads(neighbours_file(sites.example("small")))["gpu01"]
    del seen["bmc"]
    return seen


@pytest.mark.long
def test_correct_cables_of_one_server_are_counted(tmp_path):
    status, output = play(tmp_path, cables_of_a_server())
    assert status == 0, output
    assert "9 cables are correct, 0 wrong, 51 not read" in output


def test_the_cables_of_one_server_are_compared_with_the_plan(tmp_path):
    seen = cables_of_a_server()
    seen["ens1np0"], seen["ens3np0"] = seen["ens3np0"], seen["ens1np0"]
    status, output = play(tmp_path, seen)
    assert status == 2
    assert "swap the ends of the cables gpu01 ens1np0 - leaf1 Ethernet0 and gpu01 ens3np0 - leaf1 Ethernet8" in output


@pytest.mark.long
def test_a_run_that_reads_no_cable_fails(tmp_path):
    status, output = play(tmp_path, None)
    assert status == 2
    assert "no cable was read" in output
    assert "gpu01 was not read: " in output
