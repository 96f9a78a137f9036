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


def test_a_fabric_is_drawn_below_the_racks_with_its_texts_in_place():
    root = ET.fromstring(picture(sites.site()))
    places = {each.text: (float(each.get("x")), float(each.get("y"))) for each in root.iter(f"{SVG}text")}
    racks = [each for each in root.iter(f"{SVG}rect") if each.get("fill") == "none"]
    assert places["rack-1"][1] == float(racks[0].get("y")) - 6
    bottom = max(float(each.get("y")) + float(each.get("height")) for each in racks)
    assert places["fabric"] == (20, bottom + 40)
    # A kind's box begins 20 below the heading, and is 140 wide and 28 high; the next kind is 320 to the right.
    x, y = places["fabric"]
    assert places["4 \u00d7 node"] == (x + 6, y + 37)
    assert places["4 \u00d7 leaf"] == (x + 326, y + 37)
    assert places["fabric: 16 \u00d7 100G dac"] == (x + 146, y + 30)
    assert places["uplink: 16 \u00d7 100G mmf"] == (x + 466, y + 30)


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
    """Columns are limited to the number of link rules."""
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
    root = ET.fromstring(picture(site))
    places = {each.text: (float(each.get("x")), float(each.get("y"))) for each in root.iter(f"{SVG}text")}
    x, y = places["ring"]
    assert {text: (at[0] - x, at[1] - y) for text, at in places.items() if "\u00d7" in text} == {
        "2 \u00d7 leaf": (6, 37),
        "2 \u00d7 spine": (6, 83),
        "one: 4 \u00d7 100G aoc": (146, 30),
        "other: 4 \u00d7 100G aoc": (146, 76),
    }


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
