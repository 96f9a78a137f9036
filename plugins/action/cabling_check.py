# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Compare the neighbours that devices see with the planned cables, on the controller."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.compare import compare, report
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import (
    Neighbour,
    read_infiniband,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.netbox import planned_in_netbox
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import planned
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site


class ActionModule(ActionBase):
    """Compare all devices in one call."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec(
            {"blueprint": {"type": "path"}, "netbox": {"type": "dict"}, "read": {"type": "dict", "required": True}},
            mutually_exclusive=[["blueprint", "netbox"]],
            required_one_of=[["blueprint", "netbox"]],
        )
        read = {name: each for name, each in arguments["read"].items() if each and "neighbours" in each}
        silent = {
            name: (each or {}).get("msg") or "it did not answer"
            for name, each in arguments["read"].items()
            if name not in read
        }
        seen = {
            name: {port: Neighbour(at["device"], tuple(at["ports"])) for port, at in each["neighbours"].items()}
            for name, each in read.items()
        }
        speeds = {name: each.get("speeds") or {} for name, each in read.items()}
        subnets = [each["infiniband"] for each in read.values() if each.get("infiniband")]
        links = {link for text in subnets for link in read_infiniband(text)} if subnets else None
        try:
            if arguments["netbox"]:
                cables = planned_in_netbox(arguments["netbox"])
            else:
                cables = planned(read_site(arguments["blueprint"]))
            found = compare(cables, seen, speeds, links)
        except SiteError as error:
            raise AnsibleActionFail(str(error)) from error
        return {
            **result,
            **found,
            "faults": [fault._asdict() for fault in found["faults"]],
            "silent": [{"device": device, "cause": cause} for device, cause in silent.items()],
            "report": report(found, silent),
            "changed": False,
        }
