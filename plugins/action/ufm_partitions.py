# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Bring the partitions of a UFM to the planned members, from the controller."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import partitions
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.api import Api
from ansible_collections.sailloft.fleet.plugins.plugin_utils.ufm_action import UfmAction


class ActionModule(UfmAction):
    """Plan, read UFM and change it."""

    def work(self, plan: FabricPlan, ufm: Api, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        planned = partitions.planned_partitions(plan)
        present = partitions.present_partitions(ufm)
        steps = partitions.steps(planned, present)
        for step in [] if self._task.check_mode else steps:
            ufm.ask(step.method, step.path, step.data)
        before, after = partitions.shown(present, planned), partitions.shown(planned, planned)
        return {
            "changed": bool(steps),
            "steps": [step.title for step in steps],
            "left": partitions.not_changed(planned, present),
            "unknown": plan.guids.unknown(plan.fabric),
            "diff": {"before": before, "after": after, "before_header": "UFM", "after_header": "plan"},
        }
