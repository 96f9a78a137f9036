# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whatever happens to whatever fleet: no budget, redundancy or person's word is broken, no unknown step repeated."""

from __future__ import annotations

import pytest
from any_fleet import AnyFleet, BrokenRuleError
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.repair import decide, guards
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import RepairCase
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.world import RepairNode, RepairWorld

EVENTS = 120


@given(seed=st.integers(0, 2**32), overlap=st.booleans())
def test_no_schedule_of_faults_persons_and_kills_breaks_a_rule(seed, overlap):
    AnyFleet(seed).live(EVENTS, overlap)


def nothing(*_arguments: object) -> str:
    return ""


BROKEN = {
    "left": lambda patch: patch.setattr(guards, "OF_A_DRAIN", (guards.domain,)),
    "domain": lambda patch: patch.setattr(guards, "OF_A_DRAIN", (guards.left,)),
    "budget": lambda patch: (
        patch.setattr(guards, "budget", nothing),
        patch.setattr(decide, "steps_of", lambda *_fault: (("reboot", 99),)),
    ),
    "jobs": lambda patch: patch.setattr(guards, "jobs", nothing),
    "a person's word": lambda patch: patch.setattr(RepairWorld, "word", nothing),
    "what a node has told": lambda patch: patch.setattr(
        RepairWorld, "word", lambda _self, node: node.told or (node.service.word if node.service else "")
    ),
    "our drain": lambda patch: patch.setattr(RepairNode, "drained", True),
    "unknown outcomes": lambda patch: patch.setattr(
        RepairCase, "is_unknown", property(lambda _self: False, lambda *_: None)
    ),
    "a node that is seen as sick": lambda patch: (
        patch.setattr(guards, "other_fault", nothing),
        patch.setattr(RepairNode, "fault", property(lambda node: None if node.drained else FAULT.fget(node))),
    ),
}
FAULT = RepairNode.__dict__["fault"]


@pytest.mark.long
@pytest.mark.parametrize("guard", BROKEN)
def test_the_trial_notices_a_guard_that_is_missing(guard, monkeypatch):
    BROKEN[guard](monkeypatch)
    for seed in range(400):
        try:
            AnyFleet(seed).live(EVENTS, overlap=seed % 2 == 0)
        except BrokenRuleError:
            return
    raise AssertionError(f"400 fleets without {guard!r} broke no rule")
