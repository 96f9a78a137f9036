# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what playbooks and roles take: meta/run_specs.yml, and meta/argument_specs.yml of the roles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "roles"
# PyYAML without libyaml has only the slower SafeLoader.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Playbook:
    """A playbook: the patterns of its hosts, each of which needs a host, its roles and its own variables by name.

    ``groups`` has the groups that have plays of their own, and whether each needs a host in the inventory; ``bmcs``
    says whether it talks to the hosts' BMCs.
    """

    hosts: list[str]
    groups: dict[str, bool]
    bmcs: bool
    any_strategy: bool
    roles: list[str]
    variables: dict[str, dict[str, Any]]


def read() -> dict[str, Any]:
    """Return the content of meta/run_specs.yml."""
    data: dict[str, Any] = _load(ROOT / "meta/run_specs.yml")
    return data


def playbook(name: str, data: dict[str, Any]) -> Playbook:
    """Return a playbook of ``data``, with what it imports. Raises KeyError for an unknown one."""
    row = data["playbooks"][name]
    parts = [playbook(part, data) for part in row.get("imports", [])]
    variables = {variable: data["variables"][variable] for variable in row.get("variables", [])}
    for part in parts:
        variables.update(part.variables)
    roles = {*row.get("roles", []), *(role for part in parts for role in part.roles)}
    groups = dict.fromkeys((group for part in parts for group in part.groups), False) | row.get("groups", {})
    bmcs = row.get("bmcs", False) or any(part.bmcs for part in parts)
    return Playbook(row["hosts"], groups, bmcs, row.get("any_strategy", False), sorted(roles), variables)


def roles() -> list[str]:
    """Return the names of the collection's roles."""
    return [path.name for path in ROLES.iterdir()]


def entries(role: str) -> dict[str, dict[str, Any]]:
    """Return a role's variables by entry point."""
    specs = _load(ROLES / role / "meta/argument_specs.yml")["argument_specs"]
    return {name: entry.get("options") or {} for name, entry in specs.items()}


def role_options(role: str) -> set[str]:
    """Return the names of a role's variables."""
    return {name for options in entries(role).values() for name in options}


def role_vars(role: str) -> dict[str, Any]:
    """Return the content of a role's vars/main.yml."""
    data: dict[str, Any] = _load(ROLES / role / "vars/main.yml")
    return data


def _load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), LOADER)
