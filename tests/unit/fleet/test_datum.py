# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Old readings are not known any more, and texts of nodes are cut."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    DAY_S,
    DETAIL_LINES,
    DIFFERS,
    FAULT,
    HEALTH,
    NONE,
    NOTED,
    OK,
    TEXT_CHARACTERS,
    UNKNOWN,
    datum,
    state_at,
    worst,
)

NOW_S = 1.8e9


@pytest.mark.parametrize("state", [OK, NOTED])
@pytest.mark.parametrize(
    ("age_s", "known"), [(0, True), (DAY_S, True), (DAY_S + 1, False), (-200, True), (-400, False)]
)
def test_a_good_state_is_not_known_when_it_is_old_or_of_the_future(state, age_s, known):
    assert state_at(datum(HEALTH, state, "", NOW_S - age_s), NOW_S) == (state if known else UNKNOWN)


def test_what_was_never_read_is_not_known_and_a_bad_state_stays_bad():
    assert state_at(datum(HEALTH, OK, ""), NOW_S) == UNKNOWN
    for state in (FAULT, DIFFERS, UNKNOWN):
        assert state_at(datum(HEALTH, state, "", NOW_S - 400 * DAY_S), NOW_S) == state


def test_the_worst_state_decides():
    assert worst([OK, UNKNOWN, DIFFERS]) == DIFFERS
    assert worst([NOTED, UNKNOWN]) == UNKNOWN
    assert worst([]) == NONE


def test_texts_of_a_node_are_cut_to_one_printable_line():
    each = datum(HEALTH, FAULT, "a\nb\x1b[31m\u2028" + "x" * 9999, NOW_S, ["\ud800"] + ["line"] * 99)
    assert each.text.startswith("a b?[31m")
    assert len(each.text) == TEXT_CHARACTERS
    assert all(line.isprintable() for line in (each.text, *each.details))
    assert len(each.details) == DETAIL_LINES
    assert each.details[-1] == f"and {100 - DETAIL_LINES + 1} more"
