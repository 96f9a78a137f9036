# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide whether a link may be isolated: its switch keeps the up links that the inventory declares necessary. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, SwitchPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.links import end_of, pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import Planned, PlannedEnd, planned


class Uplinks:
    """The links between switches of a fabric, and which of them were found."""

    def __init__(self, fabric: Fabric, cables: Planned, found: str) -> None:
        seen = {frozenset(pair) for pair in pairs(Planned(infiniband=cables.infiniband), found)}
        self.ports: dict[PlannedEnd, SwitchPort] = {}
        self.lower: dict[PlannedEnd, str] = {}
        self.ends: dict[str, set[frozenset[PlannedEnd]]] = {}
        self.active: dict[str, set[frozenset[PlannedEnd]]] = {}
        for low, up in fabric.uplinks:
            pair = frozenset({end_of(cables, (low.switch, low.number)), end_of(cables, (up.switch, up.number))})
            for port in (low, up):
                end = end_of(cables, (port.switch, port.number))
                self.ports[end], self.lower[end] = port, low.switch
            self.ends.setdefault(low.switch, set()).add(pair)
            if pair in seen:
                self.active.setdefault(low.switch, set()).add(pair)

    def named(self, name: str) -> PlannedEnd:
        """Return the port with a name such as "leaf-1 ib3". Raises InfinibandError if it is of no such link."""
        end = next((end for end in self.ports if str(end) == name), None)
        if end is None:
            raise InfinibandError(
                "it is no port of a planned link between switches",
                "write switch and port as the table has them; drain the node of an HCA",
                subject=name,
            )
        return end

    def refusal(self, end: PlannedEnd, spare: int, without: tuple[PlannedEnd, ...] = ()) -> str:
        """Return why the link of a port may not be isolated, "" if it may.

        ``spare``: how many up links a switch may lack, those that are not active included. ``without``: ports that are
        isolated in the same run.
        """
        if end not in self.lower:
            return f"{end} is no port of a planned link between switches"
        lower = self.lower[end]
        number = len(self.ends[lower])
        left = [pair for pair in self.active.get(lower, ()) if not pair & {end, *without}]
        least = max(1, number - spare)
        if len(left) >= least:
            return ""
        return (
            f"{lower} would have {len(left)} of {number} up links, and needs {least} "
            f"(ib_fabric_spare_uplinks: {spare}); repair another one first"
        )


def changed_ports(
    plan: FabricPlan, found: str, isolate: Sequence[str], restore: Sequence[str], spare: int
) -> list[dict[str, Any]]:
    """Return GUID, number and state of the ports to isolate and to restore. Raises InfinibandError if it may not be."""
    uplinks = Uplinks(plan.fabric, planned(plan.site, plan.fabric.name), found)
    to_isolate = [uplinks.named(name) for name in isolate]
    ports = [(end, "disabled") for end in to_isolate] + [(uplinks.named(name), "enabled") for name in restore]
    for end in to_isolate:
        refusal = uplinks.refusal(end, spare, tuple(to_isolate))
        if refusal:
            raise InfinibandError(f"its link is not isolated: {refusal}", "see ib_health.yml's table", subject=str(end))
    changes = []
    for end, state in ports:
        port = uplinks.ports[end]
        if port.switch not in plan.guids.known:
            raise InfinibandError("the GUID of its switch is not known", "give it in ib_fabric_guids", subject=str(end))
        changes.append({"guid": plan.guids.known[port.switch], "port": port.number, "state": state, "name": str(end)})
    return changes


def isolated_in(cables: Planned, text: str) -> list[PlannedEnd]:
    """Return the ports that the output of ``iblinkinfo -l`` shows as disabled."""
    ends = []
    for line in text.splitlines():
        near = line.partition("==(")
        fields = near[0].split('"')
        if "/Disabled)" in near[2].replace(" ", "") and len(fields) == 3:
            number = fields[2].split("[")[0].split()[-1]
            ends.append(end_of(cables, (fields[1].strip(), int(number))))
    return ends
