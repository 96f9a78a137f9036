# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fleet that is made up, and runs of a repair on it that can be killed between any two of their effects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Answer, Complaint
from ansible_collections.sailloft.fleet.plugins.module_utils.repair import log, table
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import cases_of
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.decide import decide
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import BEGUN, WATCH, RepairLine
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.schedulers import OURS, NodeService
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.words import ended, repaired
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.world import (
    RepairNode,
    RepairSettings,
    RepairWorld,
)

START_S = 1_790_000_000.0
HOUR_S = 3600.0
IN_SERVICE = NodeService(False, "", False)
SPARE = NodeService(True, "sailloft-spare: in reserve", False)


class KilledError(Exception):
    """The run was killed here."""


def complaint(action: str = "reset_gpu", check: str = "gpu_row_remap_pending", **changes: Any) -> Complaint:
    """Return a fault of a GPU, of long ago."""
    fault = Complaint(
        check, "gpu", "0000:4b:00.0", "row remap pending", "hardware", action, "gpu-row-remap", seen="yes"
    )
    return replace(fault, **{"since_unix_s": START_S - 90000.0, **changes})


@dataclass
class Machine:
    """A node: what is wrong, which step cures it, and how its scheduler sees it."""

    fault: Complaint | None = None
    cure: str = ""
    service: NodeService | None = IN_SERVICE
    after: Complaint | None = None  # what the cure leaves
    drain: str = ""
    maintenance: str = ""
    error: str = ""
    age_s: float = 1.0
    is_asked: bool = True
    facts: dict[str, Any] = field(default_factory=dict)

    def node(self, name: str, now_s: float) -> RepairNode:
        """Return what a run sees of it."""
        answer = Answer(name, self.age_s, 60.0, self.error)
        if not self.error:
            faults = (self.fault,) if self.fault else ()
            answer = replace(answer, faults=faults, drain=self.drain, maintenance=self.maintenance)
        return RepairNode(name, answer if self.is_asked else None, now_s, self.service, **self.facts)


class RepairedFleet:
    """Machines, the log, and the time. ``steps``: what was really done, in order."""

    def __init__(self, machines: dict[str, Machine], healthy: int = 20, **settings: Any) -> None:
        others = {f"other{number:02}": Machine() for number in range(healthy)}
        self.machines = {**machines, **others}
        self.settings = RepairSettings(**settings)
        self.text = b""
        self.now_s = START_S
        self.steps: list[tuple[str, str]] = []
        self.events = 0

    @property
    def lines(self) -> list[RepairLine]:
        """The lines of the log."""
        return log.parse(self.text, "log")

    def last(self, node: str) -> tuple[str, str, str]:
        """Return step, result and reason of a node's last line."""
        line = [line for line in self.lines if line.node == node][-1]
        return line.step, line.result, line.reason

    def say(self, *nodes: str) -> None:
        """Say that nodes are repaired."""
        self.text += log.dump(repaired(cases_of(self.lines, 0), nodes, self.now_s)).encode()

    def world(self, **changes: Any) -> RepairWorld:
        """Return what a decision knows now."""
        watched = next((line.nodes for line in reversed(self.lines) if line.step == WATCH), 0)
        world = RepairWorld(
            {name: machine.node(name, self.now_s) for name, machine in self.machines.items()},
            cases_of(self.lines, self.now_s - self.settings.window_s),
            self.settings,
            self.now_s,
            watched=watched,
        )
        return replace(world, **changes)

    def run(self, kill_at: int = -1, **changes: Any) -> None:
        """Make a run of four passes, the last two of which only prove and return. Raises KilledError."""
        self.events = 0
        for number in range(4):
            made = decide(self.world(ends_only=number > 1, **changes))
            self.text += log.dump(made).encode()
            self._event(kill_at)
            for line in made:
                if line.result == BEGUN:
                    self._carry_out(line, kill_at)
            self.now_s += 90.0

    def _event(self, kill_at: int) -> None:
        if self.events == kill_at:
            raise KilledError
        self.events += 1

    def _carry_out(self, line: RepairLine, kill_at: int) -> None:
        machine = self.machines[line.node]
        self.now_s += 1
        self.steps.append((line.node, line.step))
        if machine.service is None and line.step in (table.DRAIN, table.RETURN):
            machine.drain = OURS if line.step == table.DRAIN else ""
        elif line.step == table.DRAIN and machine.service:
            machine.service = replace(machine.service, is_out=True, reason=f"{OURS}{line.reading}")
        elif line.step == table.RETURN:
            before = [each.before for each in self.lines if each.node == line.node and each.step == table.DRAIN]
            is_spare = any(each.startswith("sailloft-spare") for each in before)
            machine.service = SPARE if is_spare else IN_SERVICE
        elif line.step == machine.cure:
            machine.fault, machine.error = machine.after, ""
        self._event(kill_at)
        self.now_s += 1
        result = log.HELD if line.step == table.PROVE else log.DONE
        done = ended(cases_of(self.lines, 0), line.node, line.step, result, "", self.now_s)
        self.text += log.dump([done]).encode()
        self._event(kill_at)
