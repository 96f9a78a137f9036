# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The end of a step, and a person's word."""

from __future__ import annotations

from messages import raises
from repaired_fleet import Machine, RepairedFleet, complaint

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import cases_of
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.errors import RepairError
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.words import ended, repaired


def test_only_a_node_that_waits_for_a_person_is_repaired():
    fleet = RepairedFleet({"sick": Machine(complaint("person"))})
    with raises(RepairError, "sick"):
        repaired(cases_of(fleet.lines, 0), ["sick"], fleet.now_s)
    fleet.run()
    fleet.say("sick")
    assert repaired(cases_of(fleet.lines, 0), ["sick"], fleet.now_s) == []


def test_a_step_that_was_not_begun_does_not_end():
    with raises(RepairError, "reboot", "a"):
        ended({}, "a", "reboot", "done", "", 0)
