# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The reasons for which nothing is done. Each guard is one function that returns its reason, or "". Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import DONE, RepairLine, stamp
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import PERSON
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.world import RepairNode, RepairWorld, name_of

# Clocks of nodes and controllers that are not slewed to the same time within so many seconds are wrong.
CLOCK_S = 300.0


def site_fault(world: RepairWorld) -> str:
    """Return the fault that too many nodes, or too many of one rack, feed or switch, have got at once.

    Power, a switch or an image is the cause then, and what a repair does to the nodes makes it worse. Nodes that wait
    for a person are not counted.
    """
    groups: dict[str, dict[str, float]] = {}
    for node in world.nodes.values():
        check, since_s = _fault(world, node)
        if check:
            domains = (f"faults in {kind} {name}" for kind, names in node.domains.items() for name in names)
            for key in (f"the fault {check}", *domains):
                groups.setdefault(key, {})[node.name] = since_s
    for key, times in sorted(groups.items()):
        at_once = _together(times, world.settings.together_s)
        if len(at_once) >= world.settings.together:
            return f"{len(at_once)} nodes have {key} at once, which is one fault of the site: {fold(at_once)}"
    return ""


def _fault(world: RepairWorld, node: RepairNode) -> tuple[str, float]:
    """Return the check of a node's fault, and since when; of a node that was not asked, by the log."""
    case = world.case(node.name)
    if world.word(node) or (case.last and case.last.step == PERSON and case.last.result == DONE):
        return "", 0.0
    if node.answer is None:
        return case.fault.partition("@")[0], case.found_s
    fault = node.fault
    if fault:
        return fault.check, fault.since_unix_s or case.found_s or world.now_s
    # One that a repair has ended already: the site's cause goes on with the next nodes.
    is_recent = case.recent_s > world.now_s - world.settings.together_s
    return (case.recent.partition("@")[0], case.recent_s) if is_recent else ("", 0.0)


def _together(times: dict[str, float], within_s: float) -> list[str]:
    """Return the most names whose times are within so many seconds."""
    starts = sorted(times.values())
    windows: list[list[str]] = [
        [name for name, at_s in times.items() if start <= at_s <= start + within_s] for start in starts
    ]
    longest: list[str] = max(windows, key=len)
    return sorted(longest)


def wrong_clock(world: RepairWorld, lines: Sequence[RepairLine]) -> str:
    """Return why the controller's clock is not to be trusted: budgets, windows and the time of jobs depend on it."""
    latest_s = max((line.at_s for line in lines), default=0.0)
    if latest_s > world.now_s + CLOCK_S:
        return f"the log has a line of {stamp(latest_s)}, which is in the future"
    clocks = [
        (node.answer.now_unix_s, node.asked_s)
        for node in world.nodes.values()
        if node.answer and node.answer.now_unix_s
    ]
    early = sum(at_s < asked_s - CLOCK_S for at_s, asked_s in clocks)
    late = sum(at_s > world.now_s + CLOCK_S for at_s, _asked_s in clocks)
    if max(early, late) * 2 > len(clocks):
        return f"the clocks of {max(early, late)} of {len(clocks)} nodes are more than {CLOCK_S:.0f} s from it"
    return ""


def not_listed(world: RepairWorld, node: RepairNode) -> str:
    """Return why it is not known whether the node, and which of the others, take jobs."""
    if world.settings.has_scheduler and node.service is None:
        return "the scheduler does not list it: its jobs and its drain are not known"
    return ""


def _gone(world: RepairWorld, node: RepairNode, drained: Iterable[str]) -> set[str]:
    """Return the nodes that do not serve if this one is drained.

    A node in repair is one of them, whatever the scheduler has listed: another run may have drained it since.
    """
    return {node.name, *drained, *(name for name, case in world.cases.items() if case.is_open)}


def left(world: RepairWorld, node: RepairNode, drained: Iterable[str]) -> str:
    """Return why too few nodes would serve without this one: spares in reserve count, nodes not known do not."""
    if not node.serves:
        return ""
    out_of_service = _gone(world, node, drained)
    regular = [peer for peer in world.nodes.values() if not peer.is_spare]
    serving = sum(peer.serves for peer in regular if peer.name not in out_of_service)
    reserve = [spare for spare in world.nodes.values() if spare.is_spare and spare.name not in out_of_service]
    spares = sum(is_fit_spare(spare) or (spare.service is not None and spare.serves) for spare in reserve)
    needed = len(regular) - len(regular) * world.settings.most_out // 100
    if serving + spares >= needed:
        return ""
    return f"{serving} nodes and {spares} spares would be left of {len(regular)}, fewer than {needed}"


def is_fit_spare(node: RepairNode) -> bool:
    """Return True if a spare is in reserve and healthy."""
    is_reserve = node.service.is_reserve if node.service else node.serves
    return node.is_spare and is_reserve and not node.unproved


def domain(world: RepairWorld, node: RepairNode, drained: Iterable[str]) -> str:
    """Return the rack, feed or switch that would have fewer nodes than declared."""
    if not node.serves:
        return ""
    out_of_service = _gone(world, node, drained)
    for kind, most_out in world.settings.domain_most_out.items():
        for name in node.domains.get(kind, ()):
            members = [member for member in world.nodes.values() if name in member.domains.get(kind, ())]
            serving = sum(member.serves for member in members if member.name not in out_of_service)
            needed = len(members) - len(members) * most_out // 100
            if serving < needed:
                return f"{kind} {name} would have {serving} of {len(members)} nodes, fewer than {needed}"
    return ""


def lost_log(world: RepairWorld, node: RepairNode) -> str:
    """Return why a drain of ours is not in the log: what was tried is not known."""
    is_lost = node.drained and not world.case(node.name).is_open
    return "it has the drain of a repair that the log does not have: what was tried is not known" if is_lost else ""


def budget(world: RepairWorld, node: RepairNode) -> str:
    """Return why nothing more is tried on a node: too many steps for whatever faults."""
    tried = world.case(node.name).tried
    days = world.settings.window_s / 86400
    return f"{tried} steps were tried in {days:g} days" if tried >= world.settings.most_steps else ""


def jobs(world: RepairWorld, node: RepairNode) -> str:
    """Return why a step would interrupt jobs; "" if none run, or the inventory allows it and they had their time."""
    is_busy = node.service.is_busy if node.service else None
    if is_busy is False:
        return ""
    is_late = waited_s(world, node) > world.settings.wait_s
    if is_late and world.settings.kill_jobs:
        return ""
    return "jobs run there" if is_busy else "nobody says whether jobs run there"


def runs_jobs(node: RepairNode) -> bool:
    """Return True if the scheduler says that jobs run on the node."""
    return bool(node.service and node.service.is_busy)


def waited_s(world: RepairWorld, node: RepairNode) -> float:
    """Return how long the node has been drained, in seconds."""
    return world.now_s - world.case(node.name).drained_s


def old_round(world: RepairWorld, node: RepairNode) -> str:
    """Return why the reading is of before the last step. A line has whole seconds, so its own second is before."""
    is_new = node.round_s >= world.case(node.name).changed_s + 1
    return "" if is_new else "no round of its health check has ended since"


def old_proof(world: RepairWorld, node: RepairNode) -> str:
    """Return the proof of the node that is of before the last step, so that nothing holds yet."""
    changed_s = world.case(node.name).changed_s
    old = sorted(proof.name for proof in node.proofs if proof.at_s <= changed_s)
    return f"{old[0]} is of before the repair: run its playbook" if old else ""


def failed_proof(world: RepairWorld, node: RepairNode) -> str:
    """Return the proof made since the last step that does not hold."""
    changed_s = world.case(node.name).changed_s
    failed = sorted(proof.name for proof in node.proofs if proof.at_s > changed_s and not proof.holds)
    return f"{failed[0]} does not hold" if failed else ""


def other_fault(node: RepairNode) -> str:
    """Return the fault with which the node must not return."""
    return f"{name_of(node.fault)} is not gone" if node.fault else node.unproved


# Guards of a drain, which know the nodes that are drained in the same run.
OF_A_DRAIN: tuple[Callable[[RepairWorld, RepairNode, Iterable[str]], str], ...] = (left, domain)
