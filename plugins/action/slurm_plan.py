# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Plan the files of a Slurm cluster from the inventory, on the controller."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.request import SCHEDULERS
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_variables import VariablesOfHosts
from ansible_collections.sailloft.fleet.plugins.plugin_utils.planned_files import write_plan
from ansible_collections.sailloft.fleet.plugins.plugin_utils.recordings_folder import RecordingsFolder

SETTINGS: dict[str, Any] = {
    "scheduler": {"type": "str", "choices": list(SCHEDULERS), "default": "slurm"},
    "cluster": {"type": "str"},
    "version": {"type": "str"},
    "controllers": {"type": "list", "elements": "str", "required": True},
    "partitions": {"type": "list", "elements": "dict", "required": True},
    "accounting": {"type": "dict"},
    "prolog": {"type": "path"},
    "epilog": {"type": "path"},
    "reimage_command": {"type": "list", "elements": "str"},
    "state_directory": {"type": "path"},
    "container_directory": {"type": "str"},
    "options": {"type": "dict"},
    "checkpoint": {"type": "dict"},
}
_OTHERS: dict[str, Any] = {
    "blueprint": {"type": "path"},
    "recordings": {"type": "path"},
    "path": {"type": "path"},
}


class ActionModule(ControllerAction):
    """Plan, and write the plan; no host is reached."""

    OPTIONS: ClassVar[dict[str, Any]] = {**SETTINGS, **_OTHERS}

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        groups, hostvars = variables.get("groups", {}), VariablesOfHosts(variables.get("hostvars", {}))
        settings = {name: arguments[name] for name in SETTINGS if arguments[name] not in (None, "", {}, [])}
        names = sorted({name for hosts in groups.values() for name in hosts})
        planned = plan(
            settings,
            groups,
            RecordingsFolder(arguments["recordings"]),
            read_site(arguments["blueprint"]) if arguments["blueprint"] else None,
            [name for name in names if hostvars.get(name, {}).get("site_spare") is True],
        )
        return {
            "summary": planned.summary,
            "notes": planned.notes,
            "files": planned.files,
            "nodes": {name: node.to_dict() if node else {} for name, node in planned.nodes.items()},
            "spares": planned.spares,
            "restart_key": planned.slurmd,
            **write_plan(arguments["path"], planned.files, self._task.check_mode),
        }
