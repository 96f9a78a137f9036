# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Differences of counters, and sums of which a part is not known."""

from __future__ import annotations

import re

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.answers import Answers
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import (
    CounterSource,
    CounterTable,
    differences,
    read_counters,
)

PORT, NUMBER = re.compile("(p.*)"), re.compile("([0-7])")
TABLE = CounterTable(
    (CounterSource("dropped", "show", (PORT, NUMBER, re.compile("a|b"))),), ("up",), {"watchdog": "none"}
)


@pytest.mark.parametrize(
    ("shown", "dropped"), [({"a": 1, "b": "2"}, 3), ({"a": 1}, 1), ({"a": 1, "b": None}, None), ({"a": True}, None)]
)
def test_a_sum_with_an_unknown_part_is_not_known(shown, dropped):
    ports, reasons = read_counters(TABLE, Answers({"show": {"p1": {"5": shown, "8": {"a": 9}}}}, {}))
    port = ports.get("p1", {"dropped": [None] * 8})
    assert port["dropped"] == [None] * 5 + [dropped] + [None] * 2
    assert set(reasons) == ({"watchdog", "dropped"} if dropped is None else {"watchdog"})


@pytest.mark.parametrize("output", [None, "", "x", "[1", 7, [], {}, {"p1": {}}, {"p1": {"3": {"c": 1}}}])
def test_a_command_without_the_counter_is_named(output):
    ports, reasons = read_counters(TABLE, Answers({"show": output}, {}))
    assert ports == {}
    assert "`show`" in reasons["dropped"]


def test_differences_are_those_of_known_counters_that_only_grew():
    before = {"p1": {"up": True, "dropped": [1, 5, None, 4]}, "p2": None}
    after = {"p1": {"up": False, "dropped": [3, 4, 7, None]}, "p2": {"dropped": [1]}, "p3": {"dropped": [2]}}
    assert differences(before, after) == {"p1": {"dropped": [2, None, None, None]}, "p2": {"dropped": [None]}} | {
        "p3": {"dropped": [None]}
    }
