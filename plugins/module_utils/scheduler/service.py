# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide which nodes are in service, from what ``scontrol show node`` prints: a gate for new nodes, and spares. Pure.

A drain is undone only if its reason is one of these two. People's drains, and those of sailloft-health, stay.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError

# Not the prefix of sailloft-health's own drains ("sailloft: "), which it would take for one of its own.
GATE, SPARE = "sailloft-gate: not proved yet", "sailloft-spare: in reserve"
_GATES = "sailloft-gate:"
# Ends a drain and a DOWN. Slurm 22.05 gives the node jobs when it has heard from it again, up to two minutes later.
IN_SERVICE = "RESUME"
_OUT = ("DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING")
# Slurm shows a node so for a moment after each change, too; it is DOWN if that lasts (SlurmdTimeout).
_ABSENT = ("NOT_RESPONDING", "UNKNOWN", "FUTURE", "POWERED_DOWN")


class NodeState(NamedTuple):
    """A node in Slurm: the words of its state, and the reason why it is out of service ("" for none)."""

    name: str
    states: frozenset[str]
    reason: str

    @property
    def is_out(self) -> bool:
        """Return True if the node takes no jobs."""
        return not self.states.isdisjoint(_OUT)

    @property
    def is_absent(self) -> bool:
        """Return True if no slurmd of the node answers."""
        return not self.states.isdisjoint(_ABSENT)


class ServiceChange(NamedTuple):
    """A change of a node: its new state for ``scontrol update``, and the reason ("" for none)."""

    node: str
    state: str
    reason: str

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of ``scontrol update``."""
        return [f"NodeName={self.node}", f"State={self.state}", *([f"Reason={self.reason}"] if self.reason else [])]


def read_nodes(shown: str) -> dict[str, NodeState]:
    """Return the nodes that ``scontrol show node --oneliner`` printed. Raises SchedulerError."""
    nodes = {}
    for line in filter(None, map(str.strip, shown.splitlines())):
        name, state = re.match(r"NodeName=(\S+)", line), re.search(r"\sState=(\S+)", line)
        if not name or not state:
            raise SchedulerError(f"scontrol show node printed {line[:80]!r}", "run it on the controller")
        reason = re.search(r"\sReason=(.*?)(?: \[[^\s@]+@[^\]]*\]|$)", line)
        flags = set(re.split(r"[+*~#!%$@^-]", state[1])) - {""}
        if "*" in state[1]:
            flags.add("NOT_RESPONDING")
        nodes[name[1]] = NodeState(name[1], frozenset(flags), reason[1].strip() if reason else "")
    return nodes


def changes(nodes: dict[str, NodeState], proved: Collection[str], spares: Iterable[str]) -> list[ServiceChange]:
    """Return what to change: proved nodes leave the gate, and as many spares are in service as other nodes are not.

    A spare is in reserve until a node that was in service is not. It returns when that node does; its jobs end first.
    """
    reserve = [nodes[name] for name in spares if name in nodes]
    names = {spare.name for spare in reserve}
    service_changes = []
    free = [spare for spare in reserve if spare.reason == SPARE and not spare.is_absent]
    for node in nodes.values():
        if node.is_out and not node.is_absent and node.reason.startswith(_GATES) and node.name in proved:
            if node.name in names:
                service_changes.append(ServiceChange(node.name, "DRAIN", SPARE))
                free.append(node)
            else:
                service_changes.append(ServiceChange(node.name, IN_SERVICE, ""))
    missing = sum(
        node.is_out and not node.reason.startswith(_GATES) for node in nodes.values() if node.name not in names
    )
    serving = [spare for spare in reserve if not spare.is_out]
    for spare in free[: max(0, missing - len(serving))]:
        service_changes = [change for change in service_changes if change.node != spare.name]
        service_changes.append(ServiceChange(spare.name, IN_SERVICE, ""))
    service_changes += [ServiceChange(spare.name, "DRAIN", SPARE) for spare in serving[missing:]]
    return service_changes
