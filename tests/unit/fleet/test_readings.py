# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Results of modules become data: nothing that was not read is good."""

from __future__ import annotations

import pytest
from fleet_answers import answer, fault

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    DIFFERS,
    FAULT,
    HEALTH,
    NOTED,
    OK,
    UNKNOWN,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.readings import (
    HostReading,
    channels_of,
    drift_data,
    image_datum,
    of_health,
)

NOW_S = 1.8e9
OLD, NEW = "a" * 64, "b" * 64
GONE = {"unreachable": True, "msg": "Failed to connect"}


NOTHING = HostReading()


def health(result, earlier=NOTHING):
    reading = of_health("gpu-1", result, earlier, NOW_S)
    (each,) = reading.data
    assert each.kind == HEALTH
    return reading, each


@pytest.mark.parametrize(
    ("result", "state"),
    [
        (answer(), OK),
        (answer(faults=[fault()]), FAULT),
        (answer(faults=[fault(action="note")]), NOTED),
        (answer(age_s=5000.0), UNKNOWN),
        (answer(host="gpu-2"), UNKNOWN),
        (answer(error="no health check has run"), UNKNOWN),
        (GONE, UNKNOWN),
        ({"health": {"format": "something else"}}, UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_the_state_of_a_nodes_health(result, state):
    assert health(result)[1].state == state


def test_the_age_of_a_health_is_that_of_its_round_and_the_fault_has_what_a_technician_needs():
    each = health(answer(age_s=20.0, faults=[fault(seen="pending")]))[1]
    assert each.at_s == NOW_S - 20
    assert each.text == fault()["title"]
    assert "pending" in each.details[0]
    assert fault()["runbook"] in each.details[1]


def test_a_node_that_does_not_answer_keeps_what_a_person_said_and_when_it_was_seen():
    first = health(answer(drain="riser (ada)"))[0]
    assert (first.drain, first.seen_s) == ("riser (ada)", NOW_S)
    later = of_health("gpu-1", GONE, first, NOW_S + 60)
    assert (later.drain, later.seen_s, later.data[0].state) == ("riser (ada)", NOW_S, UNKNOWN)
    assert health(answer(), first)[0].drain == ""


@pytest.mark.parametrize(
    ("result", "image", "channels", "state"),
    [
        ({"image": NEW}, {"digest": NEW}, None, OK),
        ({"image": OLD}, {"digest": NEW}, {}, DIFFERS),
        ({"image": NEW}, {"channel": "stable"}, {"stable": {NEW}}, OK),
        ({"image": OLD}, {"channel": "stable"}, {"stable": {NEW}}, DIFFERS),
        ({"image": NEW}, {"channel": "stable"}, {"stable": {NEW, OLD}}, UNKNOWN),
        ({"image": NEW}, {"channel": "stable"}, {}, UNKNOWN),
        ({"image": NEW}, {"channel": "stable"}, None, UNKNOWN),
        ({"image": None, "reason": "no boot.json"}, {"digest": NEW}, {}, DIFFERS),
        ({"health": {}, "reason": "boot.json is damaged"}, {"digest": NEW}, {}, UNKNOWN),
        (GONE, {"digest": NEW}, {}, UNKNOWN),
        (None, None, {}, UNKNOWN),
    ],
)
def test_a_node_runs_the_image_of_the_inventory(result, image, channels, state):
    assert image_datum(result, image, channels, NOW_S).state == state


def test_the_channels_are_not_known_unless_all_boot_servers_were_read():
    stable = {"channels": [{"name": "stable", "digest": NEW}]}
    assert channels_of([stable, {"channels": [{"name": "stable", "digest": OLD}]}]) == {"stable": {NEW, OLD}}
    assert channels_of([stable, GONE]) is None
    assert channels_of([None]) is None


def test_the_differences_of_a_hypervisor_are_those_of_its_guests_where_they_name_one():
    compared = {"unread": "", "differences": {"gpu_host": ["huge pages"], "gpu_vm": ["train-1: start"]}}
    data = drift_data("hv", compared, ["train-1", "train-2"], NOW_S)
    assert {name: (each.state, each.text) for name, each in data.items()} == {
        "hv": (DIFFERS, "huge pages"),
        "train-1": (DIFFERS, "start"),
        "train-2": (OK, "as the inventory says"),
    }


@pytest.mark.parametrize(
    "result", [None, GONE, {"unread": "the host does not answer", "differences": {"gpu_host": ["it does not answer"]}}]
)
def test_a_hypervisor_that_was_not_compared_is_not_known_nor_are_its_guests(result):
    assert {each.state for each in drift_data("hv", result, ["train-1"], NOW_S).values()} == {UNKNOWN}
