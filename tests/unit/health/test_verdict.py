# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node's health as others read it: a node that is not known to be healthy is never called so."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from rounds import GPU, Node, at, happened, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import drained, maintained
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Moment, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State, Tally
from ansible_collections.sailloft.fleet.plugins.module_utils.health.verdict import (
    DEGRADED,
    DRAINED,
    FIT,
    FORMATS,
    HEALTHY,
    MAINTAINED,
    NOT_KNOWN,
    SICK,
    UNFIT,
    UNKNOWN,
    checks,
    verdict,
)

GOOD = measured("width", 16)
BAD = measured("width", 8)


def saved(*found, rounds=1, **more):
    """Return the state after rounds that found this, the last one at 60 s."""
    node = Node()
    for number in range(rounds):
        node.round(at(60 - 10 * (rounds - 1 - number)), *found)
    return State(
        "gpu01",
        Round(7, at(60), 1.0, 60.0),
        node.condition,
        {"width": Tally(8, 0, 0, at(60))},
        node.judged.values,
        **more,
    )


def judged(state, now=None):
    made = verdict(state, now or at(61))
    return made.word, made.status


@pytest.mark.parametrize(
    ("found", "word", "status"),
    [
        ((GOOD,), HEALTHY, FIT),
        ((BAD,), SICK, UNFIT),
        ((measured("mode", "Disabled"),), DEGRADED, FIT),
        ((happened("xid_application"),), DEGRADED, FIT),
        ((happened("xid_person"),), SICK, UNFIT),
    ],
)
def test_a_node_with_a_fault_that_asks_for_it_takes_no_work(found, word, status):
    assert judged(saved(*found)) == (word, status)


def test_what_is_not_measured_for_three_rounds_is_not_known():
    lost = measured("width", None, reason="GPU is lost")
    assert judged(saved(lost, rounds=2)) == (HEALTHY, FIT)
    assert judged(saved(lost, rounds=3)) == (NOT_KNOWN, UNKNOWN)
    assert judged(saved(lost, happened("xid_person"), rounds=3)) == (SICK, UNFIT)


def test_a_reader_that_fails_for_three_rounds_leaves_the_node_not_known():
    node = Node()
    for seconds in (40, 50, 60):
        node.read(at(seconds), Reading("smi", error="no such program"))
    assert judged(replace(saved(GOOD), condition=node.condition)) == (NOT_KNOWN, UNKNOWN)


def test_what_was_never_measured_in_this_boot_is_not_known():
    lost = measured("width", None, reason="GPU is lost")
    for boot_id, first, wanted in [
        ("boot-1", at(60), NOT_KNOWN),
        ("boot-1", at(0), HEALTHY),
        ("boot-0", at(0), NOT_KNOWN),
    ]:
        state = saved(lost)
        unmeasured = tuple(
            replace(each, since=replace(each.since, boot_id=boot_id)) for each in state.condition.unmeasured
        )
        condition = replace(state.condition, unmeasured=unmeasured)
        state = replace(state, round=replace(state.round, first=first), condition=condition)
        assert judged(state)[0] == wanted
    made = verdict(replace(saved(lost), round=replace(state.round, first=at(60))), at(61))
    assert "GPU is lost" in made.reason


def test_the_first_value_of_a_counter_leaves_no_node_unknown():
    node = Node()
    node.round(at(60), measured("replays", 5, is_counter=True))
    assert node.condition.unmeasured
    state = replace(saved(), round=Round(1, at(60), 1.0, 60.0, first=at(60)), condition=node.condition)
    assert judged(replace(state, memory=node.memory)) == (HEALTHY, FIT)


def test_a_reader_that_fails_since_the_boot_leaves_the_node_not_known():
    node = Node()
    node.read(at(60), Reading("smi", error="no such program"))
    state = replace(saved(), round=Round(1, at(60), 1.0, 60.0, first=at(60)), condition=node.condition)
    assert judged(state) == (NOT_KNOWN, UNKNOWN)


def test_a_stale_state_is_not_known():
    assert judged(saved(GOOD), at(60 + 180)) == (HEALTHY, FIT)
    assert judged(saved(GOOD), at(60 + 181)) == (NOT_KNOWN, UNKNOWN)
    # Whatever the clock says.
    assert judged(saved(GOOD), at(100, unix_s=0)) == (HEALTHY, FIT)
    assert judged(saved(GOOD), at(241, unix_s=at(60).unix_s)) == (NOT_KNOWN, UNKNOWN)
    # A fault does not get stale.
    assert judged(saved(BAD), at(10_000)) == (SICK, UNFIT)


def test_before_the_first_round_of_a_boot_nothing_is_known():
    assert judged(State("gpu01")) == (NOT_KNOWN, UNKNOWN)
    assert judged(saved(GOOD), at(5, "boot-2")) == (NOT_KNOWN, UNKNOWN)
    assert judged(saved(BAD), at(5, "boot-2")) == (SICK, UNFIT)


def test_a_person_takes_a_node_out():
    state = saved(GOOD)
    out = replace(state, condition=drained(state.condition, "cable", "ada", at(0)))
    assert judged(out) == (DRAINED, UNFIT)
    under = replace(out, condition=maintained(out.condition, "firmware", "bo", at(0)))
    assert judged(under) == (MAINTAINED, UNFIT)
    assert judged(under, at(10_000)) == (MAINTAINED, UNFIT)
    assert "firmware (bo)" in verdict(under, at(61)).reason


def test_a_state_that_cannot_be_read_is_a_fault():
    made = verdict(State("gpu01"), at(0), "state.json: not a state")
    assert (made.word, made.status, made.reason) == (SICK, UNFIT, "state.json: not a state")


EXAMPLES = {
    "healthy": saved(GOOD),
    "sick": saved(BAD, measured("mode", "Disabled"), measured("temperature", 99)),
    "odd": saved(happened("xid_person", place=replace(GPU, name='a"b\\c'))),
    "new": State("gpu01"),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_every_state(name, form):
    text = FORMATS[form](verdict(EXAMPLES[name], at(61)))
    assert text.endswith("\n")


def test_the_text_has_what_a_technician_needs():
    text = FORMATS["text"](verdict(EXAMPLES["sick"], at(3660)))
    for words in (
        "GPU 4, slot 7",
        "8 lanes",
        "16 lanes",
        "width@gpu:0000:4b:00.0",
        "runbooks.md#made-up",
        "60 min ago",
    ):
        assert words in text
    assert text.splitlines()[0].startswith("gpu01: sick: ")


def test_a_date_in_the_future_is_named():
    old = saved(BAD)
    assert "future" in FORMATS["text"](verdict(old, at(5, "boot-2", unix_s=0)))
    assert "future" not in FORMATS["text"](verdict(old, at(61, unix_s=0)))
    late = verdict(saved(GOOD), at(30))
    assert (late.status, "future" in late.reason) == (UNKNOWN, True)


def test_json_has_faults_checks_and_ages():
    data = json.loads(FORMATS["json"](verdict(EXAMPLES["sick"], at(61))))
    assert (data["host"], data["status"], data["age_s"]) == ("gpu01", "unfit", 1)
    assert data["faults"][0]["name"] in ("width@gpu:0000:4b:00.0", "temperature@gpu:0000:4b:00.0")
    assert data["checks"]["width"]["passed"] == 8


def test_node_problem_detector_gets_one_short_line():
    long = saved(happened("xid_person", place=replace(GPU, name="ü" * 300)))
    line = FORMATS["npd"](verdict(long, at(61)))
    assert len(line.encode()) <= 81
    assert line.count("\n") == 1


def test_lsf_gets_the_number_of_indices_and_their_values():
    assert FORMATS["lsf"](verdict(EXAMPLES["sick"], at(61))) == "1 sailloft_health 1\n"
    assert FORMATS["lsf"](verdict(EXAMPLES["new"], at(61))) == "1 sailloft_health 2\n"


METRIC = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\]|\\["\\n])*",?)+\})? -?[0-9.e+]+')


@pytest.mark.parametrize("name", EXAMPLES)
def test_prometheus_gets_metrics_in_its_text_format(name):
    """https://prometheus.io/docs/instrumenting/exposition_formats: all lines of one metric are together."""
    lines = FORMATS["prometheus"](verdict(EXAMPLES[name], at(61))).splitlines()
    metrics = [line.partition("{")[0].split(" ")[0] for line in lines if not line.startswith("#")]
    assert [line for line in lines if not line.startswith("#") and not METRIC.fullmatch(line)] == []
    assert list(dict.fromkeys(metrics)) == sorted(set(metrics), key=metrics.index)
    assert "sailloft_health_status" in metrics
    assert len(set(lines)) == len(lines)


def test_the_checks_have_counts_and_ages():
    assert checks(verdict(EXAMPLES["healthy"], Moment(0, "boot-1", 120))) == (
        "width: 8 pass, 0 fail, 0 not measured; 60 s ago\n"
    )


def test_a_check_that_many_places_lack_is_one_line_for_a_person():
    lacking = [measured("width", None, replace(GPU, name=f"0000:{number:02x}:00.0")) for number in range(7)]
    lines = FORMATS["text"](verdict(saved(*lacking), at(61))).splitlines()
    assert sum("width" in line for line in lines) == 1
    assert any("7 more" in line for line in lines)
