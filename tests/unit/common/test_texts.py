# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "a"), (3, "a, b, c"), (4, "a, b, c and 1 more"), (8, "a, b, c and 5 more")]
)
def test_a_long_list_is_shortened_to_its_first_items_and_the_number_of_the_others(count, text):
    assert excerpt(list("abcdefgh")[:count]) == text


def test_the_number_of_items_that_are_named_can_be_given():
    assert excerpt(("a", "b"), 1) == "a and 1 more"
