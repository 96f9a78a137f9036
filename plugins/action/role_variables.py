# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Compare the names of variables with a role's variables, for all hosts at once on the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.plugins.loader import filter_loader, test_loader
from ansible.utils.display import Display

from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import is_of, missing_names, unknown_names
from ansible_collections.sailloft.fleet.plugins.plugin_utils import host_facts, run_strategy
from ansible_collections.sailloft.fleet.plugins.plugin_utils import playbook_registry as registry
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.role_values import check_values

# The roles that need Ansible's order: their batches, holds or stages are several tasks over all hosts of a play.
ORDERED = ("gpu_host", "node_boot", "roce_switch")

display = Display()

# Ansible loads an action plugin in the process that forks a child for each task and host, but loads its filters and
# tests only when the first one is used. Without this, each child would load them again (up to 20 ms of processor time).
filter_loader.get("bool")
test_loader.get("defined")


class ActionModule(ControllerAction):
    """Check names, and values that are written out: nothing is templated or decrypted."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "role": {"type": "str", "default": ""},
        "hosts": {"type": "list", "elements": "str"},
        "others": {"type": "list", "elements": "str", "default": []},
        "required_by": {"type": "str"},
        "untrusted_hosts": {"type": "bool", "default": False},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        role = arguments["role"] or (variables.get("ansible_role_name") or "").split(".")[-1]
        hosts = variables.get("ansible_play_batch") or [] if arguments["hosts"] is None else arguments["hosts"]
        roles = registry.roles()
        if role not in roles:
            raise AnsibleActionFail(f"there is no role {role!r} in sailloft.fleet; set role to an existing role")
        if arguments["untrusted_hosts"] and (text := host_facts.overriding_reason(f"the role {role}")):
            raise AnsibleActionFail(text)
        strategy = self._task.get_play().strategy
        if role in ORDERED and (text := run_strategy.forbidden_reason(strategy, f"the role {role}")):
            raise AnsibleActionFail(text)
        entries = registry.entries(role)
        shared_names = (name for name in registry.read()["variables"] if name.startswith(f"{role}_"))
        valid_names = {*arguments["others"], *shared_names, *(name for options in entries.values() for name in options)}
        hosts_by_name = self._given(hosts, variables, role)
        role_names = {name: of_name for name, of_name in hosts_by_name.items() if is_of(name, role, roles)}
        for text in unknown_names(role, role_names, valid_names):
            display.warning(text)
        entry = arguments["required_by"]
        required = [name for name, option in entries.get(entry, {}).items() if option.get("required")]
        missing = missing_names(role, hosts, hosts_by_name, required)
        if missing:
            raise AnsibleActionFail(missing)
        if "role" in self._task.args:  # not in the role itself, before whose first task Ansible has checked the values
            options = {name: option for entry in entries.values() for name, option in entry.items()}
            check_values(role, options, hosts, variables["hostvars"])
        return {"changed": False}

    def _given(self, hosts: list[str], variables: dict[str, Any], role: str) -> dict[str, list[str]]:
        """Return name -> hosts for the variables with the role's prefix from inventory, play and command line.

        Variables that tasks have set (set_fact, register) and those of the task and its blocks are left out.
        """
        hostvars = variables.get("hostvars") or {}
        # Ansible stores the variables that tasks have set separately; without this, they would count as given.
        manager = getattr(hostvars, "_variable_manager", None)
        set_by_tasks = getattr(manager, "_nonpersistent_fact_cache", {})
        start = f"{role}_"
        hosts_by_name: dict[str, list[str]] = {}
        current_host = variables.get("inventory_hostname")
        of_task = {*self._task.get_vars(), *self._task.get_include_params()}
        in_play = {name for name in variables if name.startswith(start)} - of_task
        for host in hosts:
            host_variables = hostvars.raw_get(host) if hasattr(hostvars, "raw_get") else {}
            names = (
                {name for name in host_variables if name.startswith(start)}
                if isinstance(host_variables, Mapping)
                else set()
            )
            if host == current_host:
                names |= in_play
            for name in names - set(set_by_tasks.get(host, ())):
                hosts_by_name.setdefault(name, []).append(host)
        return hosts_by_name
