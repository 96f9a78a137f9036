# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The log's words on each node: its fault, its repair, and what was tried. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import (
    BEGUN,
    CLOSE,
    DONE,
    FAULT,
    FOUND,
    IDLE,
    LEFT,
    REPAIRED,
    UNKNOWN,
    WATCH,
    WORD,
    RepairLine,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import DRAIN, PERSON, REPAIRS, RETURN


@dataclass
class RepairCase:
    """A node in the log. ``last``: the last line of a step that was begun or ended; None outside of a repair."""

    is_open: bool = False  # from our drain until the node is back
    fault: str = ""  # its fault, which was found and is not gone; "" for none
    found_s: float = 0.0
    recent: str = ""  # its last fault, which may be gone
    recent_s: float = 0.0  # when the node has got that
    word: str = ""  # of a person, as the node has last told it: it holds while the node does not answer
    drained_s: float = 0.0  # when our drain began
    before: str = ""  # the scheduler's reason before our drain
    changed_s: float = 0.0  # when a step or a person has changed the node last, or our drain began
    last: RepairLine | None = None
    shown: RepairLine | None = None
    closed_s: float = 0.0  # when its last repair ended
    left: str = ""  # the fault with which a person returned it to service
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by fault and step
    is_unknown: bool = False  # the outcome of a step is not known, and nobody has proved the node since

    @property
    def tried(self) -> int:
        """The number of steps of all faults that were begun."""
        return sum(self.attempts.values())

    def fold(self, line: RepairLine, is_counted: bool) -> None:
        """Take the node's next line. ``is_counted``: a step of it counts as an attempt."""
        self.shown = line
        if line.step == FAULT:
            self.fault, self.found_s = (line.fault, line.at_s) if line.result == FOUND else ("", 0.0)
            self.left = ""
            if line.result == FOUND:
                self.recent, self.recent_s = line.fault, line.since_s or line.at_s
        elif line.step == WORD:
            self.word = line.reason if line.result == FOUND else ""
        elif line.step == CLOSE or (line.step == RETURN and line.result == DONE):
            self._close()
            self.closed_s = line.at_s
            self.left = line.fault if line.result == LEFT else ""
        elif line.result in IDLE:
            return
        elif line.result == BEGUN and not self.is_open:
            self.is_open, self.drained_s, self.changed_s = True, line.at_s, line.at_s
            self.before, self.last = line.before, line
        else:
            self._step(line, is_counted)

    def _step(self, line: RepairLine, is_counted: bool) -> None:
        self.last = line
        if line.step == DRAIN and line.result == BEGUN:
            self.drained_s, self.before = line.at_s, line.before
        elif line.step in REPAIRS:
            self.changed_s = line.at_s
            self.is_unknown = line.result == UNKNOWN
            if line.result == BEGUN and is_counted:
                self.attempts[line.fault, line.step] += 1
        elif line.step == PERSON and line.result == REPAIRED:
            # A person's repair is a new start.
            self.changed_s, self.is_unknown = line.at_s, False
            self.attempts.clear()

    def _close(self) -> None:
        self.is_open, self.is_unknown, self.last = False, False, None
        self.drained_s, self.changed_s, self.before = 0.0, 0.0, ""


def cases_of(lines: Iterable[RepairLine], since_s: float) -> dict[str, RepairCase]:
    """Return the case of each node. Attempts count from ``since_s`` on."""
    cases: dict[str, RepairCase] = {}
    for line in lines:
        if line.step != WATCH:
            cases.setdefault(line.node, RepairCase()).fold(line, line.at_s >= since_s)
    return cases
