# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The table of ASICs contradicts neither itself nor the formulas, and a user's own rows are held to the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.asics import ASICS, find_asic, read_asics
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.error import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import Headroom

DOCS = Path(__file__).parents[3] / "docs/roce.md"
BROADCOM = [name for name in ASICS if not name.startswith("spectrum")]
OWN = {
    "source": "our lab's switch, show buffer, 2026-02-03",
    "buffer_bytes": 40_000_000,
    "cell_bytes": 208,
    "lossless_classes": 3,
    "headroom": [
        {"speed_gbit_s": 100, "cable_m": 30, "reserved_bytes": 0, "xoff_bytes": 60_000, "alpha_exponent": -1},
    ],
}


@pytest.mark.parametrize("asic", ASICS.values(), ids=list(ASICS))
def test_each_row_has_a_source_and_whole_numbers(asic):
    assert re.search(r"device/[^ ]+|pg_profile_lookup.ini \([0-9a-f]{8}\)", asic.source)
    assert len(re.findall(r"\([0-9a-f]{8}", asic.source)) >= 2
    assert asic.headroom
    for headroom in asic.headroom.values():
        assert min(headroom.reserved_bytes, headroom.xoff_bytes) > 0
        assert 0 <= headroom.xon_offset_bytes <= 2 * headroom.reserved_bytes


@pytest.mark.parametrize("asic", ASICS.values(), ids=list(ASICS))
def test_the_documentation_has_it(asic):
    def listed(numbers):
        return ", ".join(map(str, sorted(set(numbers))))

    cells = [f"`{asic.name}`", asic.title, f"{asic.buffer_bytes:,}", str(asic.cell_bytes)]
    cells += [listed(speed for speed, _rest in asic.headroom), listed(cable for _rest, cable in asic.headroom)]
    cells += [listed(each.alpha_exponent for each in asic.headroom.values())]
    assert f"\n| {' | '.join(cells)} | `" in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BROADCOM)
def test_a_profile_counts_in_the_cells_of_its_asic(name):
    asic = ASICS[name]
    for headroom in asic.headroom.values():
        for number in (headroom.reserved_bytes, headroom.xoff_bytes, headroom.xon_offset_bytes, headroom.xon_bytes):
            assert number % asic.cell_bytes == 0


@pytest.mark.parametrize("asic", ASICS.values(), ids=list(ASICS))
def test_headroom_grows_with_speed_and_cable(asic):
    for (speed, cable), headroom in asic.headroom.items():
        for (other_speed, other_cable), other in asic.headroom.items():
            if other_speed >= speed and other_cable >= cable:
                assert other.xoff_bytes >= headroom.xoff_bytes


def test_the_band_holds_every_profile_and_is_no_wider_than_that_needs():
    ratios = []
    for asic in ASICS.values():
        for (speed, cable), headroom in asic.headroom.items():
            least, most = thresholds.band_bytes(asic, speed, cable, 9100)
            assert least <= headroom.xoff_bytes <= most, (asic.name, speed, cable)
            ratios += [least * thresholds.BAND_FACTOR / headroom.xoff_bytes]
            ratios += [headroom.xoff_bytes / (most / thresholds.BAND_FACTOR)]
    assert 3 < max(ratios) < thresholds.BAND_FACTOR


def test_vendors_own_profiles_in_our_terms():
    # size 86016, xon 37888, xoff 38912: a port of 8 lanes; and one of 4: 55296, 19456, 35840
    assert ASICS["spectrum3"].headroom[400, 5] == Headroom(47_104, 38_912, 9_216, 0, 37_888)
    assert ASICS["spectrum3"].headroom[200, 5] == Headroom(19_456, 35_840, 0, 0, 19_456)
    assert ASICS["spectrum4"].headroom[800, 5] == Headroom(47_104, 257_024, 8_192, 0, 38_912)
    assert ASICS["tomahawk3"].headroom[400, 40] == Headroom(2_540, 201_930, 2_540, -2, 2_540)
    assert ASICS["tomahawk4"].headroom[400, 5] == Headroom(18_796, 150_368, 3_556, -2, 3_556)
    assert ASICS["tomahawk5"].headroom[400, 5] == Headroom(8_636, 425_958, 3_556, 0, 0)


def test_an_end_of_pauses_of_the_users_own():
    assert read_asics(changed({"reserved_bytes": 9, "xon_offset_bytes": 2}))["nexus"].headroom[100, 30].xon_bytes == 7
    assert read_asics(changed({"reserved_bytes": 9, "xon_bytes": 4}))["nexus"].headroom[100, 30].xon_bytes == 4


def test_an_own_row():
    asics = read_asics({"nexus": OWN})
    assert set(asics) == {*ASICS, "nexus"}
    assert (asics["nexus"].title, asics["nexus"].unicast_queues) == ("nexus", 8)
    assert asics["nexus"].headroom == {(100, 30): Headroom(0, 60_000, 0, -1)}
    assert read_asics({"spectrum4": OWN})["spectrum4"].buffer_bytes == 40_000_000
    assert read_asics(None) == dict(ASICS)


def changed(row=None, **settings):
    own = {**OWN, **settings}
    if row is not None:
        own["headroom"] = [{**OWN["headroom"][0], **row}]
    return {"nexus": {name: value for name, value in own.items() if value is not None}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([OWN], "roce_asics: not a dictionary"),
        ({"nexus": 5}, "roce_asics: nexus: not a dictionary"),
        (changed(source=None), "nexus: source is missing; say which document"),
        (changed(source=5), "source 5 is not a text"),
        (changed(buffer_bytes=None), "buffer_bytes is missing"),
        (changed(cell_bytes=0), "cell_bytes 0 is not a whole number"),
        (changed(lossless_classes=9), "lossless_classes 9 is not"),
        (changed(unicast_queues="8"), "unicast_queues '8' is not"),
        (changed(cells=3), "unknown setting 'cells'"),
        (changed(headroom={}), "headroom is not a list"),
        (changed(headroom=OWN["headroom"] * 2), "headroom, row 2: 100 Gbit/s and 30 m are there twice"),
        (changed({"speed_gbit_s": 120}), "headroom, row 1: speed_gbit_s 120 is no speed of Ethernet"),
        (changed({"cable_m": 0}), "cable_m 0 is not"),
        (changed({"xoff_bytes": None}), "xoff_bytes is missing"),
        (changed({"alpha_exponent": 9}), "alpha_exponent 9 is not"),
        (changed({"size": 9}), "row 1: unknown setting 'size'"),
    ],
)
def test_an_own_row_refused(given, message):
    with pytest.raises(FabricError) as refused:
        read_asics(given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "why"), [("trident9", "'trident9' is unknown"), (None, "is missing"), ([], "unknown")]
)
def test_an_unknown_asic_is_refused_with_those_that_there_are(name, why):
    with pytest.raises(FabricError) as refused:
        find_asic(ASICS, name, "switch leaf1")
    assert str(refused.value).startswith("switch leaf1: ")
    assert why in refused.value.why
    assert "jericho2, spectrum, spectrum2" in refused.value.mend
    assert "roce_asics" in refused.value.mend
