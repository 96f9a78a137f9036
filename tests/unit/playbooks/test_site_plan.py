# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/site_plan.yml, with no machine present."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sites

ANSIBLE_PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"


def play(tmp_path, *arguments):
    done = subprocess.run(
        [ANSIBLE_PLAYBOOK, "playbooks/site_plan.yml", "-e", f"plans_path={tmp_path}/plans", *arguments],
        cwd=sites.PROJECT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "1000"},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_check_mode_writes_no_plan(tmp_path):
    status, output = play(tmp_path, "-i", "inventories/small", "--check")
    assert status == 0, output
    assert "changed=1" in output
    assert not (tmp_path / "plans").exists()


def test_a_site_is_planned(tmp_path):
    status, output = play(tmp_path, "-i", "inventories/small")
    assert status == 0, output
    assert "small: 2 racks, 43.25 kW, 60 cables" in output
    assert (tmp_path / "plans/small/topology.conf").read_text().endswith("Nodes=gpu[01-04]\n")


@pytest.mark.long
def test_a_second_run_changes_nothing(tmp_path):
    for changes in (1, 0):
        status, output = play(tmp_path, "-i", "inventories/small")
        assert (status, f"changed={changes}" in output) == (0, True), output


@pytest.mark.long
def test_differences_and_broken_rules_of_a_changed_blueprint_are_reported(tmp_path):
    text = (sites.PROJECT / "inventories/small/blueprint.yml").read_text(encoding="utf-8")
    (tmp_path / "new.yml").write_text(text.replace("    count: 2\n", "    count: 1\n").replace("11000", "2000"))
    status, output = play(
        tmp_path, "-e", f"blueprint={tmp_path}/new.yml", "-e", "before=inventories/small/blueprint.yml"
    )
    assert status == 2
    assert "remove 2 nodes: gpu[03-04]" in output
    assert "rack-1: 11750 W exceed the capacity of 3 supplies of 2000 W (rule: rack power)" in output
    status, output = play(tmp_path, "-e", f"blueprint={tmp_path}/none.yml")
    assert status == 2
    assert f"{tmp_path}/none.yml: blueprint: cannot be read: " in output
