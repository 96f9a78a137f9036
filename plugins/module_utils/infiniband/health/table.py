# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The health of a fabric as a table in the form of that of the nodes: worst first, each fault with its runbook. Pure.

A link of which a port did not answer, and all links at the first reading, count as not known, never as healthy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import RUNBOOKS
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import severity
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import Counters
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.isolation import (
    found_uplinks,
    isolated_in,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.links import (
    CABLE,
    JudgedLinks,
    LinkFault,
    judge,
    pairs,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import cable_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.uplinks import Uplinks
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.links import FaultyLink, link_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import Planned, PlannedEnd, planned

SHOWN_MARKS = 6


@dataclass
class LinkTable:
    """The table's lines, the faults in plain data, and how many links are healthy, faulty and not known.

    ``links``: all, by their ends; ``unread``: those that are not known.
    """

    lines: list[str] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    healthy: int = 0
    faulty: int = 0
    unknown: int = 0

    @property
    def holds(self) -> bool:
        """True if every link is known and has no fault."""
        return not (self.faulty or self.unknown or self.faults)

    @property
    def summary(self) -> str:
        """The table in one sentence."""
        total = self.healthy + self.faulty + self.unknown
        parts = [f"{n} {state}" for n, state in ((self.faulty, "with faults"), (self.unknown, "not known")) if n]
        return f"{self.healthy} of {total} links healthy{''.join(f', {part}' for part in parts)}"


def table(
    plan: FabricPlan, topology: str, earlier: Counters | None, later: Counters, disabled: str = "", spare: int = 0
) -> LinkTable:
    """Return the table of a fabric's links.

    ``topology``: ``ibnetdiscover -p``; ``disabled``: ``iblinkinfo -l``; ``spare``: how many up links a switch may lack.
    """
    cables = fabric_cables(plan)
    links = pairs(cables, topology)
    uplinks = found_uplinks(plan, topology, spare)
    hosts = {hca.host for hca in plan.fabric.hcas}
    result = LinkTable()
    blocks: list[tuple[tuple[int, int], list[str]]] = []
    judged = JudgedLinks([], links, [])
    if earlier and later.read_at_s > earlier.read_at_s:
        judged = judge(cables, topology, earlier, later, hosts)
    else:
        blocks.append(((0, 0), ["all links: counters are read for the first time; run again to see their increase"]))
    sick = {pair for fault in judged.faults for pair in fault.links}
    for fault in judged.faults:
        rank = (-severity(fault.rule.action), -len(fault.links))
        blocks.append((rank, list(_link_lines(fault, uplinks, hosts))))
        result.faults.append(_data(fault))
    isolated = isolated_in(cables, disabled)
    for name, kind, reason in _cable_faults(plan, topology, isolated):
        rule = RULES["port_rate" if kind == "speed" else "port_down"]
        lines = [f"cable: {kind}: {reason}", f"    person: {RUNBOOKS}#{rule.runbook}"]
        blocks.append(((-severity("person"), -1), lines))
        result.faults.append({"links": [name], "part": CABLE, "cause": reason, "checks": [rule.check]})
    blocks += [
        (
            (-severity("note"), 0),
            [f"1 link: isolated by a person: {end}: -e ib_fabric_restore='{end}' when it is repaired"],
        )
        for end in isolated
    ]
    unknown = [pair for pair in judged.unread if pair not in sick]
    if earlier and unknown:
        blocks.append(((0, 1), [f"{_links(len(unknown))}: a port did not answer: {fold(map(str, unknown))}"]))
    if judged.ended:
        ended = fold(map(str, judged.ended))
        blocks.append(((0, 2), [f"counters at their end, which show no increase until ibqueryerrors -k: {ended}"]))
    result.lines = [line for _rank, lines in sorted(blocks, key=lambda block: block[0]) for line in lines]
    result.links, result.unread = [str(pair) for pair in links], [str(pair) for pair in unknown]
    result.faulty, result.unknown = len(sick), len(unknown)
    result.healthy = len(links) - result.faulty - result.unknown
    return result


def health_proof(fabric: str, links: LinkTable) -> Proof:
    """Return the table as a proof."""
    faults = [
        FaultyLink(link, ", ".join(fault["checks"]), f"{fault['part']}: {fault['cause']}")
        for fault in links.faults
        for link in fault["links"]
    ]
    claims = link_claims(links.links, faults, links.unread, "ib_fabric_info")
    return Proof(f"infiniband-{fabric}-health", f"Health of the InfiniBand fabric {fabric}", fabric, claims)


def fabric_cables(plan: FabricPlan) -> Planned:
    """Return the planned InfiniBand cables of a fabric."""
    cables = planned(plan.site, plan.fabric.name)
    cables.links = [link for link in cables.links if link.infiniband]
    return cables


def _cable_faults(plan: FabricPlan, topology: str, isolated: list[PlannedEnd]) -> Iterable[tuple[str, str, str]]:
    """Yield (cable, kind, cause) of what is not as planned, without the links that a person has isolated."""
    for claim in cable_claims(plan, topology, Marks()):
        if claim.holds is False and not any(str(end) in claim.claim.split(":")[0].split(" - ") for end in isolated):
            yield claim.claim.rpartition(":")[0], str(claim.seen), claim.reason


def _link_lines(fault: LinkFault, uplinks: Uplinks, hosts: set[str]) -> Iterable[str]:
    """Yield the line of a fault, its action, its counters, and whether its link may be isolated."""
    name = str(fault.links[0]) if len(fault.links) == 1 else fold(map(str, fault.links))
    yield f"{_links(len(fault.links))}: {fault.rule.title}: {fault.cause}: {name}"
    of_hosts = any(end.device in hosts for pair in fault.links for end in pair)
    # A link between switches has no node to drain.
    action = fault.rule.action if of_hosts or fault.rule.action != "drain" else "person"
    yield f"    {action}: {RUNBOOKS}#{fault.rule.runbook}"
    yield from (f"    {mark}" for mark in fault.marks[:SHOWN_MARKS])
    if len(fault.marks) > SHOWN_MARKS:
        yield f"    and {len(fault.marks) - SHOWN_MARKS} more counters"
    if len(fault.links) == 1 and not of_hosts:
        end = min(fault.links[0])
        refusal = uplinks.refusal(str(end))
        yield f"    not to be isolated: {refusal}" if refusal else f"    isolate it: -e ib_fabric_isolate='{end}'"


def _data(fault: LinkFault) -> dict[str, Any]:
    return {
        "links": [str(pair) for pair in fault.links],
        "part": fault.part,
        "cause": fault.cause,
        "checks": sorted({mark.rule.check for mark in fault.marks}),
    }


def _links(count: int) -> str:
    return "1 link" if count == 1 else f"{count} links"
