# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The log of repairs: one JSON line a decision, which is only appended to. Pure.

It is the only memory of a repair. "begun" is written before a step and its result after it, so that a run that is
killed anywhere leaves what the next one needs: a step without a result is one whose outcome is not known.
"""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import clean
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.errors import RepairError
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import (
    DRAIN,
    EVICT,
    PERSON,
    PROVE,
    REPAIRS,
    RETURN,
)

FORMAT = "sailloft-repair-log/1"
TIME = "%Y-%m-%dT%H:%M:%SZ"
# Steps of the log besides those of the table: a fault or a person's word on the node comes or goes, the number of
# nodes, a repair that ends otherwise.
FAULT, WORD, WATCH, REPORT, CLOSE = "fault", "word", "watch", "report", "close"
# Results.
FOUND, GONE = "found", "gone"
BEGUN, DONE, FAILED, UNKNOWN = "begun", "done", "failed", "unknown"
HELD, NOT_HELD, REPAIRED = "held", "not held", "repaired by a person"
REFUSED, WAITS, LEFT, REPORTED = "refused", "waits", "left to a person", "reported"
STEPS = ("", FAULT, WORD, WATCH, REPORT, CLOSE, *REPAIRS, DRAIN, EVICT, PROVE, RETURN, PERSON)
RESULTS = ("", FOUND, GONE, BEGUN, DONE, FAILED, UNKNOWN, HELD, NOT_HELD, REPAIRED, REFUSED, WAITS, LEFT, REPORTED)
# Decisions that change nothing; one is written again only if it differs from the node's last line.
IDLE = (REFUSED, WAITS, LEFT, REPORTED)


@dataclass(frozen=True)
class RepairLine:
    """A line: when, node, fault, reading, rule, step, result, and why."""

    time: str  # UTC, TIME
    node: str = ""
    fault: str = ""  # "xid_79@gpu:0000:4b:00.0"
    reading: str = ""  # what was seen, in words
    rule: str = ""  # "xid_79: reboot"
    step: str = ""
    result: str = ""
    reason: str = ""
    before: str = ""  # of a drain: the scheduler's reason before it
    nodes: int = 0  # of WATCH
    since_s: float = 0.0  # of FAULT: when the node has got it, in seconds since 1970

    @property
    def at_s(self) -> float:
        """The time in seconds since 1970."""
        return float(calendar.timegm(time.strptime(self.time, TIME)))


def stamp(now_s: float) -> str:
    """Return a time as a line has it."""
    return time.strftime(TIME, time.gmtime(now_s))


def dump(lines: Iterable[RepairLine]) -> str:
    """Return the text of lines, without what they do not have."""
    texts = []
    for line in lines:
        data = {key: clean(value) if isinstance(value, str) else value for key, value in asdict(line).items() if value}
        texts.append(json.dumps({"format": FORMAT, **data}, ensure_ascii=True) + "\n")
    return "".join(texts)


def complete(text: bytes) -> int:
    """Return the length of the complete lines: a killed run may leave a part of one, whose step was never begun."""
    return text.rfind(b"\n") + 1


def parse(text: bytes, path: str) -> list[RepairLine]:
    """Return the complete lines of a log. Raises RepairError for the first one that cannot be read."""
    lines: list[RepairLine] = []
    for number, row in enumerate(text[: complete(text)].splitlines(), 1):
        try:
            line: RepairLine = stored.load(RepairLine, json.loads(row), FORMAT, "line of repairs", "restore the file")
            lines.append(line)
            time.strptime(line.time, TIME)
            if line.step not in STEPS or line.result not in RESULTS:
                raise ValueError(f"{line.step!r:.40}, {line.result!r:.40} are no step and result of this version")
        except StoredError as error:
            raise _unreadable(path, number, error.cause) from error
        except (ValueError, RecursionError) as error:
            raise _unreadable(path, number, str(error)) from error
    return lines


def _unreadable(path: str, number: int, cause: str) -> RepairError:
    return RepairError(
        f"line {number} cannot be read: {cause}; how often what was tried is not known, so nothing is repaired",
        "correct or remove this line by hand",
        subject=path,
    )
