# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Faults that BMCs name become claims by node, in the proof that the fleet's page reads."""

from __future__ import annotations

from fleet_answers import answer, fault

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import DIFFERS, OK, UNKNOWN
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.proofs import read_proofs
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.bmc_proof import NAME, bmc_proof

LOST = fault(check="bmc_power_input", kind="bmc", place="PSU2", title="power supply without input", seen="LossOfInput")
NOTE = {**LOST, "check": "bmc_memory_corrected", "place": "DIMM A", "action": "note"}
UNREAD = {**LOST, "check": "bmc_unread", "place": "", "seen": "it did not answer in time"}


def said(*faults):
    return answer(faults=list(faults))["health"]


def test_each_fault_is_a_claim_and_a_bmc_without_one_holds():
    proof = bmc_proof({"a": said(), "b": said(LOST, NOTE), "c": said(UNREAD), "d": said(NOTE), "e": {"format": "x"}})
    assert [(claim.layer, claim.claim, claim.holds) for claim in proof.claims] == [
        ("bmc", "a: its BMC", True),
        ("bmc", "b: BMC, PSU2", False),
        ("unread", "c: its BMC", False),
        ("bmc", "d: its BMC", True),
        ("unread", "e: its BMC", False),
    ]
    assert not proof.holds
    assert "LossOfInput" in proof.claims[1].seen
    assert "DIMM A" in proof.claims[3].reason
    assert not bmc_proof({}).holds


def test_the_page_of_the_fleet_shows_it_at_each_node():
    text = bmc_proof({"a": said(), "b": said(LOST), "c": said(UNREAD)}).to_json()
    proved = read_proofs({NAME: (text, 1.0)}, ["a", "b", "c", "d"])
    assert {name: [each.state for each in data] for name, data in proved.hosts.items()} == {
        "a": [OK],
        "b": [DIFFERS],
        "c": [UNKNOWN],
    }
