# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Write on the controller how a step of a repair has ended, and for a person all that is known of the node."""

from __future__ import annotations

import json
import os
import time
from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.bundle import bundle_of
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import cases_of
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import DONE, FAILED, HELD, NOT_HELD
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log_file import opened
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import PROVE
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.words import ended
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction


class ActionModule(ControllerAction):
    """Append to the log; no host is reached."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "path": {"type": "path", "required": True},
        "node": {"type": "str", "required": True},
        "step": {"type": "str", "required": True},
        "failed": {"type": "bool", "required": True},
        "reason": {"type": "str", "default": ""},
        "readings": {"type": "dict", "default": {}},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        return {"changed": True, **_end(arguments, time.time(), not self._task.check_mode)}


def _end(arguments: dict[str, Any], now_s: float, write: bool) -> dict[str, Any]:
    node, step = arguments["node"], arguments["step"]
    outcome = (NOT_HELD if step == PROVE else FAILED) if arguments["failed"] else (HELD if step == PROVE else DONE)
    with opened(arguments["path"], write) as log:
        line = ended(cases_of(log.lines, 0.0), node, step, outcome, arguments["reason"], now_s)
        written = []
        if arguments["readings"]:
            # It is there before the log says so: a run that is killed between both writes it again.
            path = os.path.join(arguments["path"], f"{node}.json")
            if write:
                files.write(path, json.dumps(bundle_of(log.lines, line, arguments["readings"]), indent=2) + "\n")
            written = [path]
        log.append([line])
    return {"files": written}
