# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The known types of cables."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.media import MEDIA


def test_stock_lengths_do_not_exceed_the_reach_of_the_medium():
    for medium in MEDIA.values():
        assert list(medium.stock_m) == sorted(set(medium.stock_m))
        assert medium.stock_m[-1] <= max(medium.most_m.values()), medium.name
        assert medium.limit_m(1600) is None


# The maximum lengths in metres by Gbit/s, from the standards and lists that media.py names.
LIMITS_M = {
    "dac": {10: 7, 25: 5, 40: 7, 50: 3, 100: 5, 200: 3, 400: 2, 800: 2},
    "ndr-dac": {400: 3},
    "ndr-acc": {400: 5},
    "ndr-mmf": {400: 50},
    "aoc": {10: 100, 25: 100, 40: 100, 100: 100, 200: 100, 400: 100},
    "mmf": {10: 400, 25: 100, 40: 150, 100: 100, 200: 100, 400: 100, 800: 100},
    "smf": {100: 500, 200: 500, 400: 500, 800: 500},
    "cat6a": {0.1: 100, 1: 100, 2.5: 100, 10: 100},
}
LONG_M = [1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 70, 100]
STOCK_M = {
    "dac": [0.5, 1, 1.5, 2, 2.5, 3, 4, 5],
    "ndr-dac": [0.5, 1, 1.5, 2, 2.5, 3],
    "ndr-acc": [3, 4, 5],
    "ndr-mmf": [3, 5, 7, 10, 15, 20, 25, 30, 35, 40, 50],
    "aoc": LONG_M,
    "mmf": LONG_M,
    "smf": [*LONG_M, 150, 200, 300, 500],
    "cat6a": [0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100],
}


@pytest.mark.parametrize("name", MEDIA)
def test_each_medium_has_the_reach_of_its_standard_and_its_stock_lengths(name):
    speeds = sorted({speed for limits in LIMITS_M.values() for speed in limits})
    assert {speed: MEDIA[name].limit_m(speed) for speed in speeds} == {
        speed: LIMITS_M[name].get(speed) for speed in speeds
    }
    assert list(MEDIA[name].stock_m) == STOCK_M[name]
