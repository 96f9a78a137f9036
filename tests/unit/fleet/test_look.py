# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A look holds only if all is known and as planned."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fleets import fleet

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    DAY_S,
    DIFFERS,
    FAULT,
    HEALTH,
    NONE,
    NOTED,
    OK,
    PROOF,
    UNKNOWN,
    datum,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.hosts import FleetHost
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.look import look_at
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.proofs import Proved
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.readings import HostReading

NOW_S = 1.8e9
HOST = FleetHost("gpu-1", "gpu_nodes", (HEALTH,))


def look(state, now_s=NOW_S, host=HOST, fabrics=None, **said):
    reading = HostReading([datum(HEALTH, state, "text of gpu-1", NOW_S)], NOW_S, **said)
    return look_at([host, FleetHost("ntp", "servers")], {"gpu-1": reading}, Proved(fabrics=fabrics or {}), now_s)


@pytest.mark.parametrize(
    ("state", "holds"), [(OK, True), (NOTED, True), (FAULT, False), (DIFFERS, False), (UNKNOWN, False)]
)
def test_a_look_holds_if_nothing_fails(state, holds):
    seen = look(state)
    assert seen.holds is holds
    assert seen.by_state() == {**{each: [] for each in seen.by_state()}, state: ["gpu-1"], NONE: ["ntp"]}
    assert bool(seen.lines()) is (state != OK)


def test_an_old_look_does_not_hold():
    seen = look(OK, NOW_S + DAY_S + 1)
    assert not seen.holds
    assert seen.by_state()[UNKNOWN] == ["gpu-1"]


def test_what_was_never_read_is_not_known():
    seen = look(OK, host=replace(HOST, reads=(HEALTH, PROOF)))
    assert not seen.holds
    assert any("proof" in line and "gpu-1" in line for line in seen.lines())


def test_a_host_in_maintenance_may_have_faults_but_must_be_known():
    assert look(FAULT, maintenance="riser").holds
    assert not look(UNKNOWN, maintenance="riser").holds
    assert not look(FAULT, drain="riser").holds


def test_a_fabric_whose_proof_fails_does_not_hold():
    assert not look(OK, fabrics={"fabric_drift": datum("fabric", DIFFERS, "", NOW_S)}).holds
    assert not look_at([], {}, Proved(), NOW_S).holds


def test_equal_texts_of_several_hosts_are_one_line_worst_first():
    seen, _floor = fleet(40, NOW_S)
    lines = seen.lines()
    assert lines[0].endswith("gpu-[0004,0027]")
    assert len(lines) < 10
    assert seen.summary.startswith("74 of 80 hosts")
