# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switches' ports that are to be isolated and restored with infiniband-diags, and those that are. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.links import end_of, pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.uplinks import Uplinks
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import Planned, PlannedEnd, planned


def found_uplinks(plan: FabricPlan, discovered: str, spare: int) -> Uplinks:
    """Return the up links, of which those that were found carry traffic."""
    cables = Planned(infiniband=planned(plan.site, plan.fabric.name).infiniband)
    return Uplinks(plan.fabric, (map(str, pair) for pair in pairs(cables, discovered)), spare)


def changed_ports(
    plan: FabricPlan, discovered: str, isolate: Sequence[str], restore: Sequence[str], spare: int
) -> list[dict[str, Any]]:
    """Return GUID, number and state of the ports to isolate and to restore. Raises InfinibandError if it may not be."""
    uplinks = found_uplinks(plan, discovered, spare)
    isolate, restore = list(dict.fromkeys(isolate)), list(dict.fromkeys(restore))
    uplinks.check_distinct(isolate, restore)
    uplinks.check(isolate)
    changes = []
    for name, state in [*((name, "disabled") for name in isolate), *((name, "enabled") for name in restore)]:
        port = uplinks.port(name)
        if port.switch not in plan.guids.known:
            raise InfinibandError("the GUID of its switch is not known", "give it in ib_fabric_guids", subject=name)
        changes.append({"guid": plan.guids.known[port.switch], "port": port.number, "state": state, "name": name})
    return changes


def isolated_in(cables: Planned, text: str) -> list[PlannedEnd]:
    """Return the ports that the output of ``iblinkinfo -l`` shows as disabled."""
    ends = []
    for line in text.splitlines():
        partition = line.partition("==(")
        fields = partition[0].split('"')
        if "/Disabled)" in partition[2].replace(" ", "") and len(fields) == 3:
            number = fields[2].split("[")[0].split()[-1]
            ends.append(end_of(cables, (fields[1].strip(), int(number))))
    return ends
