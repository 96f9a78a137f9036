# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The words of a run and of persons of repairs: the end of a step, and that a node is repaired. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import RepairCase
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.errors import RepairError
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import (
    BEGUN,
    DONE,
    REPAIRED,
    RepairLine,
    stamp,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import PERSON


def repaired(cases: Mapping[str, RepairCase], names: Iterable[str], now_s: float) -> list[RepairLine]:
    """Return the lines of a person's word that nodes are repaired. Raises RepairError for one that does not wait."""
    lines = []
    for name in names:
        case = cases.get(name)
        if case is None or not case.is_open or case.last is None or case.last.step != PERSON:
            raise RepairError(
                f"{name!r:.80} does not wait for a person",
                "name a node whose last line in the log is: person, done",
                subject="node_repair_repaired",
            )
        if case.last.result != REPAIRED:
            lines.append(RepairLine(stamp(now_s), name, case.last.fault, "", "", PERSON, REPAIRED))
    return lines


def ended(cases: Mapping[str, RepairCase], node: str, step: str, result: str, reason: str, now_s: float) -> RepairLine:
    """Return the line of a step's end. Raises RepairError if it was not begun."""
    case = cases.get(node)
    last = case.last if case else None
    if last is None or (last.step, last.result) != (step, BEGUN):
        raise RepairError(f"the step {step} was not begun", "another run has written to the log", subject=node)
    return replace(
        last, time=stamp(now_s), result=result, reason=reason or (last.reason if result == DONE else ""), before=""
    )
