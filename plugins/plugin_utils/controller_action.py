# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The frame of the actions that work on the controller: options, result and errors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class ControllerAction(ActionBase):
    """Check the options of a task and do its work on the controller; a SailloftError is the task's failure."""

    _supports_check_mode = True
    _requires_connection = False
    OPTIONS: ClassVar[dict[str, Any]] = {}
    # What options require of each other: arguments of validate_argument_spec.
    RULES: ClassVar[dict[str, Any]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        variables = task_vars or {}
        result = super().run(tmp, variables)
        _given, arguments = self.validate_argument_spec(self.OPTIONS, **self.RULES)
        try:
            return {**result, **self.act(arguments, variables)}
        except SailloftError as error:
            raise AnsibleActionFail(str(error)) from error

    @abstractmethod
    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the task, from its checked options and the variables of its host."""
