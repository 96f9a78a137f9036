# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The groups of modules in meta/runtime.yml: module_defaults sets the common options of all modules in a group."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
GROUPS = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["action_groups"]
SHARED = {
    "fabric": {"asics", "hosts", "policy", "switches"},
    "libvirt": {"accelerators", "gpu_module_ids", "gpu_partitions", "topology", "uri"},
    "netbox": {"netbox_token", "netbox_url", "validate_certs"},
    "proof": {"name", "path"},
    "store": {"store"},
    "vsphere": {"ca_path", "cluster", "hostname", "password", "port", "username", "validate_certs"},
}
PLAY = """
- hosts: localhost
  gather_facts: false
  module_defaults:
    group/sailloft.fleet.store: {{store: {store}}}
  tasks:
    - sailloft.fleet.node_image_store:
"""


@functools.cache
def documentation(path: Path) -> dict:
    """Return the DOCUMENTATION of a module, or the fragments of a file."""
    tree = ast.parse(path.read_text())
    texts = {
        node.targets[0].id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.targets[0], ast.Name)
    }
    return {name: yaml.safe_load(text) for name, text in texts.items() if name.isupper() and isinstance(text, str)}


def options(module: str) -> set[str]:
    data = documentation(ROOT / f"plugins/modules/{module}.py")["DOCUMENTATION"]
    found = set(data.get("options", {}))
    for name in data.get("extends_documentation_fragment", []):
        file, _dot, part = name.removeprefix("sailloft.fleet.").partition(".")
        fragment = documentation(ROOT / f"plugins/doc_fragments/{file}.py")[(part or "documentation").upper()]
        found |= set(fragment.get("options", {}))
    return found


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_the_modules_of_a_group_share_its_options(group):
    assert set.intersection(*map(options, GROUPS[group])) >= SHARED[group]


@pytest.mark.parametrize("group", sorted(SHARED))
def test_a_group_has_every_module_with_its_options(group):
    every = {path.stem for path in (ROOT / "plugins/modules").glob("*.py")}
    assert {module for module in every if options(module) >= SHARED[group]} == set(GROUPS[group])


def test_a_play_sets_the_store_of_all_modules_with_module_defaults(tmp_path):
    (tmp_path / "play.yml").write_text(PLAY.format(store=tmp_path / "nowhere"))
    command = [
        "ansible-playbook",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
    ]
    environment = {"ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"), "ANSIBLE_LOCALHOST_WARNING": "0"}
    done = subprocess.run(
        [*command, "play.yml"],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"store {tmp_path}/nowhere" in done.stdout + done.stderr
