# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The bundle that a person gets."""

from __future__ import annotations

from repaired_fleet import Machine, RepairedFleet, complaint

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.bundle import MOST_CHARACTERS, bundle_of


def test_a_bundle_has_the_nodes_log_and_the_ends_of_its_readings():
    fleet = RepairedFleet({"sick": Machine(complaint("person"))})
    fleet.run()
    lines = fleet.lines
    made = bundle_of(lines, lines[-1], {"kernel": "x" * MOST_CHARACTERS + "the end"})
    assert {each["node"] for each in made["log"]} == {"sick"}
    assert made["readings"]["kernel"].endswith("the end")
    assert len(made["readings"]["kernel"]) == MOST_CHARACTERS
    assert made["reason"]
