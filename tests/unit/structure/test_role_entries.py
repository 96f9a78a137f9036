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


ROLE = re.compile(r"sailloft\.fleet\.(\w+)$")


def named_roles(value):
    """Yield the roles that a play applies, wherever in it."""
    if isinstance(value, dict):
        for key, child in value.items():
            match = ROLE.match(child) if key == "name" and isinstance(child, str) else None
            if match:
                yield match[1]
            yield from named_roles(child)
    elif isinstance(value, list):
        for child in value:
            match = ROLE.match(child) if isinstance(child, str) else None
            if match:
                yield match[1]
            yield from named_roles(child)


def test_no_role_of_a_play_with_a_failure_limit_has_a_block_with_always():
    """Ansible does not count a failure in such a block for max_fail_percentage, and begins the next wave."""
    plays = [play for file in ROOT.glob("playbooks/*.yml") for play in yaml.safe_load(file.read_text(encoding="utf-8"))]
    limited = {role for play in plays if "max_fail_percentage" in play for role in named_roles(play)}
    assert {"gpu_host", "gpu_node", "scheduler"} <= limited
    files = [file for role in sorted(limited) for file in (ROOT / "roles" / role / "tasks").rglob("*.yml")]
    assert [str(file) for file in files if re.search(r"(?m)^ *always:$", file.read_text(encoding="utf-8"))] == []
