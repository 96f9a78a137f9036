# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Blocks, their numbers and names, and the places of racks on the floor."""

from __future__ import annotations

import pytest
import sites
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand import blocks as module

# Two units of two racks each, and the rack for the network before them.
UNITS = {"network": {"units": 42}, "su": {"count": 2}, "rack": {"inside": "su", "count": 2, "units": 42}}


def site(**changes):
    return sites.site(blocks=UNITS, links=None, checks=None, **changes)


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        # Racks of 0.6 m in rows of ten, 2.4 m apart.
        ({}, [(0, 0, 0), (0, 0.6, 0), (0, 1.2, 0), (0, 1.8, 0), (0, 2.4, 0)]),
        ({"floor__racks_per_row": 2}, [(0, 0, 0), (0, 0.6, 0), (1, 0, 2.4), (1, 0.6, 2.4), (2, 0, 4.8)]),
        ({"floor__racks_per_row": 5}, [(0, 0, 0), (0, 0.6, 0), (0, 1.2, 0), (0, 1.8, 0), (0, 2.4, 0)]),
        ({"floor__racks_per_row": 1}, [(0, 0, 0), (1, 0, 2.4), (2, 0, 4.8), (3, 0, 7.2), (4, 0, 9.6)]),
        (
            {"floor__rack_width_m": 0.8, "floor__row_pitch_m": 3, "floor__racks_per_row": 3},
            [(0, 0, 0), (0, 0.8, 0), (0, 1.6, 0), (1, 0, 3), (1, 0.8, 3)],
        ),
        # Each unit begins a row, and so does the fourth rack of a row.
        ({"blocks__su__new_row": True}, [(0, 0, 0), (1, 0, 2.4), (1, 0.6, 2.4), (2, 0, 4.8), (2, 0.6, 4.8)]),
        (
            {"blocks__su__new_row": True, "floor__racks_per_row": 2},
            [(0, 0, 0), (1, 0, 2.4), (1, 0.6, 2.4), (2, 0, 4.8), (2, 0.6, 4.8)],
        ),
        ({"blocks__rack__new_row": True}, [(0, 0, 0), (1, 0, 2.4), (2, 0, 4.8), (3, 0, 7.2), (4, 0, 9.6)]),
        # A row begins only where the row before it has a rack.
        ({"blocks__network__new_row": True}, [(0, 0, 0), (0, 0.6, 0), (0, 1.2, 0), (0, 1.8, 0), (0, 2.4, 0)]),
    ],
)
def test_racks_are_placed_in_rows(changes, places):
    racks = site(**changes).racks
    assert [rack.name for rack in racks] == ["network-1", "rack-1", "rack-2", "rack-3", "rack-4"]
    assert [(rack.row, round(rack.x_m, 9), round(rack.y_m, 9)) for rack in racks] == places


def test_blocks_are_numbered_over_the_site_and_in_their_block():
    found = site(blocks__su__name="su{n}", blocks__rack__name="r{n:02}-{i}")
    assert [(rack.name, rack.kind, rack.numbers) for rack in found.racks] == [
        ("network-1", "network", {"site": 1, "network": 1}),
        ("r01-1", "rack", {"site": 1, "su": 1, "rack": 1}),
        ("r02-2", "rack", {"site": 1, "su": 1, "rack": 2}),
        ("r03-1", "rack", {"site": 1, "su": 2, "rack": 3}),
        ("r04-2", "rack", {"site": 1, "su": 2, "rack": 4}),
    ]
    assert (found.root.name, found.root.kind, found.root.numbers) == ("test", "site", {"site": 1})
    assert [block.name for block in found.root.children] == ["network-1", "su1", "su2"]
    assert [rack.name for rack in found.root.children[2].children] == ["r03-1", "r04-2"]


@pytest.mark.parametrize(
    ("block", "kind", "racks"),
    [
        ("site", "rack", ["rack-1", "rack-2", "rack-3", "rack-4"]),
        ("site", "network", ["network-1"]),
        ("su-2", "rack", ["rack-3", "rack-4"]),
        ("su-2", "network", []),
        ("rack-2", "rack", ["rack-2"]),
    ],
)
def test_the_racks_in_a_block_are_found(block, kind, racks):
    root = site().root
    blocks = {each.name: each for su in root.children for each in (su, *su.children)}
    found = module.racks_in(root if block == "site" else blocks[block], kind)
    assert [rack.name for rack in found] == racks


def test_only_a_rack_has_properties_of_a_rack():
    root = site().root
    assert root.children[0].rack_spec.units == 42
    for block, name in ((root, "test"), (root.children[1], "su-1")):
        with pytest.raises(AssertionError, match=f"{name} is no rack"):
            assert block.rack_spec


def test_too_many_blocks_are_refused_before_they_are_made():
    with raises(SiteError, "blocks.rack.count", "1000000", "400000"):
        sites.site(blocks__rack__count=1_000_000)


def test_the_blocks_of_a_kind_are_counted_over_the_site(monkeypatch):
    monkeypatch.setattr(module, "DEVICES_MAX", 4)
    assert len(site().racks) == 5
    with raises(SiteError, "blocks.rack.count", "6", "4"):
        site(blocks__rack__count=3)
