# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/confirm.yml, before another playbook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEXT = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: the next playbook}
"""


@pytest.fixture
def play(tmp_path):
    # None of these hosts can be reached, and the playbook connects to none.
    hosts = {f"gpu{at:02}": {"ansible_host": "192.0.2.1"} for at in range(20)}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    (tmp_path / "next.yml").write_text(NEXT, encoding="utf-8")

    def run(*arguments):
        command = [Path(sys.executable).parent / "ansible-playbook", "-i", tmp_path / "hosts.json"]
        done = subprocess.run(
            [*command, "playbooks/confirm.yml", tmp_path / "next.yml", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "1000"},
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.long
def test_a_small_share_needs_no_confirmation(play):
    status, output = play("--limit", "gpu00,gpu01")
    assert status == 0, output
    assert "the next playbook" in output


def test_a_large_share_is_refused_before_the_next_playbook(play):
    status, output = play("--limit", "gpu00,gpu01,gpu02")
    assert status == 2
    assert "the next playbook" not in output
    assert "this run covers 3 of 20 hosts, more than 10%; limit it with --limit, or confirm it with" in output


@pytest.mark.parametrize(
    "setting", ["confirmed=true", pytest.param("confirm_share_percent=100", marks=pytest.mark.long)]
)
def test_a_confirmed_or_allowed_share_runs_the_next_playbook(play, setting):
    status, output = play("-e", setting)
    assert status == 0, output
    assert "the next playbook" in output
