# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""meta/run_specs.yml and the playbooks agree: their names, hosts, roles and variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, nodes
from jinja2.parser import Parser

from ansible_collections.sailloft.fleet.plugins.plugin_utils import playbook_registry as registry

PLAYBOOKS = registry.ROOT / "playbooks"
DATA = registry.read()
NAMES = sorted(DATA["playbooks"])
# Keywords whose value is an expression without braces.
BARE = {"changed_when", "failed_when", "that", "until", "when"}
# Globals of templates, and magic variables.
GLOBALS = {"dict", "group_names", "groups", "hostvars", "inventory_hostname", "item", "lookup", "omit", "query"}
GLOBALS |= {"run_part"}  # set by a playbook that imports another one
# Variables that plugins read, by the pattern of the text that shows it.
READ_BY_PLUGINS = {
    "play_serial": "sailloft.fleet.waves",
    "play_max_fail_percentage": "sailloft.fleet.waves",
    "runner_gateway": "attribute='runner_gateway'",
    "roce_switch_asic": "sailloft.fleet.roce_switch_config",
    "roce_switch_headroom": "sailloft.fleet.roce_switch_config",
    "roce_switch_queue_buffer_bytes": "sailloft.fleet.roce_switch_config",
    "site_domains": "sailloft.fleet.node_(boot_fleet|repair):",
    "site_spare": "sailloft.fleet.(node_boot_fleet|node_repair|slurm_plan):",
}


def load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), registry.LOADER)


def texts(data: Any, keyword: str = "") -> Iterator[str]:
    """Yield every text of YAML as a template."""
    if isinstance(data, (dict, list)):
        for name, value in data.items() if isinstance(data, dict) else ((keyword, each) for each in data):
            yield from texts(value, name)
    elif isinstance(data, str):
        yield f"{{{{ {data} }}}}" if keyword in BARE and "{{" not in data else data


def used(data: Any) -> set[str]:
    """Return the names that the templates of YAML read."""
    trees = [Parser(Environment(), text).parse() for text in texts(data)]
    return {node.name for tree in trees for node in tree.find_all(nodes.Name) if node.ctx == "load"}


def defined(data: Any) -> set[str]:
    """Return the names that plays and tasks set."""
    if isinstance(data, list):
        return set().union(*map(defined, data))
    if not isinstance(data, dict):
        return set()
    names = {*(data.get("vars") or {}), *(data.get("ansible.builtin.set_fact") or {}), data.get("register")}
    return names.union(*map(defined, data.values()))


def role_files(role: str) -> list[Path]:
    parts = ("defaults", "handlers", "tasks", "vars")
    return [path for part in parts for path in (registry.ROLES / role / part).rglob("*.yml")]


def roles_of(name: str) -> set[str]:
    """Return the roles that a playbook runs, and those whose variables the action role_variables compares in it."""
    text = (PLAYBOOKS / f"{name}.yml").read_text(encoding="utf-8")
    return set(re.findall(r"(?:name|role): (?:sailloft\.fleet\.)?(\w+)$", text, re.MULTILINE)) & set(registry.roles())


def own_variables(name: str) -> set[str]:
    """Return the variables of no role that a playbook and its roles read."""
    playbook = PLAYBOOKS / f"{name}.yml"
    files = [playbook, *(file for role in roles_of(name) for file in role_files(role))]
    found: set[str] = set()
    for file in files:
        found |= used(load(file))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return found | {each for each, sign in READ_BY_PLUGINS.items() if re.search(sign, text)}


def test_every_playbook_that_is_shipped_is_in_the_registry_and_begins_with_its_check():
    files = {path.stem: load(path) for path in PLAYBOOKS.glob("*.yml")}
    shipped = {name for name in files if not name.startswith("lab") and name != "run_check"}
    assert shipped == set(NAMES)
    for name in NAMES:
        first = files[name][0]
        assert first["ansible.builtin.import_playbook"] == "sailloft.fleet.run_check"
        assert first["vars"] == {"run_playbook": name}
        imports = [play["ansible.builtin.import_playbook"] for play in files[name][1:] if "hosts" not in play]
        assert [each.removesuffix(".yml") for each in imports] == DATA["playbooks"][name].get("imports", [])


@pytest.mark.parametrize("name", NAMES)
def test_a_playbook_takes_the_roles_and_variables_of_the_registry(name):
    row = DATA["playbooks"][name]
    assert roles_of(name) <= set(row.get("roles", []))
    reads, named = own_variables(name), set(row.get("variables", []))
    # Some playbooks read variables of roles that they do not run.
    others = set(row.get("roles", [])) - roles_of(name)
    assert {role for role in others if not registry.role_options(role) & reads} == set()
    # A role has further entry points, which the playbook may not use.
    assert used(load(PLAYBOOKS / f"{name}.yml")) & set(DATA["variables"]) <= named <= reads


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_that_a_playbook_reads_has_a_specification(name):
    content = load(PLAYBOOKS / f"{name}.yml")
    results = set()
    for role in registry.roles():
        for entry in load(registry.ROLES / role / "meta/argument_specs.yml")["argument_specs"].values():
            results |= {word for line in entry.get("description", []) for word in re.findall(r"C\((\w+)\)", line)}
    known = (
        results | set(DATA["variables"]) | {each for role in registry.roles() for each in registry.role_options(role)}
    )
    unknown = used(content) - defined(content) - GLOBALS - known
    of_others = ("ansible_", *(f"__{role}_" for role in registry.roles()))
    assert {each for each in unknown if not each.startswith(of_others)} == set()


def test_every_variable_of_the_registry_belongs_to_a_playbook():
    assert {each for row in DATA["playbooks"].values() for each in row.get("variables", [])} == set(DATA["variables"])
    assert all({"description", "type"} <= set(option) for option in DATA["variables"].values())


@pytest.mark.parametrize("name", NAMES)
def test_a_playbook_that_runs_with_any_strategy_has_nothing_that_needs_an_order(name):
    text = (PLAYBOOKS / f"{name}.yml").read_text(encoding="utf-8")
    needs = re.search(
        r"^ +(serial|max_fail_percentage|any_errors_fatal|throttle|roles|- role):|_role:", text, re.MULTILINE
    )
    assert not (DATA["playbooks"][name].get("any_strategy") and needs)
