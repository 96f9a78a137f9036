# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Prove an InfiniBand fabric from what was read of it, on the controller."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.picture import picture
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.infiniband_action import InfinibandAction


class ActionModule(InfinibandAction):
    """Compare and write."""

    OPTIONS: ClassVar[dict[str, Any]] = {"path": {"type": "path", "required": True}}

    def work(self, plan: FabricPlan, readings: SubnetReadings, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        marks = Marks()
        proof = prove(plan, readings, marks)
        html = page(proof, picture(plan.fabric, marks), "The links between the layers")
        return written(proof, html, arguments["path"], self._task.check_mode)
