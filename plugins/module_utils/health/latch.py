# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Turn the verdicts of a round into faults, which stay until their cause is shown to be gone. Pure.

- A fault of a measured check ends with a pass of the same check at the same place by the same reader (of a counter or a
  median: from the same source), or by a deep one.
- A fault of an event ends when what it asks for was done since: a reboot, or a reset of the part. An event that asks
  for nothing of the node (a note, an application's error) is forgotten after a day.
- A fault of a measured check ends when the plan no longer has the part or the value.
- A person ends any fault by its name, with a reason, and so does a check that is switched off in the inventory.
- A person's drain and maintenance end only by a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import DEEP, Judged, witness
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    ACTIONS,
    APPLICATION,
    CONFIGURATION,
    FAIL,
    HARDWARE,
    NOT_MEASURED,
    Event,
    Expected,
    Moment,
    Place,
    Result,
    Rule,
    clean,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import checker

# A check that was not measured in so many rounds, one after the other, is a fault of the checker.
UNMEASURED_ROUNDS = 3
# The drain of a repair, which ends no other: playbooks/heal.yml.
REPAIR_PREFIX = "sailloft-repair:"
LAYERS = (HARDWARE, CONFIGURATION, APPLICATION)
RESETS = ("reset_gpu", "restart_application")  # actions that a reset of the part has done
REBOOTS = (*RESETS, "restart_vm", "reboot", "note")  # actions that a reboot has done
FORGOTTEN_S = 24 * 3600
# The most identities of events that a fault remembers, and the most ended faults that are kept.
IDENTITIES, ENDED = 32, 50


@dataclass(frozen=True)
class Fault:
    """Something that is wrong with a node until it is shown to be gone."""

    check: str
    place: Place
    title: str
    layer: str
    action: str
    runbook: str
    since: Moment
    last: Moment  # when it was seen last
    count: int = 1  # rounds or events in which it was seen
    part: str = ""  # for a technician: the slot, where the serial number is printed, the cable
    seen: str = ""
    expected: str = ""
    source: str = ""
    reader: str = ""
    is_event: bool = False
    identities: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which a person ends it: "pcie_width@gpu:0000:4b:00.0"."""
        place = self.place
        return f"{self.check}@{place.kind}:{place.name}" if place.name else f"{self.check}@{place.kind}"

    @property
    def takes_out(self) -> bool:
        """True if the node must not get new work: an application's faults and mild ones do not do that."""
        return self.layer != APPLICATION and severity(self.action) >= ACTIONS.index("drain")


@dataclass(frozen=True)
class Unmeasured:
    """A check, or a whole reader, that was not measured in the last rounds."""

    check: str  # READER_FAILED for a reader
    place: Place
    rounds: int
    reason: str
    since: Moment


@dataclass(frozen=True)
class Word:
    """A person's word on the node, with the reason: out of service, or under maintenance."""

    reason: str
    by: str
    since: Moment


@dataclass(frozen=True)
class EndedFault:
    """A fault that ended, and how."""

    name: str
    title: str
    since: Moment
    at: Moment
    how: str  # "passed", "reset", "reboot", "forgotten after a day", "disabled: REASON", "REASON"
    by: str = ""  # the person


@dataclass(frozen=True)
class Condition:
    """The condition of a node: its faults, worst first, what was not measured, and what persons said."""

    faults: tuple[Fault, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    drain: Word | None = None
    maintenance: Word | None = None
    ended: tuple[EndedFault, ...] = ()  # the last ones, the latest last
    slurm_drain: Moment | None = None  # when this program drained the node in Slurm, until it undrained it


def severity(action: str) -> int:
    """Return a number that is greater for what asks for more. An action of a later version is the greatest."""
    return ACTIONS.index(action) if action in ACTIONS else len(ACTIONS)


def latch(
    condition: Condition, judged: Judged, rules: Mapping[str, Rule], expected: Expected, now: Moment
) -> Condition:
    """Return the condition after a round."""
    faults = _Faults(condition, rules, expected, now)
    faults.end(_switched_off(expected))
    faults.end(_acted(judged.resets, now))
    faults.end(_passed(judged, rules))
    faults.end(_unplanned(judged, rules, expected))
    unmeasured = _unmeasured(condition.unmeasured, judged, rules, now)
    for result in (*judged.results, *_of_checker(unmeasured)):
        if result.verdict == FAIL:
            faults.fail(result)
    faults.end(_measured_again(unmeasured))
    for event in judged.events:
        faults.happen(event)
    return replace(
        condition, faults=ranked(faults.faults.values()), unmeasured=unmeasured, ended=tuple(faults.ended[-ENDED:])
    )


# What decides whether a fault has ended: "" or how.
End = Callable[[Fault], str]


class _Faults:
    """The faults while a round changes them."""

    def __init__(self, condition: Condition, rules: Mapping[str, Rule], expected: Expected, now: Moment) -> None:
        self.faults = {(fault.check, fault.place): fault for fault in condition.faults}
        self.ended = list(condition.ended)
        self.rules = rules
        self.expected = expected
        self.now = now

    def end(self, reason_of: End) -> None:
        for key, fault in list(self.faults.items()):
            reason = reason_of(fault)
            if reason:
                del self.faults[key]
                self.ended.append(EndedFault(fault.name, fault.title, fault.since, self.now, reason))

    def fail(self, result: Result) -> None:
        old = self.faults.get((result.check, result.place))
        fault = self._fault(result.check, result.place, False)
        self._set(
            replace(fault, seen=result.seen, expected=result.expected, source=result.source, reader=result.reader),
            old,
        )

    def happen(self, event: Event) -> None:
        old = self.faults.get((event.check, event.place))
        if old and event.identity in old.identities:
            return
        fault = self._fault(event.check, event.place, True)
        identities = (*(old.identities if old else ()), event.identity)[-IDENTITIES:]
        self._set(replace(fault, seen=event.text, source=event.source, identities=identities), old)

    def _fault(self, check: str, place: Place, is_event: bool) -> Fault:
        rule = self.rules.get(check) or checker.without_rule(check)
        part = clean(part_of(self.expected, place))
        now = self.now
        return Fault(
            check, place, rule.title, rule.layer, rule.action, rule.runbook, now, now, part=part, is_event=is_event
        )

    def _set(self, fault: Fault, old: Fault | None) -> None:
        if old:
            is_event = fault.is_event or old.is_event
            # The part's words of when it was planned stay.
            fault = replace(fault, since=old.since, count=old.count + 1, is_event=is_event, part=fault.part or old.part)
        self.faults[fault.check, fault.place] = fault


def ranked(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return faults, the worst first."""
    return tuple(sorted(faults, key=_rank))


def _rank(fault: Fault) -> tuple[int, int, float, str, Place]:
    """Return the key that sorts faults: the one that asks for most first, hardware first, the oldest first."""
    layer = LAYERS.index(fault.layer) if fault.layer in LAYERS else -1
    return -severity(fault.action), layer, fault.since.unix_s, fault.check, fault.place


def _switched_off(expected: Expected) -> End:
    def how(fault: Fault) -> str:
        setting = expected.settings.get(fault.check)
        return f"disabled: {clean(setting.disabled)}" if setting and setting.disabled else ""

    return how


def _acted(resets: tuple[Place, ...], now: Moment) -> End:
    """End events whose action has happened. What happened in this round is newer, and is added later."""

    def how(fault: Fault) -> str:
        if not fault.is_event:
            return ""
        is_rebooted = bool(fault.last.boot_id and now.boot_id) and fault.last.boot_id != now.boot_id
        if is_rebooted and (fault.action in REBOOTS or fault.layer == APPLICATION):
            return "reboot"
        if fault.place in resets and (fault.action in RESETS or fault.layer == APPLICATION):
            return "reset"
        is_old = not is_rebooted and now.boot_s - fault.last.boot_s > FORGOTTEN_S
        asks_nothing = fault.action == "note" or fault.layer == APPLICATION
        return "forgotten after a day" if is_old and asks_nothing else ""

    return how


def _failing(judged: Judged) -> set[tuple[str, Place]]:
    return {(result.check, result.place) for result in judged.results if result.verdict == FAIL}


def _unplanned(judged: Judged, rules: Mapping[str, Rule], expected: Expected) -> End:
    """End what was measured of a part, or held against a value, that the node need not have any more."""
    failing = _failing(judged)
    is_plan_known = (checker.EXPECTED_UNREADABLE, Place("node")) not in failing

    def how(fault: Fault) -> str:
        if fault.is_event or not is_plan_known or (fault.check, fault.place) in failing:
            return ""
        rule = rules.get(fault.check)
        is_part_gone = bool(fault.part) and not part_of(expected, fault.place)
        planned = rule.expected if rule and rule.limit is None else None
        is_value_gone = planned is not None and planned(expected, fault.place) is None
        return "no longer planned" if is_part_gone or is_value_gone else ""

    return how


def _passed(judged: Judged, rules: Mapping[str, Rule]) -> End:
    failing = _failing(judged)

    def how(fault: Fault) -> str:
        key = (fault.check, fault.place)
        if fault.is_event or key in failing:
            return ""
        witnesses = (witness(rules.get(fault.check), fault.reader, fault.source), DEEP)
        return "passed" if any((*key, witness_name) in judged.passes for witness_name in witnesses) else ""

    return how


def _unmeasured(
    old: tuple[Unmeasured, ...], judged: Judged, rules: Mapping[str, Rule], now: Moment
) -> tuple[Unmeasured, ...]:
    """Count the rounds in which readers and checks, one after the other, were not measured."""
    previous = {(entry.check, entry.place): entry for entry in old}
    reasons = {
        (checker.READER_FAILED, Place("reader", reader)): reason for reader, reason in judged.errors.items() if reason
    }
    for result in judged.results:
        rule = rules.get(result.check)
        if result.verdict == NOT_MEASURED and not (result.is_occasional or (rule and rule.is_occasional)):
            reasons[result.check, result.place] = result.reason
    counted = []
    for (check, place), reason in sorted(reasons.items()):
        entry = previous.pop((check, place), None)
        counted.append(
            Unmeasured(check, place, entry.rounds + 1 if entry else 1, reason, entry.since if entry else now)
        )
    # What no reader of this round spoke of stays as it was if its reader may be one that failed or did not run.
    measured = {(result.check, result.place) for result in judged.results if result.verdict != NOT_MEASURED}
    readers = {(checker.READER_FAILED, Place("reader", reader)) for reader in judged.errors}
    is_complete = not any(judged.errors.values())
    for key, entry in previous.items():
        is_gone = key in readers if key[0] == checker.READER_FAILED else key in measured or is_complete
        if not is_gone and (key[0] == checker.READER_FAILED or key[0] in rules):
            counted.append(entry)
    return tuple(counted)


def _of_checker(unmeasured: tuple[Unmeasured, ...]) -> list[Result]:
    """Return a failure for each reader and each place that was not measured for too many rounds."""
    results, places = [], dict[Place, list[Unmeasured]]()
    for entry in unmeasured:
        if entry.rounds >= UNMEASURED_ROUNDS and entry.check == checker.READER_FAILED:
            results.append(Result(entry.check, entry.place, FAIL, entry.reason, source=entry.place.name))
        elif entry.rounds >= UNMEASURED_ROUNDS:
            places.setdefault(entry.place, []).append(entry)
    for place, group in places.items():
        seen = clean(f"{excerpt([entry.check for entry in group])}: {group[0].reason}")
        results.append(Result(checker.NOT_MEASURED_CHECK, place, FAIL, seen, source=checker.SOURCE))
    return results


def _measured_again(unmeasured: tuple[Unmeasured, ...]) -> End:
    failing = {(result.check, result.place) for result in _of_checker(unmeasured)}

    def how(fault: Fault) -> str:
        is_checkers = fault.check in (checker.READER_FAILED, checker.NOT_MEASURED_CHECK)
        return "measured again" if is_checkers and (fault.check, fault.place) not in failing else ""

    return how


def part_of(expected: Expected, place: Place) -> str:
    """Return what a technician needs to find a part: "GPU 4, slot 7, serial number on the tray's label"."""
    for device in expected.devices:
        if place.name in (device.address, device.name):
            serial = f"serial number: {device.serial_place}" if device.serial_place else ""
            slot = f"slot {device.slot}" if device.slot else ""
            host = f"on {device.host_place}" if device.host_place else ""
            return ", ".join(text for text in (device.name, slot, host, serial) if text)
    for port in expected.ports:
        if place.name == port.name:
            cable = f"cable {port.cable}" if port.cable else ""
            peer = f"to {port.peer}" if port.peer else ""
            return ", ".join(text for text in (cable, peer) if text)
    return ""


def cleared(condition: Condition, name: str, reason: str, by: str, now: Moment) -> Condition:
    """End a fault by a person's word. Raises SailloftError for an unknown name or an empty reason."""
    fault = next((item for item in condition.faults if item.name == name), None)
    if fault is None:
        names = excerpt([item.name for item in condition.faults], 5) or "none"
        raise SailloftError(f"no fault has the name {name!r:.80}; the faults are {names}", "name one of them")
    ended = EndedFault(fault.name, fault.title, fault.since, now, _reason(reason), clean(by))
    # What was not measured is counted anew: otherwise the next round would bring the fault back at once.
    return replace(
        condition,
        faults=tuple(item for item in condition.faults if item is not fault),
        unmeasured=tuple(unmeasured for unmeasured in condition.unmeasured if unmeasured.place != fault.place),
        ended=(*condition.ended, ended)[-ENDED:],
    )


def drained(condition: Condition, reason: str, by: str, now: Moment) -> Condition:
    """Take the node out of service by a person's word. Raises SailloftError for a repair's, which replaces no other."""
    if reason.startswith(REPAIR_PREFIX) and condition.drain and not condition.drain.reason.startswith(REPAIR_PREFIX):
        raise SailloftError(f"the node has the drain of a person: {condition.drain.reason}", "leave it to that person")
    return replace(condition, drain=Word(_reason(reason), clean(by), now))


def maintained(condition: Condition, reason: str, by: str, now: Moment) -> Condition:
    """Begin a maintenance by a person's word."""
    return replace(condition, maintenance=Word(_reason(reason), clean(by), now))


def undrained(condition: Condition, by: str, now: Moment, only: str = "") -> Condition:
    """End a drain by a person's word. Raises SailloftError if there is none, or none that begins with ``only``."""
    if condition.drain and not condition.drain.reason.startswith(only):
        raise SailloftError(f"the node has another drain: {condition.drain.reason}", "leave it to who began it")
    ended = _said("drain", condition.drain, by, now)
    return replace(condition, drain=None, ended=(*condition.ended, ended)[-ENDED:])


def maintenance_ended(condition: Condition, by: str, now: Moment) -> Condition:
    """End a maintenance by a person's word. Raises SailloftError if there is none."""
    ended = _said("maintenance", condition.maintenance, by, now)
    return replace(condition, maintenance=None, ended=(*condition.ended, ended)[-ENDED:])


def _said(name: str, word: Word | None, by: str, now: Moment) -> EndedFault:
    if word is None:
        raise SailloftError(f"the node has no {name}", "look at the verdict: sailloft-health")
    return EndedFault(name, word.reason, word.since, now, "a person's word", clean(by))


def _reason(reason: str) -> str:
    text = clean(reason)
    if not text:
        raise SailloftError("the reason is empty", "say why, for those who read it later")
    return text
