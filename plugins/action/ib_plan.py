# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Plan an InfiniBand fabric from the blueprint, on the controller."""

from __future__ import annotations

import fnmatch
import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.manager_files import TOPOCONFIG
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.picture import picture
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import of_hosts
from ansible_collections.sailloft.fleet.plugins.plugin_utils.infiniband_arguments import ARGUMENTS, planned_fabric
from ansible_collections.sailloft.fleet.plugins.plugin_utils.planned_files import write_changed

PICTURE = "fabric.svg"


def _stale(folder: str, texts: dict[str, str]) -> list[str]:
    """Return the files of an earlier plan that this one does not have: of other managers, or with other links."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [
        os.path.join(folder, name)
        for name in names
        if name not in texts and (name == TOPOCONFIG or fnmatch.fnmatchcase(name, "opensm*.conf"))
    ]


class ActionModule(ActionBase):
    """Plan and write; no host is reached."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec({**ARGUMENTS, "path": {"type": "path"}})
        try:
            planned = planned_fabric(arguments, task_vars)
            texts = {**planned.files, PICTURE: picture(planned.fabric)}
            changes = write_changed(arguments["path"], texts, self._task.check_mode) if arguments["path"] else []
        except SailloftError as error:
            raise AnsibleActionFail(str(error)) from error
        return {
            **result,
            "summary": planned.summary,
            "unknown": planned.guids.unknown(planned.fabric),
            "conflicts": planned.guids.conflicts,
            "files": planned.files,
            "hosts": of_hosts(planned),
            "written": [change["after_header"] for change in changes],
            "stale": _stale(arguments["path"], planned.files) if arguments["path"] else [],
            "diff": changes,
            "changed": bool(changes),
        }
