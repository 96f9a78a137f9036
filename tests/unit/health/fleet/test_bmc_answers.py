# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Faults that BMCs say are those of their nodes in the fleet's table, and a silent BMC is one too."""

from __future__ import annotations

import pytest
from fleet_answers import answer, fault
from redfish_bmc import PASSWORD, RedfishBmc, collection, new, status

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers, bmc_answers
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import table

GOOD = status(Id="Bay1", LineInputStatus="Normal")
LOST = status("Critical", Id="Bay2", LineInputStatus="LossOfInput")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = RedfishBmc(tmp_path_factory.mktemp("bmc"), {})
    yield started
    started.stop()


def asked(server, documents, checks=None, **target):
    """Return what a BMC with these documents says."""
    server.documents = documents
    return bmc_answers.ask([server.target(**target)], {"gpu01": checks or {}}, {})["gpu01"]


def faults(said):
    return [(each.check, each.place, each.action) for each in said.faults]


def test_a_supply_without_input_is_a_fault_of_its_node(server):
    assert faults(asked(server, new({"Bay1": GOOD, "Bay2": LOST}))) == [("bmc_power_input", "Bay2", "drain")]
    assert faults(asked(server, new({"Bay1": GOOD}))) == []


def test_the_inventory_says_how_many_supplies_there_are_and_which_checks_are_off(server):
    few = asked(server, new({"Bay1": GOOD}), {"bmc_power_supplies": {"limit": 2}})
    assert [(each.check, each.seen, each.expected) for each in few.faults] == [
        ("bmc_power_supplies", "1", "at least 2")
    ]
    disabled = {"bmc_power_input": {"disabled": "one feed only"}}
    assert faults(asked(server, new({"Bay1": GOOD, "Bay2": LOST}), disabled)) == []


def test_a_bmc_that_refuses_is_a_fault_with_the_reason_and_without_the_account(server):
    said = asked(server, new({"Bay1": GOOD}), password="wrong")
    assert faults(said) == [("bmc_unread", "", "watch")]
    assert "401" in said.faults[0].seen
    assert PASSWORD not in repr(said)


def test_a_bmc_that_says_nothing_is_a_fault(server):
    said = asked(server, {"/redfish/v1/Chassis": collection(), "/redfish/v1/Systems": collection()})
    assert faults(said) == [("bmc_unread", "", "watch")]


def test_the_table_has_the_bmcs_faults_of_nodes_that_answer_and_of_those_that_do_not(server):
    said = answers.to_dict(asked(server, new({"Bay1": GOOD, "Bay2": LOST})))
    bmcs = dict.fromkeys(("gpu-1", "gpu-2", "gpu-3"), said)
    gone = {"unreachable": True, "msg": "no route"}
    made = table([("gpu-1", answer()), ("gpu-2", answer(faults=[fault()])), ("gpu-3", gone), ("gpu-4", answer())], bmcs)
    assert any(line.startswith("3 nodes: bmc Bay2: ") and line.endswith("gpu-[1-3]") for line in made.lines)
    assert (made.faulty, made.unknown, made.healthy) == (["gpu-1", "gpu-2"], ["gpu-3"], ["gpu-4"])
    assert not made.holds
