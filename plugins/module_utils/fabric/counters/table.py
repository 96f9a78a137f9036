# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Counters of a switch's ports: the table of a system, and the reader that all tables share. Pure.

A counter that a switch does not show, or not in the form of its table, is None, which is not 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.answers import Answers
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES

# By priority: PFC frames. By queue: packets that left marked, those that were dropped, storms that the watchdog ended.
BY_PRIORITY = ("pause_received", "pause_sent")
COUNTERS = (*BY_PRIORITY, "ecn_marked", "dropped", "watchdog")
UP = "up"  # whether the link is up
_MOST_DIGITS = 20  # of a counter of 64 bits


@dataclass(frozen=True)
class RowMatch:
    """The rows whose ``field`` matches ``pattern``."""

    field: str
    pattern: re.Pattern[str]


# One step down a tree: a key, the keys that match a pattern, or rows. Of a list, each element is followed. What the
# groups of the patterns matched are the port and, except for UP, the priority or queue.
Step = Union[str, "re.Pattern[str]", RowMatch]


@dataclass(frozen=True)
class CounterSource:
    """The place of a counter in the output of ``command``. Several values of one port and number are added.

    ``absent``: the value for a port that is not there, although the command answered and another counter has the port.
    """

    counter: str
    command: str
    path: tuple[Step, ...]
    absent: int | None = None


def _from_json(_command: str, output: Any) -> Any:
    """Return JSON that was given as text or, by some versions of Ansible, as an object. Raises ValueError."""
    return json.loads(output) if isinstance(output, str) else output


@dataclass(frozen=True)
class CounterTable:
    """The counters of a switch system.

    ``up_states``: the texts that say that a link is up. ``not_counted``: counter -> why it has no source here.
    ``decode(command, output)``: the output as a tree of dictionaries and lists; ValueError if it is none.
    """

    sources: tuple[CounterSource, ...]
    up_states: tuple[str, ...]
    not_counted: Mapping[str, str] = field(default_factory=dict)
    decode: Callable[[str, Any], Any] = _from_json

    @property
    def commands(self) -> tuple[str, ...]:
        """Return each command once."""
        return tuple(dict.fromkeys(source.command for source in self.sources))


def read_counters(table: CounterTable, answers: Answers) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the counters by port, and by counter why it is not known, or not of all ports.

    A counter is a list of 8 numbers or None; ``up`` is true, false or None.
    """
    reasons = dict(table.not_counted)
    ports: dict[str, dict[str, Any]] = {}
    absent: list[tuple[CounterSource, set[str]]] = []
    trees = {command: _tree(table, command, answers) for command in table.commands}
    for source in table.sources:
        tree = trees[source.command]
        if source.command in answers.failures:
            reasons[source.counter] = f"`{source.command}`: {answers.failures[source.command]}"
        if isinstance(tree, str):
            reasons.setdefault(source.counter, tree)
            continue
        values: dict[tuple[str, ...], list[Any]] = {}
        for place, value in _values(tree, source.path):
            values.setdefault(place, []).append(value)
        if not sum(_record(ports, table, source, place, shares) for place, shares in values.items()):
            reasons.setdefault(source.counter, f"`{source.command}` has none in the known form")
        if source.absent is not None and _has_start(tree, source.path):
            absent.append((source, {place[0] for place in values}))
            reasons.pop(source.counter, None)
    for source, names in absent:
        for name in ports.keys() - names:
            ports[name][source.counter] = [source.absent] * CLASSES
    return ports, reasons


def _record(
    ports: dict[str, dict[str, Any]],
    table: CounterTable,
    source: CounterSource,
    place: tuple[str, ...],
    shares: list[Any],
) -> bool:
    """Record a counter, or the state of a link, and return whether it is known."""
    value: Any = _sum(shares)
    if source.counter == UP:
        value = shares[0] in table.up_states if isinstance(shares[0], str) else None
    if value is None:
        return False
    port = ports.setdefault(place[0], {UP: None, **{counter: [None] * CLASSES for counter in COUNTERS}})
    if source.counter == UP:
        port[UP] = value
    else:
        port[source.counter][int(place[1])] = value
    return True


def _sum(values: list[Any]) -> int | None:
    """Return the sum; None where one of the values is no number."""
    numbers = [number_of(value) for value in values]
    return None if None in numbers else sum(number for number in numbers if number is not None)


def _tree(table: CounterTable, command: str, answers: Answers) -> Any:
    """Return the decoded output, or a sentence why there is none."""
    output = answers.shown.get(command)
    if output is None or output == "":
        return f"the switch did not answer `{command}`"
    try:
        tree = table.decode(command, output)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        tree = None
    return tree if isinstance(tree, (dict, list)) else f"`{command}` answered in no known form"


def _has_start(tree: Any, path: tuple[Step, ...]) -> bool:
    """Return whether the tree has the table that begins the path, even an empty one."""
    return isinstance(path[0], str) and isinstance(tree, dict) and isinstance(tree.get(path[0]), dict)


def _values(tree: Any, path: tuple[Step, ...], captured: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what the patterns of the path captured, and the value there; None where the path ends before it."""
    if not path:
        yield captured, tree
        return
    branches, rest = [*_below(tree, path[0])], path[1:]
    # A row that meets only some of the conditions that follow each other is another one, and no end of the path.
    while isinstance(path[0], RowMatch) and rest and isinstance(rest[0], RowMatch):
        branches = [((*groups, *more), row) for groups, other in branches for more, row in _below(other, rest[0])]
        rest = rest[1:]
    for groups, below in branches:
        yield from _values(below, rest, (*captured, *groups))
    if captured and not branches:
        yield captured, None


def _below(tree: Any, step: Step) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, list):
        for element in tree:
            yield from _below(element, step)
    elif not isinstance(tree, dict):
        return
    elif isinstance(step, RowMatch):
        match = step.pattern.fullmatch(str(tree.get(step.field)))
        if match:
            yield match.groups(), tree
    else:
        for key, value in tree.items():
            match = step.fullmatch(str(key)) if isinstance(step, re.Pattern) else None
            if match or key == step:
                yield match.groups() if match else (), value


def number_of(value: Any) -> int | None:
    """Return a counter's number, which may be text; None for all else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and re.fullmatch(rf"[0-9]{{1,{_MOST_DIGITS}}}", value):
        return int(value)
    return None


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return ``after`` minus ``before``, in the same form; None where a value is not known or was set back between."""
    return {
        name: {
            counter: _difference(_counters_of(before, name).get(counter), value)
            for counter, value in values.items()
            if counter != UP
        }
        for name, values in after.items()
    }


def _counters_of(readings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    counters = readings.get(name)
    return counters if isinstance(counters, Mapping) else {}


def _difference(before: Any, after: Any) -> Any:
    if isinstance(after, list):
        earlier = before if isinstance(before, list) and len(before) == len(after) else [None] * len(after)
        return [_difference(*pair) for pair in zip(earlier, after)]
    if not isinstance(before, int) or after is None or after < before:
        return None
    return after - before
