# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Judge the links of an InfiniBand fabric from two readings of its counters, on the controller."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import (
    from_stored,
    read_counters,
    stored,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.isolation import changed_ports
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.metrics import link_metrics
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.table import health_proof, table
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import publish
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.infiniband_action import InfinibandAction


class ActionModule(InfinibandAction):
    """Judge, and keep the reading for the next time."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "spare_uplinks": {"type": "int", "default": 0},
        "isolate": {"type": "list", "elements": "str", "default": []},
        "restore": {"type": "list", "elements": "str", "default": []},
        "path": {"type": "path", "required": True},
        "metrics_path": {"type": "path"},
    }

    def work(self, plan: FabricPlan, readings: SubnetReadings, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        discovered, spare = readings.found, arguments["spare_uplinks"]
        later = read_counters(readings.counters, readings.read_at_s)
        path = os.path.join(arguments["path"], f"infiniband-{plan.fabric.name}-counters.json")
        text = files.read(path)
        earlier = None if text is None else from_stored(text, path)
        links = table(plan, discovered, earlier, later, readings.disabled, spare)
        ports = changed_ports(plan, discovered, arguments["isolate"], arguments["restore"], spare)
        changed = text != stored(later)
        check_mode = self._task.check_mode
        if changed and not check_mode:
            files.write(path, stored(later))
        proof = health_proof(plan.fabric.name, links)
        changed |= written(proof, page(proof), arguments["path"], check_mode)["changed"]
        if arguments["metrics_path"]:
            metrics = link_metrics(plan.fabric.name, links, later)
            reading = f"ib_health_{plan.fabric.name}"
            changed |= publish(arguments["metrics_path"], reading, metrics, later.read_at_s, check_mode)[1]
        return {
            "changed": changed,
            "holds": links.holds,
            "summary": links.summary,
            "lines": links.lines,
            "faults": links.faults,
            "ports": ports,
        }
