# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes that are made up for readers: files below a directory, and programs with their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RoundMemory, judge
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    NOT_MEASURED,
    Expected,
    Moment,
    Reading,
    Result,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError, Ran
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import rules_of

PLAIN = Expected("gpu01")


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files of the node, by absolute path."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())


def node(
    root: Path,
    expected: Expected = PLAIN,
    programs: Mapping[str, str | Ran | Exception] | None = None,
    kept: dict[str, str] | None = None,
) -> Node:
    """Return a node. ``programs``: by the beginning of a command, its output, or what it ends with."""

    def run(argv: Sequence[str], timeout_s: float) -> Ran:
        command = " ".join(argv)
        for beginning, answer in (programs or {}).items():
            if command.startswith(beginning):
                if isinstance(answer, Exception):
                    raise answer
                return answer if isinstance(answer, Ran) else Ran(0, answer, "")
        raise NotMeasuredError(f"{argv[0]}: no such program")

    return Node(expected, str(root), kept or {}, run)


def results(*readings: Reading, expected: Expected = PLAIN, apart_s: float = 3600.0) -> tuple[Result, ...]:
    """Return the verdicts of the last of several rounds, of one reading each."""
    memory, judged = RoundMemory(), None
    for number, reading in enumerate(readings):
        judged = judge([reading], rules_of(expected), expected, memory, Moment(0, "boot-1", 60 + number * apart_s))
        memory = judged.memory
    return judged.results if judged else ()


def failed(*readings: Reading, **how: Any) -> dict[str, list[str]]:
    """Return the names of the places that fail in the last round, by check."""
    return _by_check(results(*readings, **how), FAIL)


def unmeasured(*readings: Reading, **how: Any) -> dict[str, list[str]]:
    """Return the names of the places that are not measured in the last round, by check."""
    return _by_check(results(*readings, **how), NOT_MEASURED)


def _by_check(judged: Sequence[Result], verdict: str) -> dict[str, list[str]]:
    by_check: dict[str, list[str]] = {}
    for result in judged:
        if result.verdict == verdict:
            by_check.setdefault(result.check, []).append(result.place.name)
    return by_check


def values(reading: Reading) -> dict[tuple[str, str], Any]:
    """Return the measured values of a reading by check and name of the place."""
    return {(each.check, each.place.name): each.value for each in reading.measurements}
