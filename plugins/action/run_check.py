# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Refuse a run that could only end without its result: see the module's documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.template import Templar
from ansible.utils.display import Display
from ansible.vars.plugins import get_vars_from_inventory_sources

from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import nearest
from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.plugin_utils import host_facts, run_strategy
from ansible_collections.sailloft.fleet.plugins.plugin_utils import playbook_registry as registry
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.inventory_sources import cause, unread
from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.shared_bmcs import refuse_shared_bmcs
from ansible_collections.sailloft.fleet.plugins.plugin_utils.role_values import check_values, fault

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core before 2.19 trusts each text

    def trust_as_template(value: str) -> str:
        """Return the text."""
        return value


display = Display()


class ActionModule(ControllerAction):
    """Check sources, strategy, facts, names, values, hosts and their values, in this order."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "playbook": {"type": "str", "required": True},
        "part": {"type": "bool", "default": False},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        name, data = arguments["playbook"], registry.read()
        if name not in data["playbooks"]:
            raise AnsibleActionFail(f"there is no playbook {name!r} in meta/run_specs.yml; set playbook to one of it")
        playbook = registry.playbook(name, data)
        # Ansible gives an action no other way to its inventory and to the variables of the command line.
        hostvars = variables["hostvars"]
        self._inventory, self._manager = hostvars._inventory, hostvars._variable_manager
        self._sources = list(variables["ansible_inventory_sources"])
        self._check_sources()
        if not playbook.any_strategy and (
            text := run_strategy.forbidden_reason(constants.DEFAULT_STRATEGY, f"{name}.yml")
        ):
            raise AnsibleActionFail(text)
        self._check_names(playbook, set(data["variables"]))
        self._check_values(playbook, variables)
        hosts = self._check_hosts(name, playbook, variables, arguments["part"])
        if host_facts.ROLES.intersection(playbook.roles) and (text := host_facts.overriding_reason(f"{name}.yml")):
            raise AnsibleActionFail(f"{text}. Nothing was run")
        if playbook.bmcs:
            refuse_shared_bmcs(hosts, variables, self._templar)
        for role in playbook.roles:
            options = {name: option for entry in registry.entries(role).values() for name, option in entry.items()}
            check_values(role, options, hosts, hostvars)
        return {"changed": False}

    def _check_sources(self) -> None:
        sources = unread(self._sources, self._inventory._inventory.processed_sources)
        if sources:
            again = "could not be read when the run began, and can be read now"
            causes = "; ".join(cause(source, self._loader) or f"{source} {again}" for source in sources)
            raise AnsibleActionFail(f"{causes}. Nothing was run: correct the inventory, or name another one with -i")

    def _check_names(self, playbook: registry.Playbook, shared: set[str]) -> None:
        """Refuse names of the command line that are near to a variable of the playbook; warn about the inventory's."""
        roles = registry.roles()
        typed = {name for name in self._manager.extra_vars if name not in shared and not name.startswith("ansible_")}
        if typed:
            typed -= {name for role in roles for name in registry.role_options(role)}
        if typed:
            valid_names = {
                *playbook.variables,
                *(name for role in playbook.roles for name in registry.role_options(role)),
            }
            for name, similar in _near(typed, valid_names):
                if not self._used(name):
                    raise AnsibleActionFail(
                        f"-e {name}: no variable of this playbook has this name; did you mean {similar}? "
                        "Nothing was run"
                    )
        # The action role_variables compares the names that begin with a role's name.
        starts = tuple(f"{role}_" for role in roles)
        owners = {name: owner for name, owner in self._named() if name not in shared and not name.startswith(starts)}
        for name, similar in _near(owners, set(playbook.variables)):
            if not self._used(name):
                owners_text = excerpt(sorted({owner for typed_name, owner in self._named() if typed_name == name}))
                display.warning(f"{owners_text}: nothing uses the variable {name}; did you mean {similar}?")

    def _named(self) -> Iterator[tuple[str, str]]:
        """Yield (variable, its group or host) for the variables of the inventory, without files of single hosts."""
        for owner, values in self._values():
            for name in values:
                yield name, owner

    def _values(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for group in self._inventory.groups.values():
            files = get_vars_from_inventory_sources(self._loader, self._inventory._sources, [group], "task")
            yield f"group {group.name}", {**group.vars, **files}
        for host in self._inventory.hosts.values():
            yield host.name, host.vars

    def _used(self, name: str) -> bool:
        """Return True if a template of the inventory names a variable: it is the site's own."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        return any(word.search(text) for _owner, values in self._values() for text in _texts(list(values.values())))

    def _check_values(self, playbook: registry.Playbook, variables: dict[str, Any]) -> None:
        """Refuse a value of another type, or outside of its choices; secrets are not read."""
        for name, option in playbook.variables.items():
            if name not in variables or option.get("no_log"):
                continue
            try:
                value = self._templar.template(variables[name])
            except Exception:  # what the template lacks is reported by the task that uses it, if any does
                continue
            if text := fault(name, option, value):
                raise AnsibleActionFail(f"{name} {text}. Nothing was run")

    def _check_hosts(self, name: str, playbook: registry.Playbook, variables: dict[str, Any], part: bool) -> list[str]:
        """Return the hosts of the run; refuse a run in which a pattern has none, unless it is a part of another."""
        names: dict[str, None] = {}
        templar = Templar(loader=self._loader, variables=self._manager.get_vars(play=self._task.get_play()))
        patterns = [templar.template(trust_as_template(text)) for text in playbook.hosts]
        # ":!GROUP" and ranges are no names of groups.
        groups = (word for pattern in patterns for word in pattern.split(":") if word.isidentifier())
        hosts_by_group = self._inventory.get_groups_dict()
        empty_groups = [group for group in dict.fromkeys([*groups, *playbook.groups]) if not hosts_by_group.get(group)]
        for group, similar in _near(empty_groups, {name for name, hosts in hosts_by_group.items() if hosts}):
            raise AnsibleActionFail(
                f"the inventory has no host in the group {group} of {name}.yml, but a group {similar}; "
                f"rename it to {group}. Nothing was run"
            )
        for pattern in patterns:
            # Restrictions are those of this play, whose hosts are others.
            matches = self._inventory.get_hosts(pattern, ignore_restrictions=True)
            names.update(dict.fromkeys(host.name for host in matches))
            if matches or part:
                continue
            hosts = self._inventory.get_hosts(pattern, ignore_limits=True, ignore_restrictions=True)
            limited = sorted(host.name for host in hosts)
            if limited:
                limit = variables["ansible_limit"]
                raise AnsibleActionFail(
                    f"--limit {limit} leaves out all hosts of {name}.yml: {excerpt(limited)}; add them to the limit"
                )
            raise AnsibleActionFail(
                f"the inventory has no host for {name}.yml, which runs on {pattern}; read: {', '.join(self._sources)}. "
                "Add hosts to the groups, or name another inventory with -i"
            )
        if playbook.groups and not part and not set(self._inventory.hosts) - {"localhost"}:
            raise AnsibleActionFail(
                f"the inventory has no host for {name}.yml, which reads the groups {', '.join(playbook.groups)}; read: "
                f"{', '.join(self._sources)}. Add hosts to them, or name another inventory with -i"
            )
        for group in empty_groups if names else ():
            if playbook.groups.get(group, False) or (group in playbook.groups and group in hosts_by_group):
                raise AnsibleActionFail(
                    f"the group {group} of {name}.yml has no host in the inventory; add its hosts, "
                    "or correct its name there. Nothing was run"
                )
        return list(names)


def _near(names: Iterable[str], valid_names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, nearest known name) for the names that are likely misspellings."""
    for name in sorted(names):
        if similar := nearest(name, valid_names):
            yield name, similar


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a value; encrypted ones stay encrypted, because they are no texts to Python."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
