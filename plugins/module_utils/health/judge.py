# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge what the readers of one round measured by the rules, with the memory of earlier rounds. Pure.

Counters and medians need that memory. It belongs to one boot: a reboot resets most counters and cures most degraded
links, so that older values say nothing about the node as it is now. A reset of a part does the same for the part; a
reader that can see it measures RESET_COUNT, a number that differs after each reset.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.sailloft.fleet.plugins.module_utils.health import model
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    NOT_MEASURED,
    NVIDIA,
    PASS,
    Event,
    Expected,
    Measurement,
    Moment,
    Place,
    Reading,
    Result,
    Rule,
    clean,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.checker import DEVICE_MISSING

RESET_COUNT = "reset_count"
# A window is kept as so many changes at most: a counter that increases in every round needs no more.
CHANGES = 32
# NVIDIA: P0 to P2 are the states of work, P8 and above those of idleness. Links slow down in the latter.
WORKING = ("P0", "P1", "P2")
# Larger numbers are no measurements; NVML's blank values are just below 2**63.
MOST = 2.0**64
BLANKS = range(0x7FFFFFFFFFFFFFF0, 0x8000000000000000)
# Of several results of one check at one place the worst counts, and a measured one more than one that is not measured.
ORDER = (FAIL, PASS, NOT_MEASURED)
DEEP = ""  # the witness of a deep check's pass, which counts for what any reader saw


@dataclass(frozen=True)
class Sample:
    """A value, and when it was first measured: seconds since the boot."""

    boot_s: float
    value: float


@dataclass(frozen=True)
class Series:
    """The values of one check at one place from one source in this boot: changes of a counter, or the last samples."""

    check: str
    place: Place
    source: str
    samples: tuple[Sample, ...]
    measured_s: float  # when it was measured last, in seconds since the boot


@dataclass(frozen=True)
class RoundMemory:
    """The values that later rounds need of earlier ones, all of one boot."""

    boot_id: str = ""
    series: tuple[Series, ...] = ()


@dataclass(frozen=True)
class Judged:
    """The verdicts of one round."""

    results: tuple[Result, ...] = ()  # one for each check and place, sorted
    # Check, place and witness of each pass of a full window, which ends the faults that this witness saw.
    passes: frozenset[tuple[str, Place, str]] = frozenset()
    events: tuple[Event, ...] = ()
    resets: tuple[Place, ...] = ()  # the parts that were reset since the round before, without a reboot
    # By reader that ran: why it measured nothing, "" if it did.
    errors: dict[str, str] = field(default_factory=dict)
    # Numbers to compare over a fleet, by check and place.
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    memory: RoundMemory = RoundMemory()


def judge(
    readings: Sequence[Reading],
    rules: Mapping[str, Rule],
    expected: Expected,
    memory: RoundMemory,
    now: Moment,
    lists: Mapping[str, Sequence[str]] | None = None,
) -> Judged:
    """Judge the readings of one round. ``lists``: the kinds of which a reader lists every device that it sees."""
    readings = [_cleaned(reading) for reading in readings]
    judgement = _Judgement(rules, expected, memory if memory.boot_id == now.boot_id else RoundMemory(now.boot_id), now)
    good = [reading for reading in readings if not reading.error]
    judgement.forget_resets(good)
    results: list[Result] = []
    values: dict[str, dict[str, float]] = {}
    for reading in good:
        for measurement in reading.measurements:
            if measurement.check == RESET_COUNT or _is_off(measurement.check, expected):
                continue
            result = judgement.result(measurement)
            if result:
                results.append(replace(result, reader=reading.reader))
            rule, number = rules.get(measurement.check), _number(measurement.value)
            if number is not None and rule and rule.comparison in _GAUGES:
                values.setdefault(measurement.check, {})[str(measurement.place)] = number
        results += _unreported(reading, rules, expected)
    if DEVICE_MISSING in rules:
        results += _missing(good, expected, lists or {})
    # A device that is gone cannot be measured, and is one fault.
    absent = {result.place for result in results if result.check == DEVICE_MISSING and result.verdict == FAIL}
    results = [result for result in results if result.verdict != NOT_MEASURED or result.place not in absent]
    deep = {reading.reader for reading in readings if reading.is_deep}

    def by(seen: Result) -> str:
        return DEEP if seen.reader in deep else witness(rules.get(seen.check), seen.reader, seen.source)

    return Judged(
        _worst(results),
        frozenset(
            (item.check, item.place, by(item)) for item in results if item.verdict == PASS and not item.is_partial
        ),
        tuple(event for reading in good for event in reading.events if not _is_off(event.check, expected)),
        tuple(sorted(judgement.resets)),
        {reading.reader: reading.error for reading in readings},
        values,
        RoundMemory(now.boot_id, tuple(judgement.series.values())),
    )


def witness(rule: Rule | None, reader: str, source: str) -> str:
    """Return who saw a value: its reader, and of what is remembered the source too, because each counts by itself."""
    is_remembered = rule and rule.comparison in (model.INCREASE_AT_MOST, model.MEDIAN_AT_LEAST)
    return f"{reader}: {source}" if is_remembered else reader


def _is_off(check: str, expected: Expected) -> bool:
    setting = expected.settings.get(check)
    return bool(setting and setting.disabled)


def _cleaned(reading: Reading) -> Reading:
    """Return the reading with texts that can be stored."""
    return replace(
        reading,
        error=clean(reading.error),
        measurements=tuple(
            replace(
                measurement,
                place=_place(measurement.place),
                value=clean(measurement.value) if isinstance(measurement.value, str) else measurement.value,
                reason=clean(measurement.reason),
            )
            for measurement in reading.measurements
        ),
        events=tuple(
            replace(event, place=_place(event.place), text=clean(event.text), identity=clean(event.identity))
            for event in reading.events
        ),
    )


def _place(place: Place) -> Place:
    return Place(place.kind, clean(place.name))


def _worst(results: Iterable[Result]) -> tuple[Result, ...]:
    """Return one result for each check and place."""
    worst: dict[tuple[str, Place], Result] = {}
    for result in results:
        key = (result.check, result.place)
        present = worst.get(key)
        # A pass of a window that is not full is worth less than a whole one, which is worth less than a fault.
        if present is None or (ORDER.index(result.verdict), not result.is_partial) < (
            ORDER.index(present.verdict),
            not present.is_partial,
        ):
            worst[key] = result
    return tuple(worst[key] for key in sorted(worst))


def _unreported(reading: Reading, rules: Mapping[str, Rule], expected: Expected) -> list[Result]:
    """Return "not measured" for each planned device or port that a reader's measurements of a check pass over."""
    reported: dict[str, set[Place]] = {}
    for measurement in reading.measurements:
        reported.setdefault(measurement.check, set()).add(measurement.place)
    results = []
    for check, places in reported.items():
        rule = rules.get(check)
        if rule is None or rule.expected is None or rule.comparison == model.NOT_TRUE:
            continue
        for place in places_of(expected):
            if place not in places and rule.expected(expected, place) is not None:
                reason = f"not in the answer of {reading.reader}"
                results.append(Result(check, place, NOT_MEASURED, reason=reason, reader=reading.reader))
    return results


def places_of(expected: Expected) -> list[Place]:
    """Return the places of the planned devices and ports."""
    return [Place(device.kind, device.address) for device in expected.devices] + [
        Place("port", port.name) for port in expected.ports
    ]


def _missing(readings: Sequence[Reading], expected: Expected, lists: Mapping[str, Sequence[str]]) -> list[Result]:
    """Compare the devices that readers list with the planned ones."""
    results = []
    for reading in readings:
        # A reader without any measurement has nothing to do on this node.
        kinds = lists.get(reading.reader, ()) if reading.measurements else ()
        places = {measurement.place for measurement in reading.measurements}
        measured = {measurement.place for measurement in reading.measurements if measurement.value is not None}
        for device in expected.devices:
            # The drivers that list GPUs are NVIDIA's.
            if device.kind not in kinds or (device.kind == "gpu" and device.vendor not in NVIDIA):
                continue
            place = Place(device.kind, device.address)
            result = Result(DEVICE_MISSING, place, PASS, "present", device.name, reading.reader, reader=reading.reader)
            if place not in places:
                result = replace(result, verdict=FAIL, seen="missing")
            elif place not in measured:
                # Of a device that a reader names without any value it only knows that it stopped before.
                result = replace(result, verdict=NOT_MEASURED, seen="", reason="no value of it was measured")
            results.append(result)
    return results


class _Judgement:
    """One round's judgement of measurements; ``series`` becomes the next round's memory."""

    def __init__(self, rules: Mapping[str, Rule], expected: Expected, memory: RoundMemory, now: Moment) -> None:
        self.rules = rules
        self.expected = expected
        self.now = now
        self.series = {(earlier.check, earlier.place, earlier.source): earlier for earlier in memory.series}
        self.resets: set[Place] = set()

    def forget_resets(self, readings: Iterable[Reading]) -> None:
        """Notice the parts that were reset, and forget their series."""
        for reading in readings:
            for measurement in reading.measurements:
                number = _number(measurement.value)
                if measurement.check == RESET_COUNT and number is not None:
                    key = (measurement.check, measurement.place, measurement.source)
                    old = self.series.get(key)
                    if old and old.samples[-1].value != number:
                        self.resets.add(measurement.place)
                    self._keep(key, (Sample(self.now.boot_s, number),))
        self.series = {
            key: row for key, row in self.series.items() if key[0] == RESET_COUNT or key[1] not in self.resets
        }

    def result(self, measurement: Measurement) -> Result | None:
        """Return the verdict on a measurement, or None if nothing is expected at its place."""
        rule = self.rules.get(measurement.check)
        if rule is None:
            return _not_measured(measurement, "no rule for this check")
        if measurement.value is None:
            return _not_measured(measurement, measurement.reason or "no value")
        if rule.comparison == model.NOT_TRUE:
            return _not_true(measurement)
        limit = rule.expected(self.expected, measurement.place) if rule.expected else None
        limit = rule.limit if limit is None else limit
        if limit is None:
            return None
        if rule.comparison == model.EQUAL and isinstance(limit, str):
            verdict = PASS if str(measurement.value) == limit else FAIL
            return _result(measurement, verdict, clean(str(measurement.value)), limit)
        number, threshold = _number(measurement.value), _number(limit)
        if number is None or threshold is None:
            return _not_measured(measurement, f"{(measurement.value if number is None else limit)!r:.60} is no number")
        if rule.comparison == model.INCREASE_AT_MOST:
            return self._increase(measurement, rule, number, threshold)
        if rule.comparison == model.MEDIAN_AT_LEAST:
            return self._median(measurement, rule, number, threshold)
        return _compared(measurement, rule, number, threshold)

    def _increase(self, measurement: Measurement, rule: Rule, number: float, limit: float) -> Result:
        """Judge a counter's increase in the rule's window; window 0: since the round before."""
        key = (measurement.check, measurement.place, measurement.source)
        old = self.series.get(key)
        if old is None or number < old.samples[-1].value or self.now.boot_s < old.measured_s:
            self._keep(key, (Sample(self.now.boot_s, number),))
            return _not_measured(
                measurement, f"first value since a start or reset: {_shown(number, rule)}; no increase known"
            )
        # A gap without measurements may be longer than the window: its increase is judged by the same rate.
        start = min(self.now.boot_s - rule.window_s, old.measured_s)
        span = self.now.boot_s - start
        limit *= max(1.0, span / rule.window_s) if rule.window_s else 1.0
        base = next((sample for sample in reversed(old.samples) if sample.boot_s <= start), old.samples[0])
        increase = number - base.value
        self._keep(key, _changes(old.samples, Sample(self.now.boot_s, number), rule.window_s, start))
        seen = f"{_shown(increase, rule)} more in {_duration(self.now.boot_s - max(base.boot_s, start))}"
        wanted = f"at most {_shown(limit, rule)} more in {_duration(span)}"
        if increase > limit:
            return _result(measurement, FAIL, seen, wanted)
        if measurement.saturation is not None and number >= measurement.saturation:
            reason = f"the counter is at its end ({_shown(number, rule)}): no increase can be seen; reset it"
            return replace(_not_measured(measurement, reason), is_occasional=True)
        is_partial = old.samples[0].boot_s > start
        return replace(_result(measurement, PASS, seen, wanted), is_partial=is_partial)

    def _median(self, measurement: Measurement, rule: Rule, number: float, limit: float) -> Result:
        """Judge the median of the last samples, as soon as those that are still to come cannot change the verdict."""
        key = (measurement.check, measurement.place, measurement.source)
        old = self.series.get(key)
        samples = (*(old.samples if old else ()), Sample(self.now.boot_s, number))[-max(1, rule.samples) :]
        self._keep(key, samples)
        values = sorted(sample.value for sample in samples)
        bad, half = sum(value < limit for value in values), rule.samples // 2
        wanted = f"at least {_shown(limit, rule)} as median of {rule.samples}"
        if len(values) < rule.samples and bad <= half and len(values) - bad <= half:
            return _not_measured(measurement, f"{len(values)} of {rule.samples} measurements since a start or reset")
        middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
        verdict = FAIL if middle < limit else PASS
        return _result(measurement, verdict, f"{_shown(middle, rule)} as median of {len(values)}", wanted)

    def _keep(self, key: tuple[str, Place, str], samples: tuple[Sample, ...]) -> None:
        self.series[key] = Series(*key, samples, self.now.boot_s)


def _changes(samples: tuple[Sample, ...], new: Sample, window_s: float, start: float) -> tuple[Sample, ...]:
    """Add a value to a counter's changes. Only the last one before the window's start is kept of those before it."""
    window = list(samples)
    if new.value != window[-1].value:
        # Of changes close together the later replaces the earlier: the increase stays in the window a little longer.
        if len(window) > 1 and new.boot_s - window[-2].boot_s < window_s / CHANGES:
            window.pop()
        window.append(new)
    older = sum(sample.boot_s <= start for sample in window)
    return tuple(window[max(0, older - 1) :])


def _not_true(measurement: Measurement) -> Result:
    if not isinstance(measurement.value, bool):
        return _not_measured(measurement, f"{measurement.value!r:.60} is neither true nor false")
    return _result(measurement, FAIL if measurement.value else PASS, measurement.reason, "")


def _compared(measurement: Measurement, rule: Rule, number: float, limit: float) -> Result:
    holds = {
        model.EQUAL: number == limit,
        model.AT_LEAST: number >= limit,
        model.AT_MOST: number <= limit,
    }.get(rule.comparison)
    if holds is None:
        return _not_measured(measurement, f"the rule compares nothing with a value: {rule.comparison}")
    state = measurement.context.get("pstate", "")
    if not holds and rule.is_occasional and state and state not in WORKING:
        return _not_measured(measurement, f"idle ({clean(state)}): {_shown(number, rule)} says nothing about the link")
    prefix = {model.AT_LEAST: "at least ", model.AT_MOST: "at most "}.get(rule.comparison, "")
    return _result(measurement, PASS if holds else FAIL, _shown(number, rule), f"{prefix}{_shown(limit, rule)}")


_GAUGES = (model.AT_LEAST, model.AT_MOST, model.MEDIAN_AT_LEAST)


def _result(measurement: Measurement, verdict: str, seen: str, expected: str) -> Result:
    return Result(measurement.check, measurement.place, verdict, seen, expected, measurement.source, measurement.reason)


def _not_measured(measurement: Measurement, reason: str) -> Result:
    return Result(
        measurement.check,
        measurement.place,
        NOT_MEASURED,
        source=measurement.source,
        reason=clean(reason),
        is_occasional=measurement.is_occasional,
    )


def _number(value: object) -> float | None:
    """Return a number that can have been measured: nothing that is measured is below 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if 0 <= value < MOST and value not in BLANKS else None


def _shown(number: float, rule: Rule) -> str:
    text = str(number) if isinstance(number, int) else f"{number:.4g}" if abs(number) < 10000 else f"{number:.0f}"
    return f"{text} {rule.unit}".rstrip()


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
