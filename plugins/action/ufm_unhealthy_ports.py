# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read the unhealthy ports of a UFM, isolate links and restore them, from the controller."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import api, topology, unhealthy_ports
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.ports import PortNames, UfmPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.uplinks import Uplinks
from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.infiniband_action import InfinibandAction

PAUSE_S = 3.0


class ActionModule(InfinibandAction):
    """Read UFM, change it, and wait until it has changed the ports."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        **api.ARGUMENTS,
        "isolate": {"type": "list", "elements": "str", "default": []},
        "restore": {"type": "list", "elements": "str", "default": []},
        "spare_uplinks": {"type": "int", "default": 0},
        "limit_s": {"type": "int", "default": 120},
    }

    def work(self, plan: FabricPlan, readings: SubnetReadings, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        ufm = api.Api(arguments, open_url)
        names = PortNames(plan)
        to_isolate, to_restore = names.ports_of(arguments["isolate"]), names.ports_of(arguments["restore"])
        before = unhealthy_ports.unhealthy(ufm)
        changes = unhealthy_ports.changes(before, to_isolate, to_restore)
        links = unhealthy_ports.carrying(topology.links(ufm) if changes.unhealthy else (), before, changes)
        uplinks = Uplinks(plan.fabric, (map(names.name_of, link) for link in links), arguments["spare_uplinks"])
        uplinks.check_distinct(arguments["isolate"], arguments["restore"])
        uplinks.check([names.name_of(port) for port in changes.unhealthy])
        after = before
        if changes.requests() and not self._task.check_mode:
            for data in changes.requests():
                ufm.ask("PUT", unhealthy_ports.PATH, data)
            after = self._changed(ufm, to_isolate, to_restore, arguments["limit_s"])
        return {
            "changed": bool(changes.requests()),
            "unhealthy": unhealthy_ports.lines(after, names),
            "diff": {
                "before": "".join(f"{names.name_of(port)} is unhealthy\n" for port in changes.healthy),
                "after": "".join(f"{names.name_of(port)} is unhealthy\n" for port in changes.unhealthy),
            },
        }

    def _changed(
        self, ufm: api.Api, to_isolate: list[UfmPort], to_restore: list[UfmPort], limit_s: float
    ) -> list[unhealthy_ports.Unhealthy]:
        """Return the unhealthy ports when UFM has changed them. Raises InfinibandError."""
        end = time.monotonic() + limit_s
        while True:
            present = unhealthy_ports.unhealthy(ufm)
            if not unhealthy_ports.changes(present, to_isolate, to_restore).requests():
                return present
            if time.monotonic() > end:
                cause = f"it has not changed the ports in {limit_s:g} s"
                raise InfinibandError(cause=cause, remedy="see its log, and run again", subject="UFM")
            time.sleep(PAUSE_S)
