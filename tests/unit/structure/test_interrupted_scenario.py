# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The scenario that interrupts plays waits for a task by name: a task of the roles must have that name."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_every_task_at_which_the_scenario_interrupts_a_play_exists_in_a_role():
    play = yaml.safe_load((ROOT / "molecule/interrupted/converge.yml").read_text())[0]
    text = (ROOT / "molecule/interrupted/converge.yml").read_text()
    named = re.findall(r"cut_off \+ \['\w+', (?:'([^']+)'|(\w+))", text)
    tasks = {quoted or play["vars"][variable] for quoted, variable in named}
    files = [
        path.read_text() for role in ("gpu_host", "gpu_vm") for path in (ROOT / "roles" / role).glob("tasks/*.yml")
    ]
    known = set(re.findall(r"^\s*- name: (.+)$", "\n".join(files), re.MULTILINE))
    assert len(tasks) >= 3
    assert tasks - known == set()
