# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Plan the files of a monitoring server on the controller, and give them to the module."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.action.monitoring_plan import monitored_hosts, planned_texts
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.servers import (
    server_addresses,
    server_files,
    server_settings,
)


class ActionModule(ActionBase):
    """Run the module with the planned files."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        variables = task_vars or {}
        result = super().run(tmp, variables)
        arguments = {"controller_s": time.time(), **self._task.args}
        if "plan" in arguments:
            try:
                arguments = {**_planned(arguments.pop("plan"), variables), **arguments}
            except SailloftError as error:
                raise AnsibleActionFail(str(error)) from error
        answer = self._execute_module("sailloft.fleet.monitoring_server", arguments, task_vars=variables)
        return {**result, **answer}


def _planned(settings: Any, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the module's options of the server for which the task runs. Raises SailloftError."""
    groups, name = variables.get("groups", {}), variables.get("inventory_hostname", "")
    hosts = monitored_hosts(groups, variables.get("hostvars", {}))
    addresses = server_addresses(hosts)
    planned = plan(server_settings(settings or {}, name, addresses), hosts, groups)
    files = server_files(planned_texts(planned))
    return {
        "files": files,
        "address": addresses[name],
        "peers": [address for server, address in addresses.items() if server != name],
    }
