# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Judge the links of an InfiniBand fabric from two readings of its counters, on the controller."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import (
    from_stored,
    read_counters,
    stored,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.isolation import changed_ports
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.table import table
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.plugin_utils.infiniband_arguments import ARGUMENTS, planned_fabric

_ARGUMENTS: dict[str, Any] = {
    **ARGUMENTS,
    "counters": {"type": "str", "required": True},
    "read_at_s": {"type": "float", "required": True},
    "disabled": {"type": "str", "default": ""},
    "spare_uplinks": {"type": "int", "default": 0},
    "isolate": {"type": "list", "elements": "str", "default": []},
    "restore": {"type": "list", "elements": "str", "default": []},
    "path": {"type": "path", "required": True},
}


class ActionModule(ActionBase):
    """Judge, and keep the reading for the next time; no host is reached."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec(_ARGUMENTS)
        try:
            plan = planned_fabric(arguments, task_vars)
            found, spare = "\n".join(arguments["found"]), arguments["spare_uplinks"]
            later = read_counters(arguments["counters"], arguments["read_at_s"])
            path = os.path.join(arguments["path"], f"infiniband-{plan.fabric.name}-counters.json")
            text = files.read(path)
            earlier = None if text is None else from_stored(text, path)
            made = table(plan, found, earlier, later, arguments["disabled"], spare)
            ports = changed_ports(plan, found, arguments["isolate"], arguments["restore"], spare)
            changed = text != stored(later)
            if changed and not self._task.check_mode:
                files.write(path, stored(later))
        except SailloftError as error:
            raise AnsibleActionFail(str(error)) from error
        return {
            **result,
            "changed": changed,
            "holds": made.holds,
            "summary": made.summary,
            "lines": made.lines,
            "faults": made.faults,
            "ports": ports,
        }
