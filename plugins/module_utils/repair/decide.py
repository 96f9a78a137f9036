# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide what is done next with each node. Pure: the same world gives the same lines.

Each node goes one step at a time: drain, a step of the table, proof, return. All that is decided is a line of the log;
only lines with the result "begun" are carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Complaint
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import severity
from ansible_collections.sailloft.fleet.plugins.module_utils.repair import guards
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import RepairCase
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import (
    BEGUN,
    CLOSE,
    DONE,
    FAULT,
    FOUND,
    GONE,
    HELD,
    IDLE,
    LEFT,
    NOT_HELD,
    REFUSED,
    REPORT,
    REPORTED,
    UNKNOWN,
    WAITS,
    WATCH,
    WORD,
    RepairLine,
    stamp,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import (
    DRAIN,
    EVICT,
    PERSON,
    PROVE,
    REBOOT,
    REIMAGE,
    REPAIRS,
    RESET,
    RESTART_VM,
    RETURN,
    SWAP,
    steps_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.world import (
    RepairNode,
    RepairWorld,
    name_of,
    reading_of,
)


def decide(world: RepairWorld) -> list[RepairLine]:
    """Return the lines to append to the log, those to be carried out among them."""
    run = _Run(world, guards.site_fault(world))
    lines = []
    if world.watched != len(world.nodes):
        lines.append(RepairLine(stamp(world.now_s), step=WATCH, nodes=len(world.nodes)))
    for node in sorted(world.nodes.values(), key=_rank):
        if world.only is None or node.name in world.only:
            lines += run.node(node)
    return [*lines, *_forgotten(world)]


def _forgotten(world: RepairWorld) -> Iterator[RepairLine]:
    """Yield a line for each node in repair that the inventory does not have any more."""
    for name, case in sorted(world.cases.items()):
        if case.is_open and name not in world.nodes and case.shown and case.shown.result != LEFT:
            reason = "the inventory does not have it any more; its drain stays"
            yield RepairLine(stamp(world.now_s), name, case.fault, "", "", DRAIN, LEFT, reason)


def _rank(node: RepairNode) -> tuple[int, str]:
    """Return the key that sorts nodes: the worst first, because the last ones may find nothing left to drain."""
    return -(severity(node.fault.action) if node.fault else 0), node.name


@dataclass
class _Run:
    """One decision on all nodes. ``taken``: the nodes that it drains."""

    world: RepairWorld
    site_fault: str
    taken: list[str] = field(default_factory=list)

    def node(self, node: RepairNode) -> list[RepairLine]:
        """Return a node's lines: whether its fault came or went, and what is done."""
        case = self.world.case(node.name)
        node_lines = _NodeLines(self.world, node, case)
        if node.answer and not case.is_open and node.asked_s < case.closed_s:
            # Another run has returned it since it was asked.
            return []
        fault = node.fault
        if not node.unknown and node.told != case.word:
            node_lines.add(WORD, FOUND if node.told else GONE, node.told)
        if fault and not case.fault and not node_lines.word:
            node_lines.add(FAULT, FOUND)
        elif not fault and case.fault and not node.unproved:
            node_lines.add(FAULT, GONE, fault=case.fault)
        if case.is_open:
            self._open(node, case, node_lines)
        else:
            self._new(node, case, node_lines)
        return node_lines.lines

    def _new(self, node: RepairNode, case: RepairCase, node_lines: _NodeLines) -> None:
        """Begin a repair, or say why not."""
        fault = node.fault
        log_fault = guards.lost_log(self.world, node)
        if log_fault:
            node_lines.add(PERSON, BEGUN, log_fault)
        elif fault is None:
            if node.mild:
                node_lines.report(node.mild)
        elif node_lines.word:
            node_lines.add(DRAIN, LEFT, node_lines.word)
        elif case.left == name_of(fault):
            node_lines.add(DRAIN, LEFT, "a person has returned it to service with this fault")
        else:
            self._drain(node, node_lines)

    def _drain(self, node: RepairNode, node_lines: _NodeLines) -> None:
        """Drain a node, or say why not."""
        world = self.world
        if world.ends_only:
            return
        reason = self.site_fault or guards.not_listed(world, node)
        for guard in guards.OF_A_DRAIN:
            reason = reason or guard(world, node, self.taken)
        node_lines.add(DRAIN, REFUSED if reason else BEGUN, reason)
        if not reason and node.serves:
            self.taken.append(node.name)

    def _open(self, node: RepairNode, case: RepairCase, node_lines: _NodeLines) -> None:
        """Go on with a repair."""
        last = case.last
        if last is None or node_lines.word:
            node_lines.add(last.step if last else DRAIN, LEFT, node_lines.word or "the log has no step of this repair")
        elif last.step == DRAIN and last.result != DONE and not node.drained:
            self._drain_again(node, last, node_lines)
        elif last.step not in REPAIRS and guards.not_listed(self.world, node):
            node_lines.add(last.step, WAITS, guards.not_listed(self.world, node))
        elif _is_back(node, last):
            # Also our own return, of a run that was killed before it could say so.
            is_ours = last.step == RETURN
            node_lines.add(CLOSE, DONE if is_ours else LEFT, "" if is_ours else "somebody returned it to service")
        elif last.step == PERSON and last.result == DONE:
            node_lines.add(PERSON, WAITS, "a person looks at it; end: -e node_repair_repaired=NODE")
        elif last.step == PERSON and last.result in (BEGUN, UNKNOWN):
            node_lines.add(PERSON, BEGUN, last.reason)
        elif last.step in REPAIRS and last.result == BEGUN:
            if not self._is_in_work(last):
                node_lines.add(last.step, UNKNOWN, "the run that began it has not said how it ended", fault=last.fault)
        elif (last.step, last.result) == (PROVE, BEGUN) and self._is_in_work(last):
            node_lines.add(PROVE, WAITS, "another run proves it")
        else:
            self._after(node, case, last, node_lines)

    def _drain_again(self, node: RepairNode, last: RepairLine, node_lines: _NodeLines) -> None:
        """Repeat a drain, which does no harm, of a node that still has a fault."""
        if node.fault:
            self._drain(node, node_lines)
        elif node.unproved or self._is_in_work(last):
            node_lines.add(DRAIN, WAITS, node.unproved or "another run drains it")
        else:
            node_lines.add(CLOSE, DONE, "its fault was gone before it was drained")

    def _is_in_work(self, last: RepairLine) -> bool:
        """Return True if a run may still carry out the step."""
        return self.world.now_s - last.at_s <= self.world.settings.boot_s

    def _after(self, node: RepairNode, case: RepairCase, last: RepairLine, node_lines: _NodeLines) -> None:
        """Go on after a step that has ended, or whose outcome is not known."""
        world = self.world
        if last.step == PROVE and last.result == NOT_HELD:
            self._step(node, case, node_lines, last.reason)
        elif guards.old_round(world, node) and last.step not in (DRAIN, EVICT):
            if world.now_s - case.changed_s > world.settings.boot_s:
                self._step(node, case, node_lines, node.unknown or guards.old_round(world, node))
            else:
                node_lines.add(last.step, WAITS, node.unknown or guards.old_round(world, node))
        elif node.fault:
            self._step(node, case, node_lines, "")
        elif guards.old_round(world, node):
            node_lines.add(PROVE, WAITS, node.unknown or guards.old_round(world, node))
        elif guards.other_fault(node):
            node_lines.add(PROVE, WAITS, guards.other_fault(node))
        elif guards.failed_proof(world, node):
            self._step(node, case, node_lines, guards.failed_proof(world, node))
        elif last.result != HELD and last.step != RETURN:
            node_lines.add(PROVE, BEGUN)
        elif guards.old_proof(world, node):
            node_lines.add(PROVE, WAITS, guards.old_proof(world, node))
        else:
            node_lines.add(RETURN, BEGUN)

    def _step(self, node: RepairNode, case: RepairCase, node_lines: _NodeLines, reason: str) -> None:
        """Begin the next step of the table, wait for jobs, or ask a person."""
        world = self.world
        if world.ends_only:
            return
        if case.is_unknown:
            node_lines.add(PERSON, BEGUN, "the outcome of the last step is not known")
            return
        stop = guards.budget(world, node)
        step = self._next(node, node.fault, case) if node.fault and not stop else ""
        if not step:
            node_lines.add(PERSON, BEGUN, stop or reason or "nothing else is left to try")
            return
        if not node.drained:
            # Its drain has got lost, with the disk or in a run that was killed on the way back.
            self._drain(node, node_lines)
            return
        busy, waited_s = guards.jobs(world, node), guards.waited_s(world, node)
        if self.site_fault:
            node_lines.add(step, REFUSED, self.site_fault)
        elif busy and waited_s > world.settings.wait_s:
            node_lines.add(PERSON, BEGUN, f"{busy} {waited_s / 3600:.1f} h after the drain")
        elif busy:
            node_lines.add(step, WAITS, busy)
        elif world.settings.evicts and guards.runs_jobs(node):
            self._evict(case.last, node_lines)
        else:
            node_lines.add(step, BEGUN, reason)

    @staticmethod
    def _evict(last: RepairLine | None, node_lines: _NodeLines) -> None:
        """Ask the jobs once to leave; a run that was killed may ask again."""
        if last and last.step == EVICT and last.result != BEGUN:
            node_lines.add(PERSON, BEGUN, f"jobs did not leave: {last.reason}" if last.reason else "jobs did not leave")
        else:
            node_lines.add(EVICT, BEGUN)

    def _next(self, node: RepairNode, fault: Complaint, case: RepairCase) -> str:
        """Return the next step for a fault of the node; "" if none is left."""
        for step, attempts_max in steps_of(fault.check, fault.action, fault.layer):
            # A node that boots its image at each start is proved by that.
            chosen = REIMAGE if step == REBOOT and node.boots_image else step
            if case.attempts[name_of(fault), chosen] < attempts_max and CAN[chosen](self.world, node):
                return chosen
        return ""


def _is_back(node: RepairNode, last: RepairLine) -> bool:
    """Return True if the node takes jobs, though nobody has said so: a person's return, or ours of a killed run."""
    if node.service:
        return not node.service.is_out
    # Without a scheduler our drain is the node's own, which a node without a disk forgets at its boot.
    return not node.unknown and not node.drained and last.step not in REPAIRS


# Whether a node can do a step.
CAN: dict[str, Callable[[RepairWorld, RepairNode], bool]] = {
    RESET: lambda _world, node: bool(node.fault and node.fault.place and node.fault.kind in node.resets),
    RESTART_VM: lambda _world, node: node.is_guest,
    REBOOT: lambda _world, _node: True,
    REIMAGE: lambda _world, node: node.boots_image,
    SWAP: lambda world, node: (
        world.can_swap and not node.is_spare and any(map(guards.is_fit_spare, world.nodes.values()))
    ),
}


class _NodeLines:
    """The new lines of a node."""

    def __init__(self, world: RepairWorld, node: RepairNode, case: RepairCase) -> None:
        self.world, self.node, self.case = world, node, case
        self.word = world.word(node)
        self.lines: list[RepairLine] = []

    def add(self, step: str, result: str, reason: str = "", fault: str = "") -> None:
        """Add a line, unless it says that still nothing is done."""
        seen, last = self.node.fault, self.case.last
        line = RepairLine(
            stamp(self.world.now_s),
            self.node.name,
            fault or (name_of(seen) if seen else self.case.fault or (last.fault if last else "")),
            reading_of(seen) if seen else "",
            f"{seen.check}: {seen.action}" if seen else "",
            step,
            result,
            reason,
            self.node.service.reason if step == DRAIN and result == BEGUN and self.node.service else "",
            since_s=seen.since_unix_s if step == FAULT and result == FOUND and seen else 0.0,
        )
        self._append(line)

    def report(self, mild: Complaint) -> None:
        """Add what is only reported."""
        rule = f"{mild.check}: {mild.action}"
        line = RepairLine(
            stamp(self.world.now_s), self.node.name, name_of(mild), reading_of(mild), rule, REPORT, REPORTED
        )
        self._append(line)

    def _append(self, line: RepairLine) -> None:
        shown = self.case.shown
        is_same = shown is not None and replace(shown, time="", reading="") == replace(line, time="", reading="")
        if not (is_same and line.result in IDLE):
            self.lines.append(line)
