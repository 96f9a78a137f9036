# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Give the module gpu_host the variables of the roles gpu_host and gpu_vm, in one process for each host."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.host import wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import gpu_domain_options
from ansible_collections.sailloft.fleet.plugins.plugin_utils import playbook_registry as registry

OPTIONS = {"gpu_host": list(wanted.options()), "gpu_vm": list(gpu_domain_options(""))}
# Ansible loads an action plugin in the process that forks a child for each task and host: the children do not read
# these files again.
SPECS = {role: registry.entries(role)["main"] for role in OPTIONS}
INSTALLED = registry.role_vars("gpu_host")


class ActionModule(ActionBase):
    """Run the module, or compare a host with the variables of roles without failing because of it."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        variables = task_vars or {}
        result = super().run(tmp, variables)
        options = dict(self._task.args)
        if "compare" in options:
            option = {"type": "list", "elements": "str", "choices": list(SPECS), "required": True}
            _spec, checked = self.validate_argument_spec({"compare": option})
            self._task.check_mode = True
            return {**result, **self._compare(checked["compare"], variables)}
        arguments = self._host_arguments(self._values("gpu_host", variables), variables)
        return {**result, **self._call({**arguments, **options}, variables)}

    def _call(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module("sailloft.fleet.gpu_host", arguments, task_vars=variables)
        return answer

    def _compare(self, roles: list[str], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a comparison. A role that cannot be compared runs, and reports the error itself."""
        differences: dict[str, list[str]] = {}
        arguments: dict[str, Any] = {"parts": []}
        for role in roles:
            try:
                arguments.update(self._compared_arguments(role, variables))
                differences[role] = []
            except AnsibleError as error:
                differences[role] = [str(error)]
        comparable = [role for role in roles if not differences[role]]
        try:
            answer = self._call(arguments, variables) if comparable else {}
        except AnsibleError as error:  # not reached, or become refused: the role's first task reports it in detail
            answer = {"failed": True, "msg": str(error)}
        machines = answer.get("virtual_machines") or {}
        unread = _differences(answer)[0] if comparable and "missing" not in answer else ""
        if "gpu_host" in comparable:
            differences["gpu_host"] = _differences(answer)
        if "gpu_vm" in comparable:
            unknown = _differences(answer) or ["the host does not answer"]
            differences["gpu_vm"] = machines.get("differences", unknown)
        return {
            # Ansible itself adds these results: the interpreter that it found, and its warnings.
            **{name: answer[name] for name in ("ansible_facts", "warnings") if name in answer},
            "changed": False,
            "held": {role: not lines for role, lines in differences.items()},
            "differences": differences,
            "unread": unread,
            "domains": machines.get("domains", []),
            "time": time.time(),
        }

    def _values(self, role: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the role's variables as name -> value. Raises AnsibleError for one that the role refuses."""
        given_values = {name: variables[name] for name in SPECS[role] if name in variables}
        checked = ArgumentSpecValidator(SPECS[role]).validate(self._templar.template(given_values))
        if checked.error_messages:
            raise AnsibleActionFail(f"{role}: {'; '.join(checked.error_messages)}")
        return {name: value for name, value in checked.validated_parameters.items() if value is not None}

    def _whole_host(self, variables: Mapping[str, Any]) -> Any:
        """Return gpu_vm_whole_host; {} if it is not set or gpu_vm_domains precedes it. Raises AnsibleError."""
        settings = self._templar.template(variables.get("gpu_vm_whole_host")) or {}
        return {} if settings and self._templar.template(variables.get("gpu_vm_domains")) else settings

    def _host_arguments(self, values: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the module's arguments. In an image, the running kernel is that of the build host."""
        installs = boolean(self._templar.template(variables.get("packages_install", True)))
        installed = INSTALLED if installs else {}
        return {
            **_arguments("gpu_host", values),
            "whole_host": self._whole_host(variables),
            "packages": installed.get("__gpu_host_packages", {}),
            "sockets": installed.get("__gpu_host_sockets", {}),
            **({"parts": ["settings"], "now": False} if self._connection.transport.endswith("chroot") else {}),
        }

    def _compared_arguments(self, role: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that compare a host. Raises AnsibleActionFail if the role has to run in any case."""
        values = self._values(role, variables)
        if role == "gpu_vm":
            if values["gpu_vm_backend"] != "libvirt":
                raise AnsibleActionFail("it is reached through vCenter")
            name = {"name": f"{variables['inventory_hostname']}-vm"}
            whole_host = values["gpu_vm_whole_host"]
            return {
                "gpu_domain": {**_arguments(role, values), "whole_host": {**name, **whole_host} if whole_host else {}}
            }
        arguments = self._host_arguments(values, variables)
        if values["gpu_host_state"] != "present" or not arguments.get("now", True):
            raise AnsibleActionFail("its settings are to be restored, or it is an image")
        return {**arguments, "parts": list(wanted.PARTS)}


def _arguments(role: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the role's values of the module's options, by option."""
    return {name: values[f"{role}_{name}"] for name in OPTIONS[role] if f"{role}_{name}" in values}


def _differences(answer: Mapping[str, Any]) -> list[str]:
    """Return the reasons why the role gpu_host has to run, from the module's result; empty if there are none."""
    if "missing" not in answer:
        return [str(answer.get("msg") or "the host does not answer")]
    changes = [str(name) for name in answer["diff"]["after"]]
    return [*answer["missing"], *changes, *answer["pending"], *answer["notes"], *answer["failures"]]
