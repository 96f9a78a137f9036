# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Entry points of roles are called by the names in argument_specs.

Ansible checks all arguments for "read", but none for "read.yml": ansible-core 2.16 to 2.19 looks up the specification
by the text of tasks_from (playbook/role/__init__.py).
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"tasks_from\"?: *\"?([\w/.{]+)")


def test_an_entry_point_is_named_without_a_suffix():
    folders = ("playbooks", "roles", "molecule", "benchmarks", "docs")
    files = [file for folder in folders for kind in ("yml", "py", "md") for file in (ROOT / folder).rglob(f"*.{kind}")]
    names = [(str(file), name) for file in files for name in NAMED.findall(file.read_text(encoding="utf-8"))]
    assert len(names) > 50
    assert [each for each in names if ".yml" in each[1]] == []


def test_names_of_entry_points_are_found():
    assert NAMED.findall('tasks_from: read.yml\n{tasks_from: hold/take}\n"tasks_from": "stop"') == [
        "read.yml",
        "hold/take",
        "stop",
    ]


def test_every_specification_has_its_tasks():
    for file in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]:
            assert (file.parents[1] / "tasks" / f"{entry}.yml").is_file(), (file, entry)
