# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Take pending machines into the inventory, on the controller."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import (
    InvalidValueError,
    unicast_mac,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import accept
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.accept import HEAD, Acceptance, InventoryNode
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.errors import DiscoveryError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.netbox import planned_in_netbox
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import planned
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import NetboxApi
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.hardware import RecordedMachine, write_hardware
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_variables import VariablesOfHosts
from ansible_collections.sailloft.fleet.plugins.plugin_utils.planned_files import write_changed

FILE = "accepted.yml"
# What Ansible reads as the variables of a host, and no longer once there is a directory of its name.
HIDDEN_BY_FOLDER = (".yml", ".yaml", ".json")


class ActionModule(ControllerAction):
    """Decide on all machines, then write; no host is reached."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "accept": {"type": "dict", "default": {}},
        "pending": {"type": "list", "elements": "dict", "required": True},
        "nodes": {"type": "list", "elements": "str", "required": True},
        "blueprint": {"type": "path"},
        "netbox": {"type": "dict"},
        "replace": {"type": "bool", "default": False},
        "netbox_url": {"type": "str"},
        "netbox_token": {"type": "str", "no_log": True},
        "netbox_site": {"type": "str"},
        "validate_certs": {"type": "bool", "default": True},
    }
    RULES: ClassVar[dict[str, Any]] = {
        "mutually_exclusive": [["blueprint", "netbox"]],
        "required_by": {"netbox_url": ["netbox", "netbox_token"]},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        hostvars = VariablesOfHosts(variables.get("hostvars", {}))
        if arguments["netbox"]:
            plan = accept.Plan(planned_in_netbox(arguments["netbox"]))
        else:
            plan = accept.Plan(planned(read_site(arguments["blueprint"]))) if arguments["blueprint"] else accept.Plan()
        machines = accept.newest([server.get("machines", []) for server in arguments["pending"]])
        nodes = {name: _node(name, hostvars[name]) for name in arguments["nodes"]}
        wanted = {str(name): _mac(str(name), mac) for name, mac in arguments["accept"].items()}
        accepted = accept.accept(wanted, machines, nodes, plan, arguments["replace"])
        folders = {acceptance.name: _folder(acceptance.name, hostvars[acceptance.name]) for acceptance in accepted}
        keys = [_enrolled_key(acceptance, hostvars[acceptance.name]) for acceptance in accepted if acceptance.old_mac]
        for acceptance in accepted:
            _permit(acceptance, folders[acceptance.name], nodes[acceptance.name])
        written = self._written(arguments, plan, accepted)
        changes = []
        # A key goes before the file by which the next run would know that the machine was replaced.
        for path in filter(None, keys):
            changes.append({"before_header": path, "after_header": path, "before": files.read(path) or "", "after": ""})
            if not self._task.check_mode:
                os.remove(path)
        texts = {os.path.join(folders[acceptance.name], FILE): acceptance.text() for acceptance in accepted}
        changes += write_changed("", texts, self._task.check_mode)
        refused = [row for server in arguments["pending"] for row in server.get("refused", [])]
        return {
            "changed": bool(changes) or written["changed"],
            "diff": [*([written["diff"]] if written["changed"] else []), *changes],
            "written": [change["after_header"] for change in changes],
            "replaced": [acceptance.name for acceptance in accepted if acceptance.old_mac],
            "report": [
                *(accept.lines(machines, nodes, plan) or ["no machine is pending"]),
                *dict.fromkeys(f"{row['mac']}: its report is refused: {row['cause']}" for row in refused),
                *(
                    f"{acceptance.name} is {acceptance.machine['mac']}: {acceptance.place.why}"
                    for acceptance in accepted
                ),
                *written["left_out"],
            ],
        }

    def _written(self, arguments: dict[str, Any], plan: accept.Plan, accepted: Sequence[Acceptance]) -> dict[str, Any]:
        """Write the machines to NetBox, if it is named; what it has otherwise is refused before a file is changed."""
        if not arguments["netbox_url"] or not accepted:
            return {"changed": False, "diff": {}, "left_out": []}
        machines = {
            acceptance.name: RecordedMachine(
                acceptance.machine["serial"],
                plan.interfaces(acceptance.name, acceptance.machine),
                acceptance.machine["bmc_mac"],
                acceptance.machine["bmc_address"],
            )
            for acceptance in accepted
        }
        query = [("site", arguments["netbox_site"])] if arguments["netbox_site"] else []
        api = NetboxApi(arguments, open_url)
        return write_hardware(api, machines, query, arguments["replace"], self._task.check_mode)


def _node(name: str, variables: Mapping[str, Any]) -> InventoryNode:
    mac = str(variables.get("node_boot_mac") or "").lower().replace("-", ":")
    return InventoryNode(name, mac, str(variables.get("site_rack") or ""))


def _mac(name: str, value: Any) -> str:
    """Return a given MAC address, "" if none is given. Raises DiscoveryError."""
    try:
        return str(unicast_mac(value)) if value else ""
    except InvalidValueError as error:
        raise DiscoveryError(error.cause, error.remedy, subject=f"accept_nodes: {name}") from error


def _folder(name: str, variables: Mapping[str, Any]) -> str:
    """Return the directory of a node's variables, beside the source of the inventory that has it."""
    place = variables.get("inventory_dir")
    if not place:
        raise DiscoveryError(
            "no file of the inventory has it", "add it to the inventory in a directory (-i DIRECTORY)", subject=name
        )
    return os.path.join(str(place), "host_vars", name)


def _permit(acceptance: Acceptance, folder: str, node: InventoryNode) -> None:
    """Raise DiscoveryError or ProofError where a file or a variable that a person wrote is in the way."""
    variables_file = os.path.join(folder, FILE)
    for path in (folder, *(folder + suffix for suffix in HIDDEN_BY_FOLDER)):
        if os.path.isfile(path):
            raise DiscoveryError(
                f"Ansible would not read it once there is {variables_file}", f"move it into {folder}/", subject=path
            )
    text = files.read(variables_file)
    if text is not None and HEAD not in text:
        raise DiscoveryError("a person wrote this file", "give it another name", subject=variables_file)
    if acceptance.old_mac and (text is None or f'"{node.mac}"' not in text):
        raise DiscoveryError(
            f"its node_boot_mac {node.mac} is in a file that a person wrote",
            "remove the variable there, it will be in host_vars/NAME/accepted.yml",
            subject=node.name,
        )


def _enrolled_key(acceptance: Acceptance, variables: Mapping[str, Any]) -> str:
    """Return the file of the old TPM's key, "" if none is enrolled. Raises DiscoveryError if it is elsewhere."""
    folder, key = variables.get("node_identity_enrolled_dir"), variables.get("node_identity_ek")
    path = os.path.join(str(folder), acceptance.name) if folder else ""
    if path and os.path.isfile(path):
        return path
    if key:
        raise DiscoveryError(
            "node_identity_ek is the key of the old machine's TPM",
            "remove it from the inventory, so that no secret is encrypted to it again",
            subject=acceptance.name,
        )
    return ""
