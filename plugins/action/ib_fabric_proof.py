# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Prove an InfiniBand fabric from what was read of it, on the controller."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.picture import picture
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.plugin_utils.infiniband_arguments import (
    ARGUMENTS,
    planned_fabric,
    read_readings,
)


class ActionModule(ActionBase):
    """Plan, compare and write; no host is reached."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec({**ARGUMENTS, "path": {"type": "path", "required": True}})
        try:
            readings = read_readings(arguments["readings"])
            planned, marks = planned_fabric(arguments, task_vars, readings), Marks()
            proof = prove(planned, readings, marks)
            html = page(proof, picture(planned.fabric, marks), "The links between the layers")
            return {**result, **written(proof, html, arguments["path"], self._task.check_mode)}
        except SailloftError as error:
            raise AnsibleActionFail(str(error)) from error
