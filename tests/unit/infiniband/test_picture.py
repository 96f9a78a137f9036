# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The picture of a fabric: a cell for each bundle of links with its worst state, and the devices with the most."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import ib_sites
import pytest
import sites
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, SwitchPort, fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import NOT_READ, Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.picture import COLOURS, picture

SVG = "{http://www.w3.org/2000/svg}"
FABRIC = fabric_of(ib_sites.tree(), "compute")


def marked(*marks):
    result = Marks()
    for state, end, reason in marks:
        result.add(state, [end], reason)
    return result


def cells(svg):
    """Return how many cells have each colour, the titles of those with one, and all texts."""
    root = ET.fromstring(svg)
    counts: dict[str, int] = {}
    for path in root.iter(f"{SVG}path"):
        counts[path.get("stroke")] = counts.get(path.get("stroke"), 0) + path.get("d").count("h")
    titles = {rect[0].text: rect.get("fill") for rect in root.iter(f"{SVG}rect") if len(rect)}
    return counts, titles, [text.text for text in root.iter(f"{SVG}text")]


def test_a_plan_has_a_cell_for_each_bundle_and_all_names():
    counts, titles, texts = cells(picture(FABRIC))
    # 4 leaves: one cell for the HCAs of each, and one for each of 2 spines.
    assert (sum(counts.values()), titles) == (4 + 4 * 2, {})
    assert {*FABRIC.switches} <= {*texts}


def test_a_bundle_has_the_state_of_its_worst_link_and_its_reason():
    (low, up), other = FABRIC.uplinks[0], FABRIC.uplinks[1][0]
    marks = marked(("misrouted", low, "uneven"), ("missing", up, "no neighbour"), ("slow", other, "2.5 Gbit/s"))
    counts, titles, texts = cells(picture(FABRIC, marks))
    assert sum(counts.values()) == 12 - 2
    assert list(titles.items()) == [
        (Mentions(low.switch, up.switch, "missing", "no neighbour"), COLOURS["missing"]),
        (Mentions(other.switch, "slow", "2.5 Gbit/s"), COLOURS["slow"]),
    ]
    assert texts[-2:] == [Mentions("no neighbour"), Mentions("2.5 Gbit/s")]


def test_the_device_with_the_most_links_of_a_state_is_first_and_each_link_counts_once():
    ends = [low for low, up in FABRIC.uplinks if up.switch == "spine-2"]
    marks = marked(*(("missing", end, f"{end}: none") for end in ends), ("no route", FABRIC.uplinks[0][0], "no port"))
    lines = [(line.device, line.state, line.links) for line in marks.worst_first(FABRIC)]
    assert lines == [(FABRIC.uplinks[0][0].switch, "no route", 1), ("spine-2", "missing", len(ends))]


def test_links_that_were_not_read_have_no_state_and_names_are_escaped():
    counts, _titles, texts = cells(picture(FABRIC, Marks(read=False)))
    assert counts == {COLOURS[NOT_READ]: 12}
    assert "the cables were not read" in texts
    _counts, titles, _texts = cells(picture(FABRIC, marked(("wrong", FABRIC.uplinks[0][0], "<b>&"))))
    assert list(titles) == [Mentions("<b>&")]


@pytest.mark.parametrize("faulty", [0, 64])
def test_the_picture_of_blue_vela_is_small(faulty):
    fabric = fabric_of(sites.example("blue_vela"), "compute")
    marks = marked(*(("missing", SwitchPort("core-01", port), "none") for port in range(1, faulty + 1)))
    svg = picture(fabric, marks)
    assert len(svg) < 100_000
    counts, titles, _texts = cells(svg)
    assert sum(counts.values()) + len(titles) == 128 + 128 * 4 + 128 * 16
    assert len(titles) == faulty / 2


def test_a_cell_as_planned_takes_few_bytes_and_is_where_its_switches_are():
    # A fabric of 4,096 nodes with 8 rails has 65,536 of them.
    rows = [("leaf-1", f"spine-{number}") for number in range(1, 9)] + [("leaf-2", "spine-1"), ("leaf-2", "spine-8")]
    fabric = Fabric("c", uplinks=[(SwitchPort(low, 1), SwitchPort(up, at)) for at, (low, up) in enumerate(rows)])
    fabric.switches = [*dict.fromkeys(name for row in rows for name in row)]
    root = ET.fromstring(picture(fabric))
    (path,) = [each.get("d") for each in root.iter(f"{SVG}path")]
    assert path == "M110 155h23" + "m1 0h23" * 7 + "M110 179h23m145 0h23"
