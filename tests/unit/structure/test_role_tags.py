# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A role's tags are listed only in its main entry point's description: "Tags: C(nccl), C(packages).".

Playbooks import a role that has tags: with --tags, Ansible skips everything in a role that is included.
"""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ROLES = ROOT / "roles"
# Playbooks that change all of a host or nothing.
WHOLE = {"fabric_drift", "fabric_qos"}
NAMES = sorted(path.name for path in ROLES.iterdir() if (path / "meta").is_dir())


def tags(tasks):
    """Yield the tags of tasks, including tasks in blocks."""
    for task in tasks or []:
        given = task.get("tags", [])
        yield from [given] if isinstance(given, str) else given
        for part in ("block", "rescue", "always"):
            yield from tags(task.get(part))


@functools.cache
def documented(role):
    """Return the tags in the description of a role."""
    specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    described = specs.get("main", {}).get("description", [])
    lines = [described] if isinstance(described, str) else described
    return {tag for line in lines if line.startswith("Tags: ") for tag in re.findall(r"C\((\w+)\)", line)}


@pytest.mark.parametrize("role", NAMES)
def test_the_tags_of_a_role_are_documented(role):
    files = (ROLES / role / "tasks").rglob("*.yml")
    used = {tag for file in files for tag in tags(yaml.safe_load(file.read_text()))}
    assert used - {"always", "never"} == documented(role)


def included(tasks):
    """Yield the roles that tasks include, including tasks in blocks."""
    for task in tasks or []:
        given = task.get("ansible.builtin.include_role", {})
        # ESXi hosts are changed by one call of vCenter, which is no part of a tag.
        if given and given.get("tasks_from") != "vsphere":
            yield given["name"].removeprefix("sailloft.fleet.")
        for part in ("block", "rescue", "always"):
            yield from included(task.get(part))


def test_playbooks_import_roles_with_tags():
    including = set()
    for playbook in (ROOT / "playbooks").glob("*.yml"):
        plays = yaml.safe_load(playbook.read_text())
        parts = ("pre_tasks", "tasks", "post_tasks")
        roles = {role for play in plays for part in parts for role in included(play.get(part))}
        including |= {playbook.stem} if any(documented(role) for role in roles) else set()
    assert including == WHOLE


def unreached(role, tasks):
    """Yield the files and roles that tasks include without the tags of their content."""
    for task in tasks or []:
        given = task.get("tags", [])
        own = {given} if isinstance(given, str) else set(given)
        file = task.get("ansible.builtin.include_tasks")
        if isinstance(file, str) and "{{" not in file:
            within = set(tags(yaml.safe_load((ROLES / role / "tasks" / file).read_text())))
            if within - own - {"always"}:
                yield file
        for other in included([task] if "block" not in task else []):
            if documented(other) - own:
                yield other
        for part in ("block", "rescue", "always"):
            yield from unreached(role, task.get(part))


@pytest.mark.parametrize("role", sorted({name for name in NAMES if documented(name)}))
def test_a_role_with_tags_passes_them_to_its_includes(role):
    for file in (ROLES / role / "tasks").rglob("*.yml"):
        assert list(unreached(role, yaml.safe_load(file.read_text()))) == []


@pytest.mark.fleet
@pytest.mark.long
@pytest.mark.parametrize(
    ("playbook", "role", "tasks"),
    [
        ("boot_servers", "boot_server", {"packages": "Install dnsmasq, nginx and iPXE"}),
        ("node_images", "node_image", {"packages": "Install the tools that build images"}),
        ("gpu_hosts", "gpu_host", {"packages": "Install missing packages, and configure the host with them"}),
        (
            "gpu_vms",
            "gpu_guest",
            {"nccl": "Write the settings of NCCL", "pci": "Set MaxReadReq, now and at every boot"},
        ),
    ],
)
def test_each_tag_of_a_role_selects_its_tasks(playbook, role, tasks):
    """A run of ansible-playbook takes three seconds."""
    assert set(tasks) == documented(role)
    for tag, task in tasks.items():
        command = [
            "ansible-playbook",
            "-i",
            "inventories/lab",
            f"playbooks/{playbook}.yml",
            "--list-tasks",
            "--tags",
            tag,
        ]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert f"{role} : {task}\t" in listed
        others = {other for each, other in tasks.items() if each != tag}
        assert not any(f"{role} : {other}\t" in listed for other in others)
