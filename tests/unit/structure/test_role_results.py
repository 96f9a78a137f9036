# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Variables that tasks set are private, or results for plays and other roles, which a role documents.

A private variable is named __ROLE_NAME. An entry point's description lists the results: "Results: C(a) and C(b).".
"""

from __future__ import annotations

import functools
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


@functools.cache
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


PLAYBOOKS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "playbooks").glob("*.yml"))}
# What playbooks tell playbooks/run_check.yml, and the callback plugin breaker.
TOLD = {"run_playbook", "run_part", "breaker_hosts"}


def given_by(parts):
    """Yield the variables that plays, their tasks, blocks and roles have as ``vars``."""
    for part in parts or []:
        yield from part.get("vars", {})
        for inner in ("roles", "pre_tasks", "tasks", "post_tasks", "block", "rescue", "always"):
            yield from given_by(part.get(inner))


def test_variables_that_playbooks_give_are_private_or_those_of_a_role():
    """A site's variable of the same name would not be read."""
    ours = ("__", *(f"{role}_" for role in NAMES))
    given = {(playbook, name) for playbook, plays in PLAYBOOKS.items() for name in set(given_by(plays)) - TOLD}
    assert {each for each in given if not each[1].startswith(ours)} == set()


def test_variables_that_playbooks_set_are_private_or_a_roles_results():
    known = {name for role in NAMES for name in results(role)}
    parts = ("pre_tasks", "tasks", "post_tasks")
    names = {
        (playbook, name)
        for playbook, plays in PLAYBOOKS.items()
        for play in plays
        for part in parts
        for name in set_by(play.get(part))
    }
    assert {each for each in names if not each[1].startswith("__") and each[1] not in known} == set()
