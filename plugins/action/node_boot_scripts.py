# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the scripts of nodes from the variables of each, which are checked before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import (
    InvalidValueError,
    integer,
    text,
    unicast_mac,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import node_files
from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.named import NamedNodesAction

DEFAULT_IMAGE = {"channel": "stable"}
# Timeouts in seconds. A node with terabytes of memory trains it for a quarter of an hour; a day is a wrong unit.
WAITS = ("node_boot_timeout_s", "node_boot_restart_timeout_s")
WAIT_S_MAX = 86400
# Variables that may name a file of tasks.
HOOKS = ("node_boot_drain", "node_boot_health", "node_boot_return")


def scripts_rows(names: list[str], hostvars: Mapping[str, Any], pin: str = "") -> list[dict[str, Any]]:
    """Return rows of the module's option ``nodes``; ``pin``: the digest that all of them boot, whatever they follow.

    Raises AnsibleActionFail, naming the node and the variable.
    """
    ordered = sorted(names)
    servers = {name: hostvars[name].get("node_boot_servers") for name in ordered}
    for name in ordered:
        if servers[name] != servers[ordered[0]]:
            raise _error(
                name,
                "node_boot_servers",
                f"{servers[name]!r} differs from {servers[ordered[0]]!r} of {ordered[0]}",
                "give all nodes the same value, and use node_boot_server_urls for the servers of a rack",
            )
        _check_waits(name, hostvars[name])
        _check_task_files(name, hostvars[name])
    return [node_row(name, hostvars[name], pin) for name in ordered]


def node_row(name: str, variables: Mapping[str, Any], pin: str = "") -> dict[str, Any]:
    """Return what a node is to boot, from its own variables or the ``pin``. Raises AnsibleActionFail."""
    image = {"digest": pin} if pin else image_of(variables)
    if not isinstance(image, Mapping) or len(image) != 1 or not set(image) <= {"channel", "digest"}:
        raise _error(name, "node_boot_image", f"{image!r} is not valid", "write {channel: NAME} or {digest: DIGEST}")
    ((kind, value),) = image.items()
    if not variables.get("node_boot_mac"):
        raise _error(
            name, "node_boot_mac", "it is not set", "set the MAC address of the interface that the node boots from"
        )
    return {
        "name": name,
        "mac": _checked(name, "node_boot_mac", variables["node_boot_mac"], unicast_mac),
        kind: _checked(name, f"node_boot_image.{kind}", value, text),
        "kernel_arguments": texts(name, "node_boot_kernel_arguments", variables),
        "servers": texts(name, "node_boot_server_urls", variables, minimum_count=1),
        "caches": texts(name, "node_boot_cache_urls", variables),
        "report": _report(name, variables.get("node_boot_report_url") or ""),
        "nics": _nics(name, variables.get("node_boot_nics") or []),
        "secure_boot": _flag(name, "node_boot_secure_boot", variables),
    }


def image_of(variables: Mapping[str, Any]) -> Any:
    """Return what the inventory names as the node's image."""
    return variables.get("node_boot_image") or DEFAULT_IMAGE


def files_of(name: str, variables: Mapping[str, Any]) -> str:
    """Return the text of the node's own files, empty for none. Raises AnsibleActionFail."""
    try:
        return node_files.text_of(name, variables.get("node_boot_files") or {})
    except SailloftError as error:
        raise AnsibleActionFail(str(error)) from error


def _check_waits(name: str, variables: Mapping[str, Any]) -> None:
    """Raise AnsibleActionFail for a timeout that must be a mistake, before anything is changed."""
    bmc = variables.get("node_boot_bmc") or {}
    timeouts = {setting: variables.get(setting) for setting in WAITS}
    timeouts["node_boot_bmc.power_timeout_s"] = bmc.get("power_timeout_s") if isinstance(bmc, Mapping) else None
    for setting, value in timeouts.items():
        if value is not None:
            # A value from the command line (-e) is text.
            number = int(value) if isinstance(value, str) and value.isdecimal() else value
            _checked(name, setting, number, lambda number: integer(number, 1, WAIT_S_MAX, "seconds"))


def _check_task_files(name: str, variables: Mapping[str, Any]) -> None:
    """Raise AnsibleActionFail for a file of tasks that is not there, before a node is restarted."""
    folder = str(variables.get("playbook_dir") or "")
    for setting in HOOKS:
        hook = variables.get(setting)
        file = str(hook.get("tasks") or "") if isinstance(hook, Mapping) else ""
        places = (
            [file]
            if os.path.isabs(file) or not folder
            else [os.path.join(folder, part, file) for part in ("", "tasks")]
        )
        if file and not any(os.path.isfile(place) for place in places):
            raise _error(name, f"{setting}.tasks", f"{file} is not a file on the controller", "give its absolute path")


def _report(name: str, value: Any) -> str:
    return _checked(name, "node_boot_report_url", value, text) if value else ""


def _nics(name: str, nics: Any) -> list[dict[str, Any]]:
    if not isinstance(nics, (list, tuple)) or not all(isinstance(nic, Mapping) for nic in nics):
        raise _error(
            name, "node_boot_nics", f"{nics!r} is not a list of NICs", "write [{name: NAME, address: ADDRESS}]"
        )
    return [dict(nic) for nic in nics]


def _flag(name: str, setting: str, variables: Mapping[str, Any]) -> bool:
    value = variables.get(setting) or False
    try:
        return bool(boolean(value))
    except TypeError as error:
        raise _error(name, setting, f"{value!r} is not true or false", "write true or false") from error


def texts(name: str, setting: str, variables: Mapping[str, Any], minimum_count: int = 0) -> list[str]:
    """Return a variable of a node that is a list of texts. Raises AnsibleActionFail."""
    values = variables.get(setting) or []
    if not isinstance(values, (list, tuple)):
        raise _error(name, setting, f"{values!r} is not a list", "write it like [one, another]")
    if len(values) < minimum_count:
        raise _error(name, setting, "it is empty", "give it in the node's own variables or in those of its group")
    return [_checked(name, setting, value, text) for value in values]


def _checked(name: str, setting: str, value: Any, check: Callable[[Any], object]) -> str:
    try:
        return str(check(value))
    except InvalidValueError as error:
        raise _error(name, setting, error.cause, error.remedy) from error


def _error(name: str, setting: str, cause: str, remedy: str) -> AnsibleActionFail:
    return AnsibleActionFail(f"node {name}: {setting}: {cause}; {remedy}")


class ActionModule(NamedNodesAction):
    """Run the module with the images and addresses of nodes."""

    OWN = ("pin",)

    def rows(self, names: list[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the module's option ``nodes``. Raises AnsibleActionFail."""
        return scripts_rows(names, hostvars, self.given.get("pin") or "")
