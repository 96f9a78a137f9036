# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Compare the neighbours that devices see with the planned cables, on the controller."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.compare import cabling_proof, compare, report
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import (
    Neighbour,
    read_infiniband,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.netbox import planned_in_netbox
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import planned
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction


class ActionModule(ControllerAction):
    """Compare all devices in one call."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "blueprint": {"type": "path"},
        "netbox": {"type": "dict"},
        "read": {"type": "dict", "required": True},
        "path": {"type": "path"},
    }
    RULES: ClassVar[dict[str, Any]] = {
        "mutually_exclusive": [["blueprint", "netbox"]],
        "required_one_of": [["blueprint", "netbox"]],
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        read = {name: answer for name, answer in arguments["read"].items() if answer and "neighbours" in answer}
        silent = {
            name: (answer or {}).get("msg") or "it did not answer"
            for name, answer in arguments["read"].items()
            if name not in read
        }
        seen = {
            name: {
                port: Neighbour(neighbour["device"], tuple(neighbour["ports"]))
                for port, neighbour in answer["neighbours"].items()
            }
            for name, answer in read.items()
        }
        speeds = {name: answer.get("speeds") or {} for name, answer in read.items()}
        subnets = [answer["infiniband"] for answer in read.values() if answer.get("infiniband")]
        links = read_infiniband("\n".join(subnets)) if subnets else None
        if arguments["netbox"]:
            cables = planned_in_netbox(arguments["netbox"])
        else:
            cables = planned(read_site(arguments["blueprint"]))
        judged = compare(cables, seen, speeds, links)
        files = self._written(cabling_proof(cables, judged), arguments["path"])
        return {
            **judged.counts(),
            "faults": [fault._asdict() for fault in judged.faults],
            "silent": [{"device": device, "cause": cause} for device, cause in silent.items()],
            "report": report(judged, silent),
            **files,
        }

    def _written(self, proof: Proof, path: str | None) -> dict[str, Any]:
        """Write the proof's files; a proof that does not hold is no failure of this task."""
        if not path:
            return {"changed": False, "files": []}
        result = written(proof, page(proof), path, self._task.check_mode)
        return {name: result[name] for name in ("changed", "files")}
