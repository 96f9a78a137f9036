# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Plan an InfiniBand fabric from the blueprint, on the controller."""

from __future__ import annotations

import fnmatch
import os
from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.manager_files import TOPOCONFIG
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.picture import picture
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan, of_hosts
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings
from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.infiniband_action import InfinibandAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.planned_files import write_plan

PICTURE = "fabric.svg"


def _stale(folder: str, texts: dict[str, str]) -> list[str]:
    """Return the files of an earlier plan that this one does not have: of other managers, or with other links."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [
        os.path.join(folder, name)
        for name in names
        if name not in texts and (name == TOPOCONFIG or fnmatch.fnmatchcase(name, "opensm*.conf"))
    ]


class ActionModule(InfinibandAction):
    """Write the plan."""

    OPTIONS: ClassVar[dict[str, Any]] = {"path": {"type": "path"}}

    def work(self, plan: FabricPlan, readings: SubnetReadings, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        texts = {**plan.files, PICTURE: picture(plan.fabric)}
        return {
            "summary": plan.summary,
            "unknown": plan.guids.unknown(plan.fabric),
            "conflicts": plan.guids.conflicts,
            "files": plan.files,
            "hosts": of_hosts(plan),
            "stale": _stale(arguments["path"], plan.files) if arguments["path"] else [],
            **write_plan(arguments["path"], texts, self._task.check_mode),
        }
