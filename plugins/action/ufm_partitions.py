# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Bring the partitions of a UFM to the planned members, from the controller."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.urls import open_url
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband import ufm
from ansible_collections.sailloft.fleet.plugins.plugin_utils.infiniband_arguments import ARGUMENTS, planned_fabric


class ActionModule(ActionBase):
    """Plan, read UFM and change it; no host is reached."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec({**ARGUMENTS, **ufm.ARGUMENTS})
        try:
            plan = planned_fabric(arguments, task_vars)
            planned = ufm.planned_partitions(plan)
            api = ufm.UfmApi(arguments, open_url)
            present = api.partitions()
            steps = ufm.steps(planned, present)
            for step in [] if self._task.check_mode else steps:
                api.ask(step.method, step.path, step.data)
        except SailloftError as error:
            raise AnsibleActionFail(str(error)) from error
        before, after = ufm.shown(present, planned), ufm.shown(planned, planned)
        return {
            **result,
            "changed": bool(steps),
            "steps": [step.title for step in steps],
            "left": ufm.not_changed(planned, present),
            "unknown": plan.guids.unknown(plan.fabric),
            "diff": {"before": before, "after": after, "before_header": "UFM", "after_header": "plan"},
        }
