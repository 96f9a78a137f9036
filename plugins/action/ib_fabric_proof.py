# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Prove an InfiniBand fabric from what was read of it, on the controller."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import SubnetReadings, prove
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.plugin_utils.infiniband_arguments import ARGUMENTS, planned_fabric

_READINGS: dict[str, Any] = {
    "links": {"type": "str", "required": True},
    "forwarding": {"type": "str", "required": True},
    "order": {"type": "str", "default": ""},
    "log": {"type": "str", "default": ""},
    "pkeys": {"type": "dict", "default": {}},
    "managers_found": {"type": "str", "default": ""},
    "manager_files": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):
    """Plan, compare and write; no host is reached."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec(
            {**ARGUMENTS, **_READINGS, "path": {"type": "path", "required": True}}
        )
        try:
            proof = prove(
                planned_fabric(arguments, task_vars),
                SubnetReadings(
                    found="\n".join(arguments["found"]),
                    links=arguments["links"],
                    forwarding=arguments["forwarding"],
                    order=arguments["order"],
                    log=arguments["log"],
                    pkeys=arguments["pkeys"],
                    managers=arguments["managers_found"],
                    files=arguments["manager_files"],
                ),
            )
            return {**result, **written(proof, page(proof), arguments["path"], self._task.check_mode)}
        except SailloftError as error:
            raise AnsibleActionFail(str(error)) from error
