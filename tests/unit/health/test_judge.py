# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measurements are judged by their rules, and what was not measured never passes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rounds import EXPECTED, GPU, OTHER, TABLE, Node, at, happened, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import (
    BLANKS,
    CHANGES,
    RESET_COUNT,
    RoundMemory,
    judge,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    NOT_MEASURED,
    PASS,
    CheckSetting,
    Expected,
    ExpectedDevice,
    Measurement,
    Place,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.checker import DEVICE_MISSING
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import rules_of


def verdict(check, value, expected=EXPECTED, place=GPU, **more):
    """Return the result of one measurement in a first round, None if it is not judged."""
    reading = Reading("reader", (measured(check, value, place, **more),))
    results = judge([reading], rules_of(expected, TABLE), expected, RoundMemory(), at(100)).results
    return next((each for each in results if (each.check, each.place) == (check, place)), None)


@pytest.mark.parametrize(
    ("check", "value", "wanted"),
    [
        ("width", 16, PASS),
        ("width", 8, FAIL),
        ("width", "16", NOT_MEASURED),
        ("width", True, NOT_MEASURED),
        ("mode", "Enabled", PASS),
        ("mode", "Disabled", FAIL),
        ("temperature", 85, PASS),
        ("temperature", 85.5, FAIL),
        ("temperature", math.nan, NOT_MEASURED),
        ("temperature", math.inf, NOT_MEASURED),
        ("temperature", -1, NOT_MEASURED),
        ("temperature", BLANKS[0], NOT_MEASURED),
        ("temperature", 10**400, NOT_MEASURED),
        ("speed", 32, PASS),
        ("speed", 2.5, FAIL),
        ("pending", False, PASS),
        ("pending", True, FAIL),
        ("pending", "No", NOT_MEASURED),
        ("pending", 0, NOT_MEASURED),
        ("nobody_knows", 1, NOT_MEASURED),
    ],
)
def test_a_value_is_judged_by_its_rule(check, value, wanted):
    assert verdict(check, value).verdict == wanted


@pytest.mark.parametrize("check", sorted(TABLE))
def test_no_value_is_not_measured_for_the_readers_reason(check):
    result = verdict(check, None, reason="GPU is lost")
    assert (result.verdict, result.reason) == (NOT_MEASURED, "GPU is lost")


def test_where_nothing_is_expected_nothing_is_judged():
    assert verdict("width", 8, place=Place("bridge", "0000:00:01.0")) is None


def test_a_limit_of_the_inventory_is_instead_of_the_rules():
    assert (
        verdict("temperature", 90, Expected("gpu01", settings={"temperature": CheckSetting(limit=95)})).verdict == PASS
    )
    narrow = Expected("gpu01", EXPECTED.devices, settings={"width": CheckSetting(limit=8)})
    assert verdict("width", 8, narrow).verdict == PASS


def test_a_check_that_is_off_is_not_made():
    node = Node(
        Expected("gpu01", settings={name: CheckSetting(disabled="new fans") for name in ("temperature", "xid_reset")})
    )
    node.round(at(0), measured("temperature", 99), happened("xid_reset"))
    assert (node.verdicts(), node.faults()) == ({}, [])


@pytest.mark.parametrize("pstate", ["P8", "P12"])
def test_the_speed_of_an_idle_link_is_not_judged(pstate):
    assert verdict("speed", 2.5, context={"pstate": pstate}).verdict == NOT_MEASURED
    assert verdict("speed", 32, context={"pstate": pstate}).verdict == PASS
    assert verdict("width", 8, context={"pstate": pstate}).verdict == FAIL


@pytest.mark.parametrize("pstate", ["P0", "P2"])
def test_the_speed_of_a_working_link_is_judged(pstate):
    assert verdict("speed", 2.5, context={"pstate": pstate}).verdict == FAIL


def test_a_planned_device_that_the_answer_passes_over_is_not_measured():
    node = Node()
    node.round(at(0), measured("width", 16, OTHER))
    assert node.verdicts() == {"width": NOT_MEASURED}


@pytest.mark.parametrize(
    ("places", "wanted"), [([GPU, OTHER], PASS), ([OTHER], FAIL), ([], None)], ids=["all", "one missing", "no answer"]
)
def test_a_planned_device_that_a_list_lacks_is_missing(places, wanted):
    node = Node(lists={"reader": ("gpu",)})
    node.round(at(0), *(measured("temperature", 50, place) for place in places))
    assert node.verdicts().get(DEVICE_MISSING) == wanted


def test_a_list_of_nvidias_driver_says_nothing_of_other_gpus():
    other = ExpectedDevice("0000:c1:00.0", "gpu", "GPU 9", "1002:74a1")
    node = Node(replace(EXPECTED, devices=(*EXPECTED.devices, other)), lists={"reader": ("gpu",)})
    node.round(at(0), *(measured("temperature", 50, place) for place in (GPU, OTHER)))
    assert node.faults() == []


def test_a_device_that_is_missing_is_one_fault_and_no_further_check_of_it_is_not_measured():
    node = Node(lists={"reader": ("gpu",)})
    node.round(at(0), measured("width", 16, OTHER))
    assert node.verdicts() == {DEVICE_MISSING: FAIL}


def test_a_device_that_a_list_names_without_any_value_is_neither_present_nor_missing():
    node = Node(lists={"reader": ("gpu",)})
    node.round(at(0), measured("temperature", 50, OTHER), measured("temperature", None, GPU))
    assert node.verdicts().get(DEVICE_MISSING) == NOT_MEASURED
    assert node.faults() == []


def test_a_device_that_one_of_two_lists_lacks_is_missing_until_that_one_has_it():
    node = Node(lists={"kernel": ("gpu",), "driver": ("gpu",)})
    whole = Reading("kernel", tuple(measured("temperature", 50, place) for place in (GPU, OTHER)))
    node.read(at(0), whole, Reading("driver", (measured("temperature", 50, OTHER),)))
    assert node.faults() == [f"{DEVICE_MISSING}@gpu:{GPU.name}"]
    node.read(at(60), whole, Reading("driver", error="no answer in 20 s"))
    assert node.faults() == [f"{DEVICE_MISSING}@gpu:{GPU.name}"]
    node.read(at(120), whole, Reading("driver", whole.measurements))
    assert node.faults() == []


# Counters


def counted(node, *values, check="replays", every_s=60.0, start_s=0.0, **more):
    """Return the verdicts of rounds in which a counter has these values."""
    verdicts = []
    for number, value in enumerate(values):
        node.round(at(start_s + number * every_s), measured(check, value, is_counter=True, **more))
        verdicts.append(node.verdicts()[check])
    return verdicts


def test_the_first_value_of_a_counter_says_nothing():
    assert counted(Node(), 48211, 48211, 48222) == [NOT_MEASURED, PASS, FAIL]


def test_an_increase_leaves_the_window():
    assert counted(Node(), 0, 20, *[20] * 70)[1:61] == [FAIL] * 60
    assert counted(Node(), 0, 20, *[20] * 70)[61:] == [PASS] * 11


def test_slow_increases_add_up_in_the_window():
    values = [number // 5 for number in range(70)]  # 12 an hour
    assert counted(Node(), *values)[-1] == FAIL
    assert set(counted(Node(), *(number // 8 for number in range(200)))[1:]) == {PASS}  # 7.5 an hour


def test_a_window_of_no_time_is_that_since_the_round_before():
    assert counted(Node(), 5, 5, 6, 6, check="losses") == [NOT_MEASURED, PASS, FAIL, PASS]


def test_a_value_that_decreases_begins_the_window_anew():
    assert counted(Node(), 100, 105, 3, 12, 14) == [NOT_MEASURED, PASS, NOT_MEASURED, PASS, FAIL]


def test_another_boot_begins_the_window_anew():
    node = Node()
    counted(node, 0, 5)
    node.round(at(30, "boot-2"), measured("replays", 500, is_counter=True))
    assert node.verdicts() == {"replays": NOT_MEASURED}


def test_a_reset_of_the_part_begins_the_window_anew():
    node = Node()
    for seconds, resets, value, wanted in [(0, 0, 0, NOT_MEASURED), (60, 0, 5, PASS), (120, 1, 500, NOT_MEASURED)]:
        node.round(at(seconds), measured(RESET_COUNT, resets), measured("replays", value))
        assert node.verdicts() == {"replays": wanted}


def test_a_gap_longer_than_the_window_is_judged_by_the_rate():
    assert counted(Node(), 0, 0, 30, every_s=4 * 3600)[-1] == PASS
    assert counted(Node(), 0, 0, 41, every_s=4 * 3600)[-1] == FAIL


def test_a_counter_at_its_end_is_not_measured():
    assert counted(Node(), 250, 252, saturation=255) == [NOT_MEASURED, PASS]
    assert counted(Node(), 250, 255, 255, saturation=255) == [NOT_MEASURED] * 3
    # Nobody has to act: the counter is an old one, and others tell of new errors.
    node = Node()
    counted(node, *[255] * 5, saturation=255)
    assert node.faults() == []
    # The way to the end is an increase like any other.
    assert counted(Node(), 240, 255, 255, saturation=255) == [NOT_MEASURED, FAIL, FAIL]


def test_a_pass_of_a_window_that_is_not_full_ends_no_fault():
    node = Node()
    assert counted(node, 0, 20) == [NOT_MEASURED, FAIL]
    counted(node, 0, 0, 0, start_s=180)
    assert node.verdicts() == {"replays": PASS}
    assert node.faults() == [f"replays@gpu:{GPU.name}"]
    counted(node, 0, start_s=180 + 3600)
    assert node.faults() == []


def test_a_counter_of_another_source_ends_no_fault():
    node = Node()
    ethtool = Measurement("losses", GPU, 5, "ethtool")
    kernel = Measurement("losses", GPU, 0, "statistics")
    node.round(at(0), ethtool, kernel)
    node.round(at(60), replace(ethtool, value=9), kernel)
    assert node.faults() == [f"losses@gpu:{GPU.name}"]
    node.round(at(120), kernel)
    assert node.faults() == [f"losses@gpu:{GPU.name}"]
    node.round(at(180), replace(ethtool, value=9), kernel)
    assert node.faults() == []


@given(st.lists(st.integers(0, 30), min_size=2, max_size=200))
def test_a_window_agrees_with_all_values_and_stays_small(increases):
    """The increase in the window, by all values, fails or passes the same, but for changes that are close together."""
    node, value, values = Node(), 0, []
    for number, increase in enumerate(increases):
        value += increase
        values.append((number * 60.0, value))
        node.round(at(number * 60.0), measured("replays", value))
    start = min(values[-1][0] - 3600, values[-2][0])
    before = [each for seconds, each in values if seconds <= start]
    exact = value - (before[-1] if before else values[0][1])
    slack = 3600 / CHANGES
    older = [each for seconds, each in values if seconds <= start - slack]
    most = value - (older[-1] if older else values[0][1])
    if exact > 10:
        assert node.verdicts() == {"replays": FAIL}
    elif most <= 10:
        assert node.verdicts() == {"replays": PASS}
    assert len(node.memory.series[0].samples) <= 2 * CHANGES + 2


# Medians


def rates(node, *values, start_s=0.0):
    """Return the verdicts of hourly measurements."""
    verdicts = []
    for number, value in enumerate(values):
        node.round(at(start_s + number * 3600), measured("rate", value))
        verdicts.append(node.verdicts()["rate"])
    return verdicts


def test_a_degraded_link_fails_after_seven_of_twelve_measurements():
    """The paper's links fell from 24 to 3.4 GB/s; a mean of twelve below 4 GB/s notices it after all twelve."""
    assert rates(Node(), *[24.0] * 12, *[3.4] * 7)[-2:] == [PASS, FAIL]
    assert sum([24.0, *[3.4] * 11]) / 12 > 4


def test_one_bad_measurement_of_twelve_is_no_fault():
    assert FAIL not in rates(Node(), *[24.0] * 20, 0.1, *[24.0] * 20)


def test_few_measurements_are_no_verdict_until_the_others_cannot_change_it():
    assert rates(Node(), *[24.0] * 7) == [NOT_MEASURED] * 6 + [PASS]
    assert rates(Node(), *[3.4] * 7) == [NOT_MEASURED] * 6 + [FAIL]
    assert rates(Node(), *[24.0, 3.4] * 6)[-1] == PASS  # the median of both halves is 13.7 GB/s


def test_a_reset_cures_the_link_and_begins_the_median_anew():
    node = Node()
    for hour in range(8):
        node.round(at(hour * 3600), measured(RESET_COUNT, 0), measured("rate", 3.4))
    assert node.faults() == [f"rate@gpu:{GPU.name}"]
    for hour in range(8, 15):
        node.round(at(hour * 3600), measured(RESET_COUNT, 1), measured("rate", 24.0))
    assert (node.verdicts(), node.faults()) == ({"rate": PASS}, [])


def test_a_reboot_begins_the_median_anew():
    node = Node()
    rates(node, *[3.4] * 8)
    node.round(at(60, "boot-2"), measured("rate", 24.0))
    assert node.verdicts() == {"rate": NOT_MEASURED}
    assert node.faults() == [f"rate@gpu:{GPU.name}"]


def test_the_worst_of_two_readers_counts():
    node = Node()
    for first, second, wanted in [(16, 8, FAIL), (None, 16, PASS), (None, 8, FAIL)]:
        node.read(at(0), Reading("a", (measured("width", first),)), Reading("b", (measured("width", second),)))
        assert node.verdicts() == {"width": wanted}


def test_numbers_to_compare_over_the_fleet():
    node = Node()
    node.round(at(0), measured("temperature", 50), measured("temperature", 60, OTHER), measured("pending", True))
    assert node.judged.values == {"temperature": {str(GPU): 50, str(OTHER): 60}}


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers(), max_size=2)
)


@given(
    st.lists(
        st.tuples(st.sampled_from([*TABLE, "nobody_knows", RESET_COUNT]), ANYTHING, st.text(max_size=5)), max_size=10
    )
)
def test_no_value_crashes_the_judge_or_what_is_stored(found):
    node = Node(Expected("gpu01", (ExpectedDevice("", "gpu", "GPU 0", link_width=16),)))
    for seconds in (0, 60):
        node.round(at(seconds), *(measured(check, value, Place("gpu", name)) for check, value, name in found))
    for result in node.judged.results:
        assert result.verdict in (PASS, FAIL, NOT_MEASURED)
        assert all(text.isprintable() or max(text) >= "\u0080" for text in (result.seen, result.reason))
    json.dumps([each.value for series in node.memory.series for each in series.samples], allow_nan=False)
