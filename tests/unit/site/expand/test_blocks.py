# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The positions of blocks and racks."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError


def test_racks_are_placed_in_rows():
    racks = sites.site(floor={"racks_per_row": 2, "rack_width_m": 0.8, "row_pitch_m": 3}).racks
    assert [(rack.name, rack.row, rack.x_m, rack.y_m) for rack in racks] == [
        ("network-1", 0, 0.0, 0),
        ("rack-1", 0, 0.8, 0),
        ("rack-2", 1, 0.0, 3),
    ]
    racks = sites.site(blocks__rack__new_row=True).racks
    assert [rack.row for rack in racks] == [0, 1, 2]


def test_rack_numbers_are_consecutive_over_the_site():
    blocks = {"su": {"count": 2}, "network": {"units": 42}, "rack": {"inside": "su", "count": 2, "units": 42}}
    site = sites.site(blocks=blocks, links=None, checks=None)
    racks = [rack for rack in site.racks if rack.spec.name == "rack"]
    assert [rack.numbers for rack in racks] == [
        {"site": 1, "su": su, "rack": rack} for su, rack in ((1, 1), (1, 2), (2, 3), (2, 4))
    ]


def test_too_many_blocks_are_refused_before_they_are_made():
    with pytest.raises(SiteError, match=r"blocks\.rack\.count: 1000000 blocks exceed the maximum of 400000"):
        sites.site(blocks__rack__count=1_000_000)
