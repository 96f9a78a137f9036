# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Variables that tasks set are private, or results for plays and other roles, which a role documents.

A private variable is named __ROLE_NAME. An entry point's description lists the results: "Results: C(a) and C(b).".
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ROLES = ROOT / "roles"
NAMES = sorted(path.name for path in ROLES.iterdir() if (path / "meta").is_dir())


def set_by(tasks):
    """Yield the variables that tasks set, including tasks in blocks."""
    for task in tasks or []:
        if "register" in task:
            yield task["register"]
        yield from (name for name in task.get("ansible.builtin.set_fact", {}) if name != "cacheable")
        for part in ("block", "rescue", "always"):
            yield from set_by(task.get(part))


def results(role):
    """Return the names that the entry points of a role document as results."""
    entries = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())["argument_specs"].values()
    lines = [line for entry in entries for line in entry.get("description", []) if line.startswith("Results")]
    return {name for line in lines for name in re.findall(r"C\((\w+)\)", line) if name.startswith(role)}


@pytest.mark.parametrize("role", NAMES)
def test_variables_that_a_role_sets_are_private_or_documented_results(role):
    files = [file for part in ("tasks", "handlers") for file in (ROLES / role / part).rglob("*.yml")]
    names = {name for file in files for name in set_by(yaml.safe_load(file.read_text()))}
    assert {name for name in names if not name.startswith(f"__{role}_")} == results(role)


@pytest.mark.parametrize("role", NAMES)
def test_registered_variables_of_a_role_are_used(role):
    files = [file for file in (ROLES / role).rglob("*") if file.is_file() and file.parent.name != "__pycache__"]
    text = "\n".join(file.read_text() for file in files)
    registered = set(re.findall(r"^\s*register: (\w+)$", text, re.MULTILINE)) - results(role)
    assert [name for name in sorted(registered) if len(re.findall(rf"\b{name}\b", text)) < 2] == []


@pytest.mark.parametrize("playbook", sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml")))
def test_variables_that_a_playbook_sets_are_private_or_a_roles_results(playbook):
    plays = yaml.safe_load((ROOT / "playbooks" / f"{playbook}.yml").read_text())
    names = {name for play in plays for part in ("pre_tasks", "tasks", "post_tasks") for name in set_by(play.get(part))}
    public = {name for name in names if not name.startswith("__")}
    assert public <= {name for role in NAMES for name in results(role)}
