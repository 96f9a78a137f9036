# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.picture import picture

# SAILLOFT_WRITE_SITES=1 writes the files again.
FILES = Path(__file__).parent / "harbour"
SVG = "{http://www.w3.org/2000/svg}"


def texts(site):
    root = ET.fromstring(picture(site))
    return [each.text for each in root.iter(f"{SVG}text")]


def test_a_small_site_is_drawn_device_by_device():
    found = texts(sites.site())
    assert "rack-1" in found
    for name in sites.site().devices:
        assert any(f": {name}, " in text for text in found)
    assert "uplink: 16 \u00d7 100G mmf" in found


def test_a_large_site_is_folded():
    found = texts(sites.example("vela"))
    assert [text for text in found if "rack" in text] == ["36 \u00d7 rack-[01-36]", "rack-37"]
    assert "219 \u00d7 gpu_hosts" in found
    assert len(picture(sites.example("blue_vela"))) < 40_000


def test_all_boxes_are_within_the_view_box():
    for name in ("small", "vela", "blue_vela"):
        root = ET.fromstring(picture(sites.example(name)))
        _x, _y, width, height = (float(number) for number in root.get("viewBox").split())
        for each in root.iter(f"{SVG}rect"):
            x, y = float(each.get("x", 0)), float(each.get("y", 0))
            assert x >= 0
            assert x + float(each.get("width")) <= width
            assert y >= 0
            assert y + float(each.get("height")) <= height


def test_no_texts_overlap():
    for name in ("small", "vela", "blue_vela"):
        root = ET.fromstring(picture(sites.example(name)))
        places = sorted((float(each.get("x")), float(each.get("y"))) for each in root.iter(f"{SVG}text"))
        # Letters are 9 high.
        assert [one for one, other in zip(places, places[1:]) if one[0] == other[0] and other[1] - one[1] < 9] == []


def numbers(element, *names):
    return [float(element.get(name, 0)) for name in names]


@pytest.mark.parametrize("name", ["small", "vela", "blue_vela"])
def test_no_line_crosses_a_text_or_a_box(name):
    root = ET.fromstring(picture(sites.example(name)))
    texts = [(*numbers(each, "x", "y"), len(each.text) * 5) for each in root.iter(f"{SVG}text")]
    boxes = [numbers(each, "x", "y", "width", "height") for each in root.iter(f"{SVG}rect")][1:]
    lines = [numbers(each, "x1", "y1", "x2", "y2") for each in root.iter(f"{SVG}line")]
    assert len(lines) > 5
    for x1, y1, x2, y2 in lines:
        assert x1 == x2 or y1 == y2
        assert not [
            text for text in texts if x1 < text[0] + text[2] and x2 > text[0] and y1 < text[1] and y2 > text[1] - 9
        ]
        assert not [
            box for box in boxes if x1 < box[0] + box[2] and x2 > box[0] and y1 < box[1] + box[3] and y2 > box[1]
        ]


@pytest.mark.parametrize("name", ["small", "vela", "blue_vela"])
def test_each_kind_of_a_fabric_has_its_own_colour(name):
    root = ET.fromstring(picture(sites.example(name)))
    elements = list(root)
    kinds = {
        (text.text.partition(" \u00d7 ")[2], box.get("fill"))
        for box, text in zip(elements, elements[1:])
        if box.tag == f"{SVG}rect" and box.get("stroke") and box.get("fill") != "none"
    }
    assert len(kinds) == len({kind for kind, _colour in kinds}) == len({colour for _kind, colour in kinds}) > 3


def test_a_fabric_is_drawn_below_the_racks_and_its_links_in_a_row():
    root = ET.fromstring(picture(sites.site()))
    places = {each.text: (float(each.get("x")), float(each.get("y"))) for each in root.iter(f"{SVG}text")}
    racks = [each for each in root.iter(f"{SVG}rect") if each.get("fill") == "none"]
    bottom = max(float(each.get("y")) + float(each.get("height")) for each in racks)
    _x, y = places["fabric"]
    assert y > bottom
    row = ["4 \u00d7 node", "fabric: 16 \u00d7 100G dac", "4 \u00d7 leaf", "uplink: 16 \u00d7 100G mmf"]
    assert sorted(row, key=lambda text: places[text]) == row
    assert {places[text][1] for text in row[::2]} == {y + 37}


@pytest.mark.parametrize(
    ("old", "before", "after", "longest"),
    [
        # The replaced name in the blueprint, and the text around it in the picture, which is cut where it is too long.
        ("network-{n}", "", "", 36),
        ("spine{n}", "1: ", ", spine", 34),
        ("fabric: fabric", "", "", 40),
        ("uplink:", "", ": 16 \u00d7 100G mmf", 36),
        ("upper", "2 \u00d7 ", "", 26),
    ],
)
def test_a_text_that_is_too_long_for_its_place_is_cut(old, before, after, longest):
    text = sites.TEXT.replace("network: {units", 'network: {name: "network-{n}", units').replace("checks:", "vain:")
    text = (
        text.partition("vain:")[0]
        .replace("  spine: {model: spine,", "  upper: {model: spine,")
        .replace("to: spine", "to: upper")
    )
    assert old in text
    for extra in (0, 1):
        name = "x" * (longest + extra - len(before) - len(after))
        whole = f"{before}{name}{after}"
        # A device's name must differ from the others; every other text is in the picture as it is written.
        new = {"spine{n}": f"{name[:-1]}{{n}}", "fabric: fabric": f"fabric: {name}", "uplink:": f"{name}:"}.get(
            old, name
        )
        wanted = whole.replace(name, f"{name[:-1]}1") if old == "spine{n}" else whole
        shown = wanted if not extra else f"{wanted[: longest - 1]}\u2026"
        found = ET.fromstring(picture(sites.from_text(text.replace(old, new))))
        titles = {each.find(f"{SVG}title").text: each.text for each in found.iter(f"{SVG}text")}
        assert titles[wanted] == shown


def test_links_among_kinds_in_a_ring_are_drawn():
    """Each rule is drawn once."""
    ports = {"names": "Ring[0:31]", "speed_gbit_s": 100}
    ring = {"ports": "ring", "to_ports": "ring", "each": 1, "medium": "aoc", "fabric": "ring"}
    site = sites.site(
        models__leaf__ports__ring=ports,
        models__spine__ports__ring=ports,
        links__one={**ring, "from": "leaf", "to": "spine"},
        links__other={**ring, "from": "spine", "to": "leaf"},
        devices__leaf={**sites.DATA["devices"]["leaf"], "per": "site", "rack": "rack", "name": "leaf{n}"},
        links__fabric=None,
        links__uplink=None,
        checks=None,
    )
    found = [each.text for each in ET.fromstring(picture(site)).iter(f"{SVG}text") if "\u00d7" in each.text]
    assert found == [
        "2 \u00d7 leaf",
        "one: 4 \u00d7 100G aoc",
        "2 \u00d7 spine",
        "other: 4 \u00d7 100G aoc",
        "2 \u00d7 leaf",
    ]


def many_racks(racks, servers):
    """Return the small site with so many racks, one of them for the network, and so many servers in the first ones."""
    return sites.site(
        blocks__rack__count=racks - 1,
        devices__node__total=servers,
        models__spine__ports__down__names="Ethernet[0:99]",
    )


def test_the_picture_of_many_racks_equals_the_stored_file():
    text = picture(many_racks(13, 23))
    assert text == sites.stored(FILES / "many_racks.svg", text)


@pytest.mark.parametrize(
    ("racks", "servers", "headings", "devices"),
    [
        (12, 22, ["network-1", *(f"rack-{at}" for at in range(1, 12))], [f"gpu{at:02}" for at in range(1, 23)]),
        (13, 24, ["network-1", "12 \u00d7 rack-[1-12]"], ["node", "node"]),
        (13, 4, ["network-1", "2 \u00d7 rack-[1-2]", "10 \u00d7 rack-[3-12]"], ["node", "node"]),
        (13, 3, ["network-1", "rack-1", "rack-2", "10 \u00d7 rack-[3-12]"], ["gpu01", "gpu02", "gpu03"]),
    ],
)
def test_racks_with_equal_contents_are_drawn_once_from_13_racks_on(racks, servers, headings, devices):
    found = list(ET.fromstring(picture(many_racks(racks, servers))).iter(f"{SVG}text"))
    assert [each.text for each in found if each.get("font-weight") == "bold"] == [*headings, "fabric"]
    shown = [each.text.partition(": ")[2] for each in found if each.text.endswith(", server")]
    assert shown == [f"{device}, server" for device in devices]
