# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Actions whose modules take a fabric: a task names switches and hosts, and the action reads the variables of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_variables import VariablesOfHosts

SWITCH_SETTINGS = ("system", "asic", "ports", "headroom", "queue_buffer_bytes")


def switch_settings(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a switch by name, from its variables ``roce_switch_*``."""
    settings = {name: variables.get(f"roce_switch_{name}") for name in SWITCH_SETTINGS}
    return {name: value for name, value in settings.items() if value is not None}


def nics_of(result: Any) -> Any:
    """Return the NICs in a host's result of roce_nic_info or roce_host; None without any."""
    return result.get("nics") if isinstance(result, Mapping) else None


# The value of a switch or host by the module's option, from its variables; None where it was not read.
VALUES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "switches": switch_settings,
    "hosts": lambda variables: variables.get("roce_host_nics"),
    "running": lambda variables: variables.get("roce_switch_running"),
    "nics": lambda variables: nics_of(variables.get("roce_host_read")),
    "nics_wanted": lambda variables: nics_of(variables.get("roce_host_planned")),
    "counted": lambda variables: variables.get("roce_switch_counters", variables.get("roce_host_counters")),
    "running_before": lambda variables: variables.get("__roce_switch_backup"),
    "nics_before": lambda variables: nics_of(variables.get("__roce_switch_nics_before")) or {},
    "guests": lambda variables: variables.get("gpu_guest_host"),
    "applications": lambda variables: variables.get("roce_host_applications", []),
}
# Options that a host may lack; the module checks the others.
READINGS = ("running", "running_before", "nics", "nics_wanted")


def by_name(option: str, names: list[str], hostvars: Mapping[str, Any]) -> dict[str, Any]:
    """Return an option's values by the names of switches or hosts. Raises AnsibleActionFail."""
    values = {}
    for name in names:
        if name not in hostvars:
            raise AnsibleActionFail(f"{name}: not in the inventory; correct the group")
        values[name] = VALUES[option](hostvars[name])
        if values[name] is None and option in READINGS:
            raise AnsibleActionFail(f"{name}: {option} is not known, because it was not read; run again")
    return values


class FabricAction(ActionBase):
    """Run the module of the same name; an option that is a list of names becomes their values."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        variables = task_vars or {}
        result = super().run(tmp, variables)
        arguments = dict(self._task.args)
        hostvars = VariablesOfHosts(variables.get("hostvars", {}))
        read: dict[str, Any] = {}  # once for all options, because Ansible collects a host's variables at each access
        try:
            for option in VALUES:
                if isinstance(arguments.get(option), list):
                    names = [name for name in arguments[option] if name in hostvars and name not in read]
                    read.update({name: hostvars[name] for name in names})
                    values = by_name(option, arguments[option], read)
                    # As text, because Ansible visits each value of a module's arguments, which takes longer.
                    arguments[option] = json.dumps(values, default=str)
        except AnsibleActionFail as error:  # returned, because failed_when ignores exceptions
            return {**result, "failed": True, "msg": str(error)}
        return {**result, **self._execute_module(module_args=arguments, task_vars=variables)}
