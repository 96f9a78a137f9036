# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reach many hosts from the process of one task, each with its own variables and connection, as Ansible would.

A task for each host costs the controller a process and a module for each; here a host costs its variables and what its
connection does.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader, connection_loader

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.at_once import Ended, at_once
from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_variables import VariablesOfHost, naming

# Each option counts only the first time that ssh reads it. A master would stay for each of thousands of nodes, and
# would not survive their boot. The program of a module is compressed already.
SSH_ARGUMENTS = "-o ControlMaster=no -o ControlPath=none -o Compression=no -o ServerAliveInterval=15"

Call = tuple[str, dict[str, Any]]


class HostVariables(VariablesOfHost):
    """The variables of a host in a task, each evaluated when it is read."""

    def __init__(self, host: str, variables: Mapping[str, Any], templar: Any) -> None:
        super().__init__(host, variables)
        self.templar = templar

    def __getitem__(self, name: str) -> Any:
        """Return the value. Raises KeyError, and AnsibleActionFail for a template that cannot be read."""
        with naming(self._host, name):
            return self.templar.template(self._variables[name])


class NodeShell(ActionBase):
    """A connection to one host. It is made in the main thread; then any thread may use it."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Refuse, because this is no action of a task."""
        raise NotImplementedError

    def command(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return ``rc``, ``stdout`` and ``stderr`` of a command. Raises AnsibleConnectionFailure."""
        return self._low_level_execute_command(f"{self._compute_environment_string()} {shlex.join(argv)}".strip())

    def module(self, program: bytes, interpreter: str) -> dict[str, Any]:
        """Return the result of a module's program. Raises AnsibleConnectionFailure, also for no result."""
        line = self._connection._shell.build_module_command(
            self._compute_environment_string(), f"#!{interpreter}", ""
        ).strip()
        answer = self._low_level_execute_command(line, in_data=program)
        try:
            result = json.loads(next(text for text in reversed(answer["stdout"].splitlines()) if text.startswith("{")))
        except (StopIteration, ValueError) as error:
            text = answer["stderr"].strip() or answer["stdout"].strip() or f"status {answer['rc']}, no output"
            raise AnsibleConnectionFailure(text.splitlines()[-1]) from error
        if result.get("failed"):
            raise AnsibleConnectionFailure(str(result.get("msg") or "no reason was given").strip())
        return dict(result)

    def program(self, module: str, arguments: dict[str, Any], variables: dict[str, Any]) -> bytes:
        """Return the program of a module with its arguments, to be given to the interpreter."""
        self._update_module_args(module, arguments, variables)
        built = self._configure_module(module, arguments, variables)
        # ansible-core before 2.19 returns a tuple.
        return bytes(built[0].b_module_data if hasattr(built[0], "b_module_data") else built[2])

    def port(self) -> tuple[str, int] | None:
        """Return address and port of a host that ssh reaches without another host between, else None."""
        if self._connection.transport != "ssh":
            return None
        options = [str(self._connection.get_option(name) or "") for name in SSH_OPTIONS]
        if any("proxy" in text.lower() or "-J" in text for text in options):
            return None
        return str(self._connection.get_option("host")), int(self._connection.get_option("port") or 22)


SSH_OPTIONS = ("ssh_args", "ssh_common_args", "ssh_extra_args")


class ReachedHost:
    """A host as one task sees it: its variables, its interpreter and its connection."""

    def __init__(self, action: ActionBase, name: str, manager: Any, inventory: Any) -> None:
        host = inventory.get_host(name)
        if host is None:
            raise AnsibleActionFail(f"{name}: the inventory has no such host; add it, or correct the variable")
        self.name, self._action, task = name, action, action._task
        # The lists of hosts would be made anew for each host.
        self.values = manager.get_vars(play=task.get_play(), host=host, task=task, _hosts=[name], _hosts_all=[name])
        self.templar = action._templar.copy_with_new_env(available_variables=self.values)
        self.variables = HostVariables(name, self.values, self.templar)

    @property
    def interpreter(self) -> str:
        """Return the Python of the host; if Ansible were to search for it, the one that all systems here have."""
        setting = str(self.variables.get("ansible_python_interpreter") or "auto")
        return "/usr/bin/python3" if setting.startswith("auto") else setting

    @cached_property
    def shell(self) -> NodeShell:
        """Return the connection."""
        action, variables = self._action, self.variables
        context = copy.copy(action._play_context)
        context.remote_addr = variables.get("ansible_host") or self.name
        usual = "local" if self.name in constants.LOCALHOST else action._task.connection or constants.DEFAULT_TRANSPORT
        kind = variables.get("ansible_connection") or usual
        connection = connection_loader.get(kind, context, None)
        if connection is None:
            raise AnsibleActionFail(f"{self.name}: ansible_connection: there is no plugin {kind}; correct it")
        keys = {name: value for name, value in action._task.dump_attrs().items() if name != "retries"}
        keys["timeout"] = context.timeout
        if context.password:
            keys["password"] = context.password
        becomes = variables.get("ansible_become")
        if boolean(action._task.become or False if becomes is None else becomes):
            become = become_loader.get(variables.get("ansible_become_method") or action._task.become_method or "sudo")
            self._set_options(become, "become", {**keys, "become_pass": context.become_pass})
            connection.set_become_plugin(become)
        self._set_options(connection, "connection", keys)
        self._set_options(connection._shell, "shell", keys)
        if connection.transport == "ssh":
            connection.set_option("ssh_args", f"{SSH_ARGUMENTS} {connection.get_option('ssh_args') or ''}".strip())
        return NodeShell(action._task, connection, context, action._loader, self.templar, action._shared_loader_obj)

    def _set_options(self, plugin: Any, kind: str, keys: dict[str, Any]) -> None:
        names = constants.config.get_plugin_vars(kind, plugin._load_name)
        plugin.set_options(
            task_keys=keys, var_options={name: self.variables[name] for name in names if name in self.values}
        )


class HostsOfTask:
    """The hosts that an action reaches, each made once. Call it with a name."""

    def __init__(self, action: ActionBase, task_vars: Mapping[str, Any]) -> None:
        # Ansible gives an action no other way to its inventory and to the variables of another host.
        hostvars = task_vars["hostvars"]
        self._action, self._inventory, self._manager = action, hostvars._inventory, hostvars._variable_manager
        self._hosts: dict[str, ReachedHost] = {}

    def __call__(self, name: str) -> ReachedHost:
        """Return the host. Raises AnsibleActionFail if the inventory has none of this name."""
        if name not in self._hosts:
            self._hosts[name] = ReachedHost(self._action, name, self._manager, self._inventory)
        return self._hosts[name]

    def call(self, module: str, calls: Mapping[str, Call], ended: Ended[Any], limit_s: Callable[[str], float]) -> None:
        """Run a module for each of ``calls``, hosts and arguments, at once. ``ended`` gets a result or the error."""
        programs: dict[str, tuple[ReachedHost, bytes]] = {}
        for key, (place, arguments) in calls.items():
            try:
                host = self(place)
                programs[key] = (host, host.shell.program(module, arguments, dict(host.values)))
            except AnsibleError as error:  # such as that there is no such host: the others are reached
                ended(key, error)

        def run(key: str) -> dict[str, Any]:
            host, program = programs[key]
            return host.shell.module(program, host.interpreter)

        at_once(programs, run, ended, limit_s)
