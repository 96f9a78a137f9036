# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Bring the partitions of a UFM to the planned members, from the controller."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import api, partitions
from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.infiniband_action import InfinibandAction


class ActionModule(InfinibandAction):
    """Plan, read UFM and change it."""

    OPTIONS: ClassVar[dict[str, Any]] = api.ARGUMENTS

    def work(self, plan: FabricPlan, readings: SubnetReadings, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        ufm = api.Api(arguments, open_url)
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
