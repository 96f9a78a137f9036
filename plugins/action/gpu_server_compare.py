# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Compare a GPU server with the variables of the roles gpu_host and gpu_vm, in one process and one call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.plugin_utils.gpu_server_arguments import (
    of_gpu_host,
    of_gpu_vm,
    refused,
    whole_host,
)

ROLES = Path(__file__).parents[2] / "roles"
# The options of gpu_host_compare for each role.
PARTS = {
    "gpu_host": ["packages", "bios_info", "kernel_arguments", "nic_firmware", "gpu_host_boot"],
    "gpu_vm": ["gpu_domain"],
}


def _read(path: str) -> Any:
    return yaml.safe_load((ROLES / path).read_text(encoding="utf-8"))


# Ansible loads an action plugin in the process that forks a child for each task and host: the children do not read
# these files again.
SPECS = {role: _read(f"{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"] for role in PARTS}
DEFAULTS = {role: _read(f"{role}/defaults/main.yml") for role in PARTS}
INSTALLED = _read("gpu_host/vars/main.yml")
PACKAGES = {"installed": INSTALLED["__gpu_host_packages"], "sockets": INSTALLED["__gpu_host_sockets"]}


class ActionModule(ActionBase):
    """Find the roles that have nothing to do. A role that cannot be compared runs, and reports the error itself."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action; it does not fail because of the host."""
        variables = task_vars or {}
        result = super().run(tmp, variables)
        _given, options = self.validate_argument_spec(
            {"roles": {"type": "list", "elements": "str", "choices": list(PARTS), "default": list(PARTS)}}
        )
        open_points: dict[str, list[str]] = {}
        arguments: dict[str, dict[str, Any]] = {}
        # gpu_host derives settings from the virtual machine of gpu_vm.
        guest = whole_host(self._values("gpu_vm", variables) or DEFAULTS["gpu_vm"])
        for role in options["roles"]:
            values = self._values(role, variables)
            why = _why_not(role, values, self._connection.transport)
            if why:
                open_points[role] = [why]
            else:
                name = variables["inventory_hostname"]
                arguments.update(
                    of_gpu_host(values, PACKAGES, guest) if role == "gpu_host" else of_gpu_vm(values, name)
                )
        answer = self._ask(arguments, variables) if arguments else {}
        differences = answer.get("differences") or {}
        for role in [role for role in options["roles"] if role not in open_points]:
            if "differences" not in answer:
                open_points[role] = [str(answer.get("msg") or "the host does not answer")]
                continue
            open_points[role] = [f"{part}: {line}" for part in PARTS[role] for line in differences.get(part, [])]
            if not open_points[role] and not set(PARTS[role]) <= set(differences):
                open_points[role] = ["not compared, because the host differs"]
        # Ansible itself adds these results: the interpreter that it found, and its warnings.
        noted = {name: answer[name] for name in ("ansible_facts", "warnings") if name in answer}
        return {
            **result,
            **noted,
            "changed": False,
            "held": {role: not lines for role, lines in open_points.items()},
            "differences": open_points,
            "domains": answer.get("domains") or [],
        }

    def _values(self, role: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the role's variables as name -> value of the right type; empty where the role refuses a value."""
        try:
            given = {name: variables[name] for name in SPECS[role] if name in variables}
            values = {**DEFAULTS[role], **self._templar.template(given)}
        except AnsibleError:
            return {}
        checked = ArgumentSpecValidator(SPECS[role]).validate(values)
        if checked.error_messages:
            return {}
        simple = {name for name, option in SPECS[role].items() if option.get("type") in {"bool", "int"}}
        return {name: checked.validated_parameters[name] if name in simple else value for name, value in values.items()}

    def _ask(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._execute_module("sailloft.fleet.gpu_host_compare", arguments, task_vars=variables)
        except AnsibleError as error:  # not reached, or become refused: the role's first task reports it in detail
            return {"msg": str(error)}


def _why_not(role: str, values: Mapping[str, Any], transport: str) -> str:
    """Return the reason why a host is not compared for a role; "" if it is compared."""
    if not values:
        return "the role rejects a variable"
    if role == "gpu_vm":
        return "" if values["gpu_vm_backend"] == "libvirt" else "it is reached through vCenter"
    if values["gpu_host_state"] != "present":
        return "its settings are to be restored"
    # When the role is applied to an image, the running kernel is that of the build host.
    if transport.split(".")[-1] == "chroot":
        return "it is an image"
    return "the role rejects the number of hosts that reboot at once" if refused(values) else ""
