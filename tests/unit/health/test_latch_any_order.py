# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Any order of readings, losses, resets, reboots, jumps of the clock and words of persons keeps the latch's rules.

A model beside it keeps for each fault only whether it must be there, by the rules of the docs.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from rounds import GPU, OTHER, TABLE, Node, at, happened, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RESET_COUNT
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import (
    Fault,
    cleared,
    drained,
    maintained,
    severity,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    APPLICATION,
    Expected,
    ExpectedDevice,
    Reading,
)

PLACES = (GPU, OTHER)
READERS = ("reader", "second")
# Checks with a value that passes and one that fails.
VALUES = {"width": (16, 8), "pending": (False, True)}
KEYS = [(check, place, reader) for check in VALUES for place in PLACES for reader in READERS]
EVENTS = ("xid_reset", "xid_reboot", "xid_person", "xid_application")
ENDED_BY_RESET = ("xid_reset", "xid_application")
ENDED_BY_REBOOT = (*ENDED_BY_RESET, "xid_reboot")
STATES = ("pass", "fail", "lost", "absent")
OF_CHECKER = ("not_measured", "reader_failed")


class Latch(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = Node(
            Expected("gpu01", tuple(ExpectedDevice(each.name, "gpu", each.name, link_width=16) for each in PLACES))
        )
        self.seconds = 0.0
        self.jump = 0.0
        self.boot = 1
        self.resets = dict.fromkeys(PLACES, 0)
        self.measured: dict[tuple, str] = {}  # by check and place: the reader that saw the fault
        self.events: set[tuple] = set()
        self.identities = 0
        self.lost = dict.fromkeys(READERS, 0)  # rounds in which a reader failed, one after the other
        self.drain = self.maintenance = False
        # Resets and reboots that no round has seen yet.
        self.is_rebooted = False
        self.unseen: set = set()
        self.known: set = set()  # places whose count of resets a round of this boot has seen

    def now(self):
        self.seconds += 60
        return at(self.seconds, f"boot-{self.boot}", 1_800_000_000 + self.seconds + self.jump)

    @rule(
        states=st.fixed_dictionaries({key: st.sampled_from(STATES) for key in KEYS}),
        events=st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(PLACES)), max_size=2),
        failed=st.sets(st.sampled_from(READERS)),
    )
    def round(self, states, events, failed):
        found = {reader: [] for reader in READERS}
        for (check, place, reader), state in states.items():
            if state != "absent":
                value = {"pass": VALUES[check][0], "fail": VALUES[check][1], "lost": None}[state]
                found[reader].append(measured(check, value, place))
        log = []
        for check, place in events:
            self.identities += 1
            log.append(happened(check, str(self.identities), place))
        counts = tuple(measured(RESET_COUNT, count, place) for place, count in self.resets.items())
        self.node.read(
            self.now(),
            *(
                Reading(reader, error="no answer") if reader in failed else Reading(reader, tuple(found[reader]))
                for reader in READERS
            ),
            Reading("log", counts, tuple(log)),
        )
        self.follow(states, events, failed)

    @rule(passes=st.dictionaries(st.sampled_from(PLACES), st.booleans()))
    def deep_round(self, passes):
        """Make a deep round, whose reader judges a check of its own and one that light readers judge too."""
        found = [
            measured(check, value, place)
            for place, good in passes.items()
            for check, value in (("deep_width", not good), ("width", 16 if good else 8))
        ]
        self.node.read(self.now(), Reading("deep", tuple(found), is_deep=True))
        self.follow_reboot()
        for place, good in passes.items():
            for check in ("deep_width", "width"):
                if good:
                    self.measured.pop((check, place), None)
                else:
                    self.measured[check, place] = "deep"

    def follow_reboot(self):
        if self.is_rebooted:
            self.events = {each for each in self.events if each[0] not in ENDED_BY_REBOOT}
        self.is_rebooted = False

    def follow(self, states, events, failed):
        """Change the model as the rules say."""
        self.follow_reboot()
        self.events = {each for each in self.events if not (each[1] in self.unseen and each[0] in ENDED_BY_RESET)}
        self.unseen, self.known = set(), set(PLACES)
        self.events |= set(events)
        read = {key: state for key, state in states.items() if key[2] not in failed}
        for check in VALUES:
            for place in PLACES:
                self.measure(check, place, {key[2]: read[key] for key in read if key[:2] == (check, place)})
        for reader in READERS:
            self.lost[reader] = self.lost[reader] + 1 if reader in failed else 0

    def measure(self, check, place, by_reader):
        key = (check, place)
        failing = [reader for reader in READERS if by_reader.get(reader) == "fail"]
        if failing:
            self.measured[key] = failing[0]
        elif by_reader.get(self.measured.get(key)) == "pass":
            self.measured.pop(key, None)

    @rule(place=st.sampled_from(PLACES))
    def reset(self, place):
        self.resets[place] += 1
        if place in self.known:
            self.unseen.add(place)

    @rule()
    def reboot(self):
        self.boot += 1
        self.seconds = 0.0
        self.is_rebooted = True
        # The first count after a reboot is compared with none.
        self.unseen, self.known = set(), set()

    @rule(jump=st.sampled_from([-1e9, -3600, 0, 3600, 1e9]))
    def clock(self, jump):
        self.jump = jump

    @precondition(lambda self: self.node.condition.faults)
    @rule(number=st.integers(0, 20))
    def clear(self, number):
        faults = self.node.condition.faults
        fault = faults[number % len(faults)]
        self.node.condition = cleared(self.node.condition, fault.name, "repaired", "ada", self.now())
        self.measured.pop((fault.check, fault.place), None)
        self.events.discard((fault.check, fault.place))
        for reader in READERS:
            if fault.place.name == reader:
                self.lost[reader] = 0

    @rule()
    def drain_node(self):
        self.node.condition = drained(self.node.condition, "cable", "ada", self.now())
        self.drain = True

    @rule()
    def maintain(self):
        self.node.condition = maintained(self.node.condition, "firmware", "ada", self.now())
        self.maintenance = True

    def faults(self, *, is_event: bool) -> dict[tuple, Fault]:
        return {
            (fault.check, fault.place): fault
            for fault in self.node.condition.faults
            if fault.check not in OF_CHECKER and fault.is_event == is_event
        }

    @invariant()
    def faults_are_those_of_the_rules(self):
        assert {key: fault.reader for key, fault in self.faults(is_event=False).items()} == self.measured
        assert set(self.faults(is_event=True)) == self.events

    @invariant()
    def a_reader_that_fails_three_times_is_a_fault(self):
        failed = {fault.place.name for fault in self.node.condition.faults if fault.check == "reader_failed"}
        assert failed == {reader for reader in READERS if self.lost[reader] >= 3}

    @invariant()
    def words_of_persons_stay(self):
        assert bool(self.node.condition.drain) == self.drain
        assert bool(self.node.condition.maintenance) == self.maintenance

    @invariant()
    def faults_are_sorted_and_single(self):
        faults = self.node.condition.faults
        assert [severity(each.action) for each in faults] == sorted(
            (severity(each.action) for each in faults), reverse=True
        )
        assert len({each.name for each in faults}) == len(faults)
        assert not any(each.takes_out for each in faults if TABLE[each.check].layer == APPLICATION)


TestLatch = Latch.TestCase
TestLatch.settings = settings(stateful_step_count=20)
