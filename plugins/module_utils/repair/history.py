# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The history of repairs, and the time between failures that the log has counted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import FAULT, FOUND, IDLE, WATCH, RepairLine

SHOWN = 10
DAY_S, HOUR_S = 86400.0, 3600.0


@dataclass(frozen=True)
class FailureCount:
    """The faults that took a node out of service unplanned, and the nodes times days in which they were counted."""

    failures: int
    node_days: float

    @property
    def text(self) -> str:
        """The count in one sentence."""
        if not self.failures:
            return f"no failure in {self.node_days:.1f} node-days"
        hours = self.node_days * DAY_S / HOUR_S / self.failures
        return f"{self.failures} failures in {self.node_days:.1f} node-days: one in {hours:.0f} h of a node"


def counted(lines: Sequence[RepairLine], now_s: float) -> FailureCount:
    """Return the count of a log. Between two runs the nodes' own checks go on, and keep their faults."""
    node_s, since_s, nodes = 0.0, 0.0, 0
    for line in lines:
        if line.step == WATCH:
            node_s += nodes * max(0.0, line.at_s - since_s)
            since_s, nodes = line.at_s, line.nodes
    node_s += nodes * max(0.0, now_s - since_s)
    failures = sum(line.step == FAULT and line.result == FOUND for line in lines)
    return FailureCount(failures, round(node_s / DAY_S, 3))


def history(lines: Sequence[RepairLine], now_s: float) -> list[str]:
    """Return the last lines of a log in words, and its count; none of a log without lines."""
    if not lines:
        return []
    shown = [line for line in lines if line.step != WATCH and line.result not in IDLE][-SHOWN:]
    return ["repairs:", *(f"    {in_words(line)}" for line in shown), f"    {counted(lines, now_s).text}"]


def in_words(line: RepairLine) -> str:
    """Return a line in words: "2026-11-28T22:33:49Z gpu-017: reboot: done: xid_79@gpu:0000:4b:00.0"."""
    return f"{line.time} {': '.join(filter(None, (line.node, line.step, line.result, line.fault, line.reason)))}"
