# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The table of a fleet: worst first, folded, and never green where nothing is known."""

from __future__ import annotations

import pytest
from fleet_answers import answer, fault
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import table

STALE_S = 180


def made(**results):
    return table(((name.replace("_", "-"), result) for name, result in results.items()))


def heads(found):
    """Return the lines without details."""
    return [line for line in found.lines if not line.startswith("    ")]


def test_equal_faults_are_one_line_with_slot_and_runbook():
    sick = {f"gpu_{number}": answer(faults=[fault()]) for number in ("017", "203", "411")}
    found = made(gpu_001=answer(), **sick)
    assert found.lines[0] == "3 nodes: GPU 4: row remap pending: gpu-[017,203,411]"
    assert "docs/reference/runbooks.md#gpu-row-remap" in found.lines[1]
    assert "slot 7, serial number: label on the tray" in found.lines[2]
    assert heads(found)[1:] == ["1 node: healthy: gpu-001"]
    assert (found.holds, found.faulty, found.healthy) == (False, ["gpu-017", "gpu-203", "gpu-411"], ["gpu-001"])
    assert "1 of 4 nodes healthy" in found.summary
    assert "3 with faults" in found.summary


def test_the_worst_is_first():
    found = made(
        a=answer(faults=[fault(title="mild", action="watch")]),
        b=answer(faults=[fault(title="mild", action="watch")]),
        c=answer(faults=[fault(title="person", action="person")]),
        d=answer(faults=[fault(title="setting", action="configure", layer="configuration")]),
        e=answer(faults=[fault(title="application", action="restart_application", layer="application")]),
    )
    assert [line.split(": ")[2] for line in heads(found)] == ["person", "setting", "mild", "application"]
    assert found.noted == ["e"]


def test_nodes_with_other_details_share_the_line_of_a_fault():
    port = fault(kind="port", place="mlx5_0/1", title="port down", runbook="port-down")
    found = made(
        n1=answer(faults=[{**port, "part": "cable ib-000017, to leaf-3 p17"}]),
        n2=answer(faults=[{**port, "part": "cable ib-000018, to leaf-3 p18"}]),
    )
    assert found.lines[0] == "2 nodes: port mlx5_0/1: port down: n[1-2]"
    assert "    n1: cable ib-000017, to leaf-3 p17" in found.lines
    assert "    n2: cable ib-000018, to leaf-3 p18" in found.lines


def test_a_guests_gpu_is_named_with_its_place_on_the_host():
    part = "GPU 0, on hv01, GPU 4, 0000:9b:00.0, slot 7, port 0000:98:00.0"
    found = made(vm1=answer(faults=[fault(part=part)]))
    assert found.lines[0] == "1 node: GPU 0: row remap pending: vm1"
    assert "on hv01, GPU 4, 0000:9b:00.0, slot 7, port 0000:98:00.0" in found.lines[2]


def test_healthy_spares_are_named_where_a_node_needs_one():
    results = {"n1": answer(faults=[fault()]), "n2": answer(), "n3": answer(), "n4": answer(faults=[fault()])}
    found = table(results.items(), spares=frozenset({"n3", "n4"}))
    assert "1 of 2 spares healthy: n3" in found.lines
    none = table({"n1": answer(faults=[fault()])}.items(), spares=frozenset({"n9"}))
    assert "0 of 1 spare healthy" in none.lines
    healthy = table({"n2": answer(), "n4": answer(faults=[fault()])}.items(), spares=frozenset({"n4"}))
    assert not any("spare" in line for line in healthy.lines)


def test_a_machine_that_answers_to_two_names_is_known_by_its_own_only():
    results = {
        "n1": {"health": {**answer()["health"], "host": "n1"}},
        "n2": {"health": {**answer()["health"], "host": "n1"}},
    }
    found = table(results.items())
    assert (found.healthy, found.unknown, found.holds) == (["n1"], ["n2"], False)
    assert any("answers as n1" in line for line in found.lines)


def test_many_details_are_cut_and_counted():
    results = {f"n{number:02}": answer(faults=[fault(seen=f"seen {number}")]) for number in range(20)}
    found = made(**results)
    assert found.lines[0].startswith("20 nodes: ")
    assert "    and 14 nodes more with other details" in found.lines


@pytest.mark.parametrize(
    ("result", "fact"),
    [
        ({"unreachable": True, "msg": "Failed to connect to the host via ssh: timed out"}, "timed out"),
        ({"failed": True, "msg": "there is no /var/lib/x"}, "there is no /var/lib/x"),
        (None, "not asked"),
        ({}, "no health"),
        (answer(age_s=STALE_S + 1), "last 180 s"),
        (answer(age_s=-5.0), "last 180 s"),
        (answer(age_s=float("nan")), "last 180 s"),
        (answer(age_s=None), "no time"),
        (answer(faults=3), "faults"),
        ({"health": {"format": "sailloft-health-answer/9"}}, "format"),
        (answer(error="the state cannot be read"), "the state cannot be read"),
    ],
)
def test_a_node_that_is_not_known_is_named_and_never_healthy(result, fact):
    found = made(gpu_005=result, gpu_006=answer())
    assert fact in found.lines[0]
    assert found.lines[0].endswith(": gpu-005")
    assert (found.holds, found.unknown, found.healthy) == (False, ["gpu-005"], ["gpu-006"])
    assert "1 not known" in found.summary


def test_the_same_cause_on_several_nodes_is_one_line_although_it_names_the_node():
    results = {
        name: {"unreachable": True, "msg": f"ssh: connect to host {name} port 22"} for name in ("n1", "n2", "n3")
    }
    assert heads(made(**results)) == ["3 nodes: no answer: ssh: connect to host HOST port 22: n[1-3]"]


def test_persons_words_are_shown_and_a_maintenance_is_no_failure():
    found = made(
        n1=answer(faults=[fault()], maintenance="new riser"), n2=answer(drain="bad fan, ticket 7"), n3=answer()
    )
    assert found.holds
    assert "1 node: in maintenance: new riser: n1" in found.lines
    assert "1 node: drained: bad fan, ticket 7: n2" in found.lines
    assert "1 drained by a person, 1 in maintenance" in found.summary
    assert "1 of 3 nodes healthy" in found.summary
    assert found.healthy == ["n3"]


def test_an_old_state_of_a_node_in_maintenance_is_shown_and_no_failure():
    found = made(n1=answer(age_s=4000.0, maintenance="new riser"), n2=answer(age_s=4000.0))
    assert (found.holds, found.unknown, found.maintained) == (False, ["n1", "n2"], ["n1"])
    found = made(n1=answer(age_s=4000.0, maintenance="new riser"), n3=answer())
    assert (found.holds, found.unknown) == (True, ["n1"])
    assert "1 node: in maintenance: new riser: n1" in found.lines


@pytest.mark.parametrize("check", ["not_measured", "reader_failed", "expected_unreadable"])
def test_a_node_that_could_not_be_measured_is_not_known(check):
    unmeasured = fault(check=check, title="not measured for three rounds", action="watch", layer="configuration")
    found = made(n1=answer(faults=[unmeasured]), n2=answer(faults=[unmeasured, fault()]))
    assert (found.holds, found.unknown, found.faulty) == (False, ["n1"], ["n2"])


def test_a_healthy_fleet_holds():
    found = made(n1=answer(), n2=answer())
    assert (found.holds, found.lines) == (True, ["2 nodes: healthy: n[1-2]"])
    assert found.to_dict()["holds"]


LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=9)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("age_s", "error", "like", "faults", "unmeasured", "drain", "maintenance", "names", "values")


@given(st.dictionaries(st.sampled_from(KEYS), JSON), st.booleans())
def test_a_wrong_answer_never_makes_a_node_healthy(changes, is_whole):
    result = answer(**changes) if is_whole else changes
    found = table([("n1", result)])
    is_listed = (found.healthy, found.noted, found.faulty, found.unknown, [*found.drained, *found.maintained][:1])
    assert sum(map(len, is_listed)) >= 1
    assert sum(map(len, is_listed[:4])) <= 1
    if found.healthy:
        assert result["health"]["age_s"] <= STALE_S
        assert not result["health"].get("faults")
