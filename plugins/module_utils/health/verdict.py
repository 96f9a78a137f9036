# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The verdict on a node, from its stored state alone, in the texts and exit codes that others want. Pure.

A node may take work (0), may not (1), or it is not known whether it may (2): no round was saved, or none for three
periods, or something was not measured for three rounds or in no round of this boot. Not known is never 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Fault, Unmeasured, Word
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Moment, Place
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import checker
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import State, age_s, is_stale

FIT, UNFIT, UNKNOWN = 0, 1, 2
HEALTHY, DEGRADED, SICK, NOT_KNOWN = "healthy", "healthy with notes", "sick", "not known"
DRAINED, MAINTAINED = "out of service", "under maintenance"
# Clocks of nodes differ a little, so that a date slightly in the future is none.
TOLERANCE_S = 60.0
RUNBOOKS = "docs/reference/runbooks.md"
# node-problem-detector cuts a plugin's text at 80 bytes, its default max_output_length.
NPD_CHARACTERS = 80
SLURM_PREFIX = "sailloft: "


@dataclass(frozen=True)
class Verdict:
    """The verdict on a node: may it take work, and why not. ``status``, the exit code, is FIT, UNFIT or UNKNOWN."""

    host: str
    status: int
    word: str  # one of the words above
    reason: str  # in one line
    state: State
    now: Moment


def verdict(state: State, now: Moment, unreadable: str = "") -> Verdict:
    """Judge a state. ``unreadable``: why it could not be read, which is a fault."""
    word, reason = (SICK, unreadable) if unreadable else _word(state, now)
    status = {HEALTHY: FIT, DEGRADED: FIT, NOT_KNOWN: UNKNOWN}.get(word, UNFIT)
    return Verdict(state.host, status, word, reason, state, now)


def _word(state: State, now: Moment) -> tuple[str, str]:
    condition = state.condition
    worst = [fault for fault in condition.faults if fault.takes_out]
    if condition.maintenance:
        return MAINTAINED, _said(condition.maintenance)
    if condition.drain:
        return DRAINED, _said(condition.drain)
    if worst:
        return SICK, _several(worst)
    stale = staleness(state, now)
    if stale:
        return NOT_KNOWN, stale
    unknown = [fault for fault in condition.faults if fault.check in checker.UNKNOWN]
    if unknown:
        return NOT_KNOWN, _several(unknown)
    never = _never_measured(state)
    if never:
        count = f" (and {len(never) - 1} more)" if len(never) > 1 else ""
        return NOT_KNOWN, f"{never[0].place}: {never[0].check} not measured since the boot: {never[0].reason}{count}"
    if condition.faults:
        return DEGRADED, _several(condition.faults)
    return HEALTHY, f"{sum(tally.passed for tally in state.checks.values())} passes in the last round"


def _never_measured(state: State) -> list[Unmeasured]:
    """Return what no round of this boot measured. Of a counter in the memory only the increase is not known yet."""
    if state.round is None:
        return []
    boot_id, first = state.round.ended.boot_id, state.round.first
    counted = {(counter.check, counter.place) for counter in state.memory.series}
    return [
        unmeasured
        for unmeasured in state.condition.unmeasured
        if (unmeasured.since.boot_id != boot_id or unmeasured.since == first)
        and (unmeasured.check, unmeasured.place) not in counted
    ]


def staleness(state: State, now: Moment) -> str | None:
    """Return the reason why the state says nothing of the present, or None."""
    if state.round is None:
        return "no round of the health check was saved yet"
    age = age_s(state.round.ended, now)
    if state.round.ended.boot_id != now.boot_id:
        return f"no round since the boot {_age(now.boot_s)} ago"
    if age < 0:
        return f"its last round is dated {_age(-age)} in the future: the clock was set back"
    if is_stale(age, state.round.period_s):
        return f"no round was saved for {_age(age)}: see journalctl -u sailloft-health"
    return None


def _several(faults: list[Fault] | tuple[Fault, ...]) -> str:
    count = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{_where(faults[0])}: {faults[0].title}{count}"


def _where(fault: Fault) -> str:
    return fault.part.partition(",")[0] or str(fault.place)


def _said(word: Word) -> str:
    return f"{word.reason} ({word.by})"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def _when(then: Moment, now: Moment) -> str:
    """Return an age in words; a date in the future is named, because the clock was wrong then or is wrong now."""
    age = age_s(then, now)
    if age < -TOLERANCE_S:
        return f"dated {_age(-age)} in the future: the clock was set back"
    return f"{_age(age)} ago"


# Formats


def text(result: Verdict) -> str:
    """Return the verdict for a person: faults with what a technician needs, then what was not measured."""
    state, now = result.state, result.now
    lines = [f"{result.host}: {result.word}: {result.reason}"]
    for fault in state.condition.faults:
        part = f" ({fault.part})" if fault.part else ""
        seen = f": {fault.seen}" if fault.seen else ""
        expected = f", expected {fault.expected}" if fault.expected else ""
        lines += [
            f"  {fault.action}: {fault.place}{part}: {fault.title}{seen}{expected}",
            f"    {fault.name}: {fault.layer}, first seen {_when(fault.since, now)}, last {_when(fault.last, now)}, "
            f"{fault.count} times; {RUNBOOKS}#{fault.runbook}",
        ]
    for name, word in (("maintenance", state.condition.maintenance), ("drain", state.condition.drain)):
        if word:
            lines.append(f"  {name}: {_said(word)}, {_when(word.since, now)}")
    places: dict[tuple[int, str], list[Unmeasured]] = {}
    for unmeasured in state.condition.unmeasured:
        places.setdefault((unmeasured.rounds, unmeasured.check), []).append(unmeasured)
    for (rounds, check), (first, *other_places) in places.items():
        count = f" (and {len(other_places)} more)" if other_places else ""
        lines.append(f"  not measured in {rounds} rounds: {check} of {first.place}{count}: {first.reason}")
    if state.round:
        lines += [f"  note: {note}" for note in state.round.notes]
        lines.append(f"  round {state.round.number}, {_when(state.round.ended, now)}")
    return "\n".join(lines) + "\n"


def checks(result: Verdict) -> str:
    """Return each check with its counts and the age of its last measurement."""
    lines = []
    for name, tally in sorted(result.state.checks.items()):
        age = _when(tally.measured, result.now) if tally.measured else "never measured"
        lines.append(f"{name}: {tally.passed} pass, {tally.failed} fail, {tally.not_measured} not measured; {age}")
    return "".join(f"{line}\n" for line in lines)


def as_json(result: Verdict) -> str:
    """Return the verdict as one line of JSON, without what only later rounds need."""
    state = result.state
    condition = state.condition
    data = {
        "format": "sailloft-health-verdict/1",
        "host": result.host,
        "status": ("fit", "unfit", "unknown")[result.status],
        "verdict": result.word,
        "reason": result.reason,
        "age_s": age_s(state.round.ended, result.now) if state.round else None,
        "faults": [{"name": fault.name, **asdict(fault)} for fault in condition.faults],
        "unmeasured": [asdict(unmeasured) for unmeasured in condition.unmeasured],
        "drain": asdict(condition.drain) if condition.drain else None,
        "maintenance": asdict(condition.maintenance) if condition.maintenance else None,
        "ended": [asdict(fault) for fault in condition.ended],
        "checks": {name: asdict(tally) for name, tally in state.checks.items()},
        "values": state.values,
        "round": asdict(state.round) if state.round else None,
    }
    return json.dumps(data, sort_keys=True) + "\n"


def slurm(result: Verdict) -> str:
    """Return the reason for Slurm, with the prefix by which the node's own drains are known."""
    return f"{SLURM_PREFIX}{result.word}: {result.reason}\n"


def npd(result: Verdict) -> str:
    """Return the message of a node-problem-detector plugin: one short line."""
    return f"{result.word}: {result.reason}".encode()[:NPD_CHARACTERS].decode(errors="ignore") + "\n"


def lsf(result: Verdict) -> str:
    """Return one report of an LSF elim: the number of indices, then name and value of each."""
    return f"1 sailloft_health {result.status}\n"


def prometheus(result: Verdict) -> str:
    """Return metrics in the text format, for node_exporter's textfile collector."""
    state = result.state
    lines = [
        "# HELP sailloft_health_status 0: the node may take work, 1: it may not, 2: not known.",
        "# TYPE sailloft_health_status gauge",
        f"sailloft_health_status {result.status}",
        "# HELP sailloft_health_fault 1 for each fault of the node.",
        "# TYPE sailloft_health_fault gauge",
    ]
    for fault in state.condition.faults:
        labels = {**_labels(fault.check, fault.place), "layer": fault.layer, "action": fault.action}
        lines.append(f"sailloft_health_fault{_braces(labels)} 1")
    lines += [
        "# HELP sailloft_health_unmeasured Rounds, one after the other, in which a check was not measured.",
        "# TYPE sailloft_health_unmeasured gauge",
    ]
    for unmeasured in state.condition.unmeasured:
        lines.append(
            f"sailloft_health_unmeasured{_braces(_labels(unmeasured.check, unmeasured.place))} {unmeasured.rounds}"
        )
    lines += ["# HELP sailloft_health_value A measured value.", "# TYPE sailloft_health_value gauge"]
    for check, values in sorted(state.values.items()):
        for name, value in sorted(values.items()):
            kind, _space, place = name.partition(" ")
            lines.append(f"sailloft_health_value{_braces(_labels(check, Place(kind, place)))} {value}")
    if state.round:
        lines += [
            "# HELP sailloft_health_round_timestamp_seconds When the last round was saved.",
            "# TYPE sailloft_health_round_timestamp_seconds gauge",
            f"sailloft_health_round_timestamp_seconds {state.round.ended.unix_s:.0f}",
        ]
    return "\n".join(lines) + "\n"


def _labels(check: str, place: Place) -> dict[str, str]:
    return {"check": check, "kind": place.kind, "place": place.name}


def _braces(labels: dict[str, str]) -> str:
    quoted = (
        name + '="' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        for name, value in labels.items()
    )
    return "{" + ",".join(quoted) + "}"


FORMATS: dict[str, Callable[[Verdict], str]] = {
    "text": text,
    "json": as_json,
    "slurm": slurm,
    "npd": npd,
    "lsf": lsf,
    "prometheus": prometheus,
}
