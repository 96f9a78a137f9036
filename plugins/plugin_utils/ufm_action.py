# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The base of the actions on a UFM: the planned fabric, the connection, errors; no host is reached."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.module_utils.urls import open_url
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import api
from ansible_collections.sailloft.fleet.plugins.plugin_utils.infiniband_arguments import ARGUMENTS, planned_fabric


class UfmAction(ActionBase):
    """Plan the fabric, and do the work of one module on its UFM."""

    _supports_check_mode = True
    _requires_connection = False
    # The options of the module besides those of the fabric and of UFM.
    OPTIONS: ClassVar[dict[str, Any]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec({**ARGUMENTS, **api.ARGUMENTS, **self.OPTIONS})
        try:
            plan = planned_fabric(arguments, task_vars)
            return {**result, **self.work(plan, api.Api(arguments, open_url), arguments)}
        except SailloftError as error:
            raise AnsibleActionFail(str(error)) from error

    @abstractmethod
    def work(self, plan: FabricPlan, ufm: api.Api, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module. Raises SailloftError."""
