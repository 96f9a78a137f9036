# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges, parse_ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0-1"),
        ([0, 2], "0,2"),
        ([8, 0, 1, 2, 1], "0-2,8"),
        ([1, 2, 4, 5, 7], "1-2,4-5,7"),
    ],
)
def test_sets_are_formatted_as_ranges_and_parsed_back(numbers, text):
    assert format_ranges(numbers) == text
    assert parse_ranges(text) == sorted(set(numbers))


@given(st.sets(st.integers(0, 4096)))
def test_any_set_is_read_back(numbers):
    assert parse_ranges(format_ranges(numbers)) == sorted(numbers)


def test_exclusions_are_removed_at_any_position():
    assert parse_ranges("^2, 0-3,8 ,^8,") == [0, 1, 3]
    assert parse_ranges("0-7,^2-5") == [0, 1, 6, 7]


@pytest.mark.parametrize("text", ["a", "1-b", "1-2-3", "^"])
def test_text_that_is_not_a_set_is_refused(text):
    with pytest.raises(ValueError, match="invalid literal"):
        parse_ranges(text)
