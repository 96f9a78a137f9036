# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The state that is kept between two looks, and the log, which a killed run never damages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import DAY_S, FAULT, HEALTH, OK, datum
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.hosts import FleetHost
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.kept import (
    FleetError,
    Kept,
    keep,
    left_to_append,
    read_kept,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.look import look_at
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.proofs import Proved
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.readings import HostReading

NOW_S = 1.8e9
NOBODY = Kept(looked=False)


def readings(state=OK, drain=""):
    return {"gpu-1": HostReading([datum(HEALTH, state, "text", NOW_S)], NOW_S, drain)}


def kept(earlier, given, now_s=NOW_S, names=("gpu-1",), log_bytes=0):
    look = look_at([FleetHost(name, "gpu_nodes", (HEALTH,)) for name in names], given, Proved(), now_s)
    return keep(earlier, given, look, log_bytes)


def changes(state):
    return [
        tuple(json.loads(line)[key] for key in ("host", "kind", "before", "after"))
        for line in state.log_lines.splitlines()
    ]


def test_the_first_look_has_no_changes_and_the_same_input_nothing_new():
    first = kept(NOBODY, readings())
    assert first.log_lines == ""
    assert kept(first, readings(), NOW_S + 60) is first


def test_each_change_is_a_line():
    first = kept(NOBODY, readings())
    second = kept(first, readings(FAULT, "riser (ada)"))
    assert changes(second) == [("gpu-1", "drained", "", "riser (ada)"), ("gpu-1", "health", "ok: text", "fault: text")]
    assert changes(kept(first, readings(), NOW_S + 2 * DAY_S)) == [("gpu-1", "health", "ok: text", "unknown: text")]


def test_hosts_that_come_and_go_are_lines():
    first = kept(NOBODY, readings())
    assert changes(kept(first, readings(), names=()))[0] == ("gpu-1", "present", "yes", "no")
    assert ("gpu-2", "present", "no", "yes") in changes(kept(first, readings(), names=("gpu-1", "gpu-2")))


def test_the_file_is_read_as_it_was_written():
    state = kept(kept(NOBODY, readings()), readings(FAULT), log_bytes=7)
    assert read_kept(state.to_json(), "fleet.json") == state
    assert read_kept(None, "fleet.json") == NOBODY


@pytest.mark.parametrize("text", ["", "{", "[" * 100000, "{}", '{"format": "sailloft-fleet/2"}'])
def test_another_content_is_refused(text):
    with raises(FleetError, "fleet.json"):
        read_kept(text, "fleet.json")


def test_an_unknown_state_is_refused():
    state = kept(NOBODY, {"gpu-1": replace(readings()["gpu-1"], data=[datum("mood", OK, "", NOW_S)])})
    with raises(FleetError, "fleet.json", "gpu-1", "mood"):
        read_kept(state.to_json(), "fleet.json")


@pytest.mark.parametrize(
    ("log", "left"),
    [
        (b"old\n", b"one\ntwo\n"),  # killed before it appended
        (b"old\none\nt", b"wo\n"),  # killed while it appended
        (b"old\none\ntwo\n", b""),
        (b"old\none\ntwo\nthree\n", b""),
        (b"", b""),  # moved away since
        (b"old\nelse\n", b""),
    ],
)
def test_the_next_run_completes_the_log_of_a_killed_one(log, left):
    state = Kept(log_bytes=4, log_lines="one\ntwo\n")
    assert left_to_append(state, len(log), log[4:]) == left
