# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Compare the links of a UFM with the planned ones, from the controller."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import api, topology
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.ports import PortNames
from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.infiniband_action import InfinibandAction


class ActionModule(InfinibandAction):
    """Read UFM's links; only its own report makes something there."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        **api.ARGUMENTS,
        "master": {"type": "bool", "default": False},
        "limit_s": {"type": "int", "default": 600},
    }

    def work(self, plan: FabricPlan, readings: SubnetReadings, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        ufm = api.Api(arguments, open_url)
        names = PortNames(plan)
        compared = topology.compare(plan, names, topology.links(ufm))
        result = {
            "changed": False,
            "faults": compared.faults,
            "counts": {"right": compared.right, "missing": compared.missing, "unknown": compared.unknown},
        }
        if arguments["master"] and not self._task.check_mode:
            result["from_master"] = topology.differences_from_master(ufm, names, arguments["limit_s"])
        return result
