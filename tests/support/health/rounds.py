# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rounds of a health check that is made up: rules, a GPU, and readings of it."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health import model
from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import Judged, RoundMemory, judge
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition, latch
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    APPLICATION,
    CONFIGURATION,
    HARDWARE,
    Event,
    Expected,
    ExpectedDevice,
    Measurement,
    Moment,
    Place,
    Reading,
    Rule,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import checker
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import rules_of

GPU = Place("gpu", "0000:4b:00.0")
OTHER = Place("gpu", "0000:5d:00.0")
NODE = Place("node")
EXPECTED = Expected(
    "gpu01",
    devices=(
        ExpectedDevice(GPU.name, "gpu", "GPU 4", link_width=16, slot="7", serial_place="label on the tray"),
        ExpectedDevice(OTHER.name, "gpu", "GPU 5"),
    ),
)


def width(expected: Expected, place: Place) -> float | None:
    """Return the planned width of a device."""
    return next((each.link_width for each in expected.devices if each.address == place.name), None)


def rule(check: str, comparison: str, action: str = "drain", layer: str = HARDWARE, **more: Any) -> Rule:
    """Return a rule of the table that is made up."""
    return Rule(check, f"{check} is wrong", layer, comparison, action, "made up", "made-up", **more)


TABLE = {
    each.check: each
    for each in (
        *checker.RULES,
        rule("width", model.EQUAL, expected=width, unit="lanes"),
        rule("speed", model.AT_LEAST, limit=32.0, unit="GT/s", is_occasional=True),
        rule("temperature", model.AT_MOST, limit=85),
        rule("mode", model.EQUAL, "configure", CONFIGURATION, expected=lambda _expected, _place: "Enabled"),
        rule("pending", model.NOT_TRUE, "reset_gpu"),
        rule("replays", model.INCREASE_AT_MOST, limit=10, window_s=3600),
        rule("losses", model.INCREASE_AT_MOST, limit=0),
        rule("rate", model.MEDIAN_AT_LEAST, limit=4.0, samples=12, unit="GB/s", is_occasional=True),
        rule("deep_width", model.NOT_TRUE, is_occasional=True),
        rule("xid_reset", model.EVENT, "reset_gpu"),
        rule("xid_reboot", model.EVENT, "reboot"),
        rule("xid_person", model.EVENT, "person"),
        rule("xid_application", model.EVENT, "restart_application", APPLICATION),
    )
}


def at(seconds: float, boot_id: str = "boot-1", unix_s: float | None = None) -> Moment:
    """Return a moment so many seconds after a boot."""
    return Moment(1_800_000_000.0 + seconds if unix_s is None else unix_s, boot_id, seconds)


def measured(check: str, value: Any, place: Place = GPU, **more: Any) -> Measurement:
    """Return a measurement."""
    return Measurement(check, place, value, "source", **more)


def happened(check: str, identity: str = "1", place: Place = GPU) -> Event:
    """Return an event."""
    return Event(check, place, f"{check} happened", "/dev/kmsg", identity)


class Node:
    """A node whose rounds are given one after the other."""

    def __init__(self, expected: Expected = EXPECTED, lists: dict[str, tuple[str, ...]] | None = None) -> None:
        self.expected = expected
        self.lists = lists or {}
        self.memory = RoundMemory()
        self.condition = Condition()
        self.judged = Judged()

    def read(self, now: Moment, *readings: Reading) -> None:
        """Judge and latch one round of readings."""
        rules = rules_of(self.expected, TABLE)
        self.judged = judge(readings, rules, self.expected, self.memory, now, self.lists)
        self.memory = self.judged.memory
        self.condition = latch(self.condition, self.judged, rules, self.expected, now)

    def round(self, now: Moment, *found: Measurement | Event) -> None:
        """Judge and latch one round of one reader."""
        measurements = tuple(each for each in found if isinstance(each, Measurement))
        events = tuple(each for each in found if isinstance(each, Event))
        self.read(now, Reading("reader", measurements, events))

    def verdicts(self) -> dict[str, str]:
        """Return the verdicts of the last round on the GPU, by check."""
        return {each.check: each.verdict for each in self.judged.results if each.place == GPU}

    def faults(self) -> list[str]:
        """Return the names of the faults, worst first."""
        return [fault.name for fault in self.condition.faults]
