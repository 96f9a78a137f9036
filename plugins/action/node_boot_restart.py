# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Restart a node through its BMC, and return the time before it by the controller's clock."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Run the module of the same name on the host that accesses the BMC."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        if self._task.check_mode:
            return {**result, "skipped": True}
        since = time.time()
        try:
            result.update(self._execute_module(task_vars=variables))
        except AnsibleConnectionFailure as error:
            options = self._task.args
            message = (
                f"{options.get('node')}: {options.get('host', 'localhost')}, which accesses its BMC, does not answer"
            )
            return {**result, "failed": True, "msg": f"{message}: {error}; check its address and that it is up"}
        return {**result, "since": since}
