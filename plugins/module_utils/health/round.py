# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One round of a node's health check: read, judge, latch, save.

The state is read again before it is changed, so that what a person says while readers work is not lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.health import boot_servers, copied, process, state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.boot_servers import Asked
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored as expected_form
from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import Judged, judge
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition, latch
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Expected,
    Measurement,
    Moment,
    Place,
    Reading,
    Rule,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.process import Process, Reader
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers import node as readers_node
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import checker
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import rules_of
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import (
    DIRECTORY,
    RUN,
    Left,
    Round,
    State,
    Tally,
)

# Checks at places.
Results = set[tuple[str, Place]]
RETURNED = "the node returned to service meanwhile"
EXPECTED_FILE = "/etc/sailloft-health/expected.json"
PERIOD_S = 60.0


@dataclass(frozen=True)
class CheckerPaths:
    """The directories and files of a node's checker; ``root`` is below which readers read."""

    state: str = DIRECTORY
    run: str = RUN
    expected: str = EXPECTED_FILE
    root: str = "/"


class RoundError(SailloftError):
    """A round that could not be made or saved."""


def make(
    paths: CheckerPaths,
    readers: Sequence[Reader],
    rules: Mapping[str, Rule],
    period_s: float = PERIOD_S,
    is_deep: bool = False,
    now: Callable[[], Moment] = state.moment,
) -> State:
    """Make a round and return the state that it saved. Raises RoundError, StateError and OSError.

    A deep round runs only the deep readers, on a node that a person took out of service. Light rounds go on meanwhile:
    it takes longer than the state stays valid, or the kernel keeps its lines.
    """
    with state.locked("deep_round" if is_deep else "round", paths.run, wait=False) as is_alone:
        if not is_alone:
            raise RoundError("another round still runs", "wait for its end; systemctl status sailloft-health shows it")
        inputs = _given(paths, readers, rules, period_s)
        if is_deep and not _is_out_of_service(inputs.saved):
            raise RoundError(
                f"{inputs.expected.host}: deep checks run only on a node that is out of service",
                "sailloft-health drain --reason REASON",
            )
        chosen = [reader for reader in readers if reader.is_deep == is_deep]
        readings, stuck = _read(chosen, inputs.saved.left, inputs, now())
        if is_deep:
            readings, stuck = _twice(chosen, readings, stuck, inputs, now)
        # A process that was killed now may only wait for a busy processor.
        readings.append(_of_checker([hung for hung in stuck if hung in inputs.saved.left], inputs.problem))
        with state.locked("state", paths.run):
            new = _save(inputs, readings, stuck, now(), {reader.name for reader in chosen})
            if inputs.asked:
                boot_servers.remember(inputs.asked, paths.run)
        boot_servers.send(paths.state, paths.root, paths.run)
        return new


@dataclass(frozen=True)
class _Given:
    """All that a round knows before it reads."""

    paths: CheckerPaths
    period_s: float
    start_s: float  # of the monotonic clock
    asked: Asked | None
    expected: Expected
    problem: str  # why what the node must have could not be read
    saved: State
    rules: Mapping[str, Rule]
    lists: Mapping[str, Sequence[str]]  # by reader: the kinds of devices of which it lists all


def _given(paths: CheckerPaths, readers: Sequence[Reader], rules: Mapping[str, Rule], period_s: float) -> _Given:
    start_s = time.monotonic()
    copies = boot_servers.ask(paths.root, paths.run)
    expected, problem = _expected(paths.expected)
    return _Given(
        paths,
        period_s,
        start_s,
        copies,
        expected,
        problem,
        _saved(paths, expected.host),
        rules_of(expected, dict(rules)),
        {reader.name: reader.lists for reader in readers},
    )


def change(paths: CheckerPaths, edit: Callable[[Condition, Moment], Condition], now: Moment) -> State:
    """Change the condition by a person's word and save it. Raises StateError and what ``edit`` raises."""
    with state.locked("state", paths.run):
        old = state.read(paths.state) or State(_expected(paths.expected)[0].host)
        new = replace(old, condition=edit(old.condition, now))
        state.save(new, paths.state)
        return new


def _expected(path: str) -> tuple[Expected, str]:
    """Return what the node must have, or nothing with the reason."""
    try:
        with open(path, encoding="utf-8") as stream:
            expected = expected_form.load(stream.read())
            # An image's nodes have one file.
            return (expected if expected.host else replace(expected, host=os.uname().nodename)), ""
    except OSError as error:
        return Expected(os.uname().nodename), f"{path}: {error.strerror}"
    except (SailloftError, ValueError) as error:
        return Expected(os.uname().nodename), f"{path}: {error}"


def _saved(paths: CheckerPaths, host: str) -> State:
    """Return the stored state for the readers; one that cannot be read is dealt with when the round is saved."""
    try:
        return state.read(paths.state) or State(host)
    except state.StateError:
        return State(host)


def _read(
    readers: Sequence[Reader], last_left: Sequence[Left], inputs: _Given, now: Moment
) -> tuple[list[Reading], list[Left]]:
    """Run the readers, but for those of which a process still hangs. Return their readings and all that hangs."""
    stuck = [
        hung
        for hung in last_left
        if hung.round.boot_id == now.boot_id and process.is_alive(Process(hung.pid, hung.program, hung.start_ticks))
    ]
    hanging = {hung.reader: hung for hung in stuck}
    readings = [
        Reading(reader.name, error=_hangs(hanging[reader.name])) for reader in readers if reader.name in hanging
    ]
    run = partial(readers_node.run, locks=inputs.paths.run)

    def node(reader: Reader) -> Node:
        return Node(inputs.expected, inputs.paths.root, inputs.saved.kept.get(reader.name, {}), run)

    started = [reader for reader in readers if reader.name not in hanging]
    # Deep checks need the GPUs for themselves: one after the other.
    deep = [[reader] for reader in started if reader.is_deep]
    for group in (*deep, [reader for reader in started if not reader.is_deep]):
        if group in deep and _returned(inputs):
            readings.append(Reading(group[0].name, error=RETURNED))
            continue
        for reader, outcome in zip(group, process.read_all(group, node)):
            reading = replace(outcome.reading, is_deep=reader.is_deep)
            # What a job may have disturbed is no measurement.
            is_disturbed = reader.is_deep and _returned(inputs)
            readings.append(replace(reading, measurements=(), error=RETURNED) if is_disturbed else reading)
            stuck += [Left(reader.name, alive.pid, alive.program, alive.start_ticks, now) for alive in outcome.alive]
    return readings, stuck


def _is_out_of_service(saved: State) -> bool:
    return bool(saved.condition.drain or saved.condition.maintenance)


def _returned(inputs: _Given) -> bool:
    """Return True if nobody says any more that the node is out of service, or if that cannot be read."""
    return not _is_out_of_service(_saved(inputs.paths, inputs.expected.host))


def _hangs(hung: Left) -> str:
    date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(hung.round.unix_s))
    return f"the process {hung.pid} ({hung.program}) of the round at {date} still hangs"


def _twice(
    readers: Sequence[Reader], readings: list[Reading], stuck: list[Left], inputs: _Given, now: Callable[[], Moment]
) -> tuple[list[Reading], list[Left]]:
    """Run the deep readers that found a fault a second time, and return what both runs say. Raises RoundError."""
    if not any(reading.measurements or reading.error for reading in readings):
        raise RoundError(f"{inputs.expected.host}: no deep check can run on this node", "install DCGM or nvbandwidth")
    failed = {reading.reader: _with(FAIL, reading, inputs, now()) for reading in readings}
    passed = {reading.reader: _with(PASS, reading, inputs, now()) for reading in readings}
    second, stuck = _read([reader for reader in readers if failed.get(reader.name)], stuck, inputs, now())
    once: dict[str, Results] = {
        reading.reader: (failed[reading.reader] & _with(PASS, reading, inputs, now()))
        | (passed[reading.reader] & _with(FAIL, reading, inputs, now()))
        for reading in second
    }
    confirmed = [_confirmed(reading, once.get(reading.reader, set())) for reading in readings]
    # The error of a second run beside what the first one measured.
    return [*confirmed, *(reading for reading in second if reading.error)], stuck


def _confirmed(reading: Reading, once: Results) -> Reading:
    """Return a deep reader's reading without what failed in one run and passed in the other: that is not measured."""
    measurements = tuple(
        replace(measurement, value=None, reason="it failed in one run and passed in another")
        if (measurement.check, measurement.place) in once
        else measurement
        for measurement in reading.measurements
    )
    return replace(reading, measurements=measurements)


def _with(verdict: str, reading: Reading, inputs: _Given, now: Moment) -> Results:
    results = judge([reading], inputs.rules, inputs.expected, inputs.saved.memory, now).results
    return {(result.check, result.place) for result in results if result.verdict == verdict}


def _of_checker(stuck: Sequence[Left], problem: str) -> Reading:
    """Return what the checker says of itself, to be judged as all else."""
    hanging = {hung.reader: f"process {hung.pid} ({hung.program})" for hung in stuck}
    return Reading(
        "checker",
        (
            *(
                Measurement(checker.hanging(reader), Place("reader", reader), True, "/proc", reason)
                for reader, reason in hanging.items()
            ),
            Measurement(checker.EXPECTED_UNREADABLE, Place("node"), bool(problem), checker.SOURCE, problem),
        ),
    )


def _save(inputs: _Given, readings: Sequence[Reading], stuck: Sequence[Left], now: Moment, chosen: set[str]) -> State:
    """Judge and latch the readings of the chosen readers, and save the new state."""
    directory, expected, copies = inputs.paths.state, inputs.expected, inputs.asked
    os.makedirs(directory, mode=0o755, exist_ok=True)
    readings = list(readings)
    try:
        old = state.read(directory) or State(expected.host)
    except state.StateError as error:
        old = State(expected.host)
        readings.append(Reading("state", events=(state.set_aside(error.cause, directory),)))
    if copies:
        old = copied.merged(old, copies.copy) if copies.copy else old
        readings.append(Reading("boot_servers", copies.measurements, (copies.event,) if copies.event else ()))
    # What another kind of round left behind meanwhile.
    alive = {(hung.pid, hung.start_ticks) for hung in (*inputs.saved.left, *stuck)}
    stuck = [
        *(hung for hung in stuck if hung.reader in chosen or hung in old.left),
        *(hung for hung in old.left if hung.reader not in chosen and (hung.pid, hung.start_ticks) not in alive),
    ]
    # A reader whose process has ended since is seen again: this ends the fault that it hangs.
    ended = {hung.reader for hung in old.left} - {hung.reader for hung in stuck}
    ended_readers = tuple(
        Measurement(checker.hanging(reader), Place("reader", reader), False, "/proc") for reader in ended
    )
    readings.append(Reading("checker", ended_readers))
    judged = judge(readings, inputs.rules, expected, old.memory, now, inputs.lists)
    new = State(
        expected.host,
        _round(old.round, readings, inputs, now),
        latch(old.condition, judged, inputs.rules, expected, now),
        _tallies(old.checks, judged, now),
        {**old.values, **judged.values},
        judged.memory,
        {**old.kept, **{reading.reader: reading.kept for reading in readings if reading.kept and not reading.error}},
        tuple(stuck),
    )
    state.save(new, directory)
    return new


def _round(old: Round | None, readings: Sequence[Reading], inputs: _Given, now: Moment) -> Round:
    jump = state.jump_s(old.ended, now) if old else 0.0
    notes = (f"the clock jumped by {jump:+.0f} s since the round before",) if jump else ()
    return Round(
        old.number + 1 if old else 1,
        now,
        round(time.monotonic() - inputs.start_s, 3),
        inputs.period_s,
        {reading.reader: reading.error for reading in readings if reading.error},
        {reading.reader: reading.seconds for reading in readings if reading.seconds},
        (*notes, *(inputs.asked.remarks if inputs.asked else ())),
        old.first if old and old.ended.boot_id == now.boot_id else now,
    )


def _tallies(old: Mapping[str, Tally], judged: Judged, now: Moment) -> dict[str, Tally]:
    """Count the verdicts by check. A check that no reader of this round made keeps its counts and its time."""
    verdicts: dict[str, list[str]] = {}
    for result in judged.results:
        verdicts.setdefault(result.check, []).append(result.verdict)
    tallies = dict(old)
    for check, found_verdicts in sorted(verdicts.items()):
        passed, failed, unmeasured = (found_verdicts.count(verdict) for verdict in (PASS, FAIL, NOT_MEASURED))
        last = old[check].measured if check in old else None
        tallies[check] = Tally(passed, failed, unmeasured, now if passed or failed else last)
    return tallies
