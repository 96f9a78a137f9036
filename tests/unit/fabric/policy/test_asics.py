# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The table of ASICs contradicts neither itself nor the formulas, and a user's own rows must not, either."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Headroom
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asics import find_asic, read_asics
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan

DOCS = Path(__file__).parents[4] / "docs/reference/roce-policy.md"
BROADCOM = [name for name in ASICS if not name.startswith("spectrum")]
OWN = {
    "source": "our lab's switch, show buffer, 2026-02-03",
    "buffer_bytes": 40_000_000,
    "pool_bytes": 30_000_000,
    "cell_bytes": 208,
    "lossless_classes": 3,
    "headroom": [
        {"speed_gbit_s": 100, "cable_m": 30, "reserved_bytes": 0, "xoff_bytes": 60_000, "alpha_exponent": -1},
    ],
}


@pytest.mark.parametrize("asic", ASICS.values(), ids=list(ASICS))
def test_each_row_has_a_source_and_valid_numbers(asic):
    assert re.search(r"^device/[^ ]+( \([^)]*\))?: pg_profile_lookup.ini", asic.source)
    assert re.search(r"\([0-9a-f]{10}", asic.source)
    assert asic.headroom
    for headroom in asic.headroom.values():
        assert headroom.xoff_bytes > 0
        assert min(headroom.reserved_bytes, headroom.xon_offset_bytes, headroom.xon_bytes) >= 0


@pytest.mark.parametrize("asic", ASICS.values(), ids=list(ASICS))
def test_the_pools_fit_into_the_buffer(asic):
    assert 0 < asic.shared_bytes <= asic.pool_bytes <= asic.buffer_bytes
    assert asic.shared_bytes + asic.headroom_pool_bytes + asic.lossy_pool_bytes <= asic.buffer_bytes
    assert bool(asic.formula) == asic.sizes_pools == asic.name.startswith("spectrum")
    assert bool(asic.headroom_pool_bytes) != asic.sizes_pools


@pytest.mark.parametrize("asic", ASICS.values(), ids=list(ASICS))
def test_rows_of_a_vendor_have_common_values(asic):
    """The table's header states them: NVIDIA's ingress pools are half each, Broadcom's lossy packets have none.

    The only file of Spectrum-5 is of a SKU whose lossy packets use the lossless pool.
    """
    assert (asic.lossless_classes, asic.unicast_queues) == (2, 8)
    halves = asic.name.startswith("spectrum") and asic.name != "spectrum5"
    assert asic.lossy_pool_bytes == (asic.pool_bytes if halves else 0)
    assert bool(asic.formula) == asic.name.startswith("spectrum")
    assert asic.alpha_exponent is None


def test_shared_bytes_exclude_headroom_that_the_pool_includes():
    assert ASICS["tomahawk3"].shared_bytes == 66_394_076 - 27_200_352
    assert ASICS["trident3"].shared_bytes == 26_284_032  # with 6,291,456 of headroom it fits into the buffer
    assert ASICS["spectrum3"].shared_bytes == 26_451_968


@pytest.mark.parametrize("asic", ASICS.values(), ids=list(ASICS))
def test_the_documentation_lists_each_asic(asic):
    def listed(numbers):
        return ", ".join(map(str, sorted(set(numbers))))

    cells = [f"`{asic.name}`", asic.title, f"{asic.buffer_bytes:,}", f"{asic.shared_bytes:,}"]
    cells += [f"{asic.headroom_pool_bytes:,}" if asic.headroom_pool_bytes else "-", str(asic.cell_bytes)]
    cells += [listed(speed for speed, _rest in asic.headroom), listed(cable for _rest, cable in asic.headroom)]
    cells += [listed(row.alpha_exponent for row in asic.headroom.values())]
    assert f"\n| {' | '.join(cells)} | `" in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BROADCOM)
def test_profile_sizes_are_multiples_of_the_cell_size(name):
    asic = ASICS[name]
    exceptions = {("tomahawk5", 833_536), ("jericho2", 181_753), ("jericho2", 363_506), ("jericho2", 1_454_025)}
    for headroom in asic.headroom.values():
        for number in (headroom.reserved_bytes, headroom.xoff_bytes, headroom.xon_offset_bytes, headroom.xon_bytes):
            assert number % asic.cell_bytes == 0 or (name, number) in exceptions


@pytest.mark.parametrize("asic", ASICS.values(), ids=list(ASICS))
def test_headroom_grows_with_speed_and_cable(asic):
    for (speed, cable), headroom in asic.headroom.items():
        for (other_speed, other_cable), other_headroom in asic.headroom.items():
            if other_speed >= speed and other_cable >= cable:
                assert other_headroom.xoff_bytes >= headroom.xoff_bytes


@pytest.mark.parametrize("asic", ASICS.values(), ids=list(ASICS))
def test_planned_headroom_is_the_vendors(asic):
    """The planned headroom is Broadcom's row, or NVIDIA's formula, but no less than what can arrive."""
    for (speed, cable), row in asic.headroom.items():
        planned = thresholds.headroom_of(asic, speed, cable, 9100, {}, "here")
        if asic.formula:
            floor = -(-thresholds.floor_bytes(speed, cable, 9100) // 1024) * 1024
            assert planned.xoff_bytes == max(floor, thresholds.spectrum_xoff_bytes(asic, speed, cable, 9100))
            assert planned.reserved_bytes == row.reserved_bytes
        else:
            assert planned == row
        assert thresholds.floor_bytes(speed, cable, 9100) <= planned.xoff_bytes
        assert planned.xoff_bytes <= thresholds.CEILING_FACTOR * thresholds.floor_bytes(speed, 1, 9100) or cable > 40


def test_only_rows_of_spectrum_asics_are_below_the_headroom_floor():
    wrong_rows = [
        (asic.name, speed, cable)
        for asic in ASICS.values()
        for (speed, cable), row in asic.headroom.items()
        if row.xoff_bytes < thresholds.floor_bytes(speed, cable, 9100)
    ]
    assert all(name.startswith("spectrum") and name != "spectrum4" for name, _speed, _cable in wrong_rows)
    assert ("spectrum3", 400, 40) in wrong_rows


def test_vendor_profiles_are_converted_to_headroom():
    # size 86016, xon 37888, xoff 38912: a port of 8 lanes; and one of 4: 55296, 19456, 35840
    assert ASICS["spectrum3"].headroom[400, 5] == Headroom(47_104, 38_912, 9_216, 0, 37_888)
    assert ASICS["spectrum3"].headroom[200, 5] == Headroom(19_456, 35_840, 0, 0, 19_456)
    assert ASICS["spectrum4"].headroom[800, 5] == Headroom(47_104, 257_024, 8_192, 0, 38_912)
    assert ASICS["tomahawk3"].headroom[400, 40] == Headroom(2_540, 201_930, 2_540, -2, 2_540)
    assert ASICS["tomahawk4"].headroom[400, 300] == Headroom(9_144, 817_372, 9_144, 0, 9_144)
    assert ASICS["tomahawk5"].headroom[800, 40] == Headroom(8_636, 833_536, 3_556, 0, 0)
    assert ASICS["jericho2"].headroom[400, 300] == Headroom(0, 315_392, 1_454_025, -5, 2_560)


def test_a_user_row_may_set_xon_bytes_or_xon_offset_bytes():
    assert read_asics(changed({"reserved_bytes": 9, "xon_offset_bytes": 2}))["nexus"].headroom[100, 30].xon_bytes == 7
    assert read_asics(changed({"reserved_bytes": 9, "xon_bytes": 4}))["nexus"].headroom[100, 30].xon_bytes == 4


def test_a_user_row_is_added_or_replaces_a_known_asic():
    asics = read_asics({"nexus": OWN})
    assert set(asics) == {*ASICS, "nexus"}
    assert (asics["nexus"].title, asics["nexus"].unicast_queues) == ("nexus", 8)
    assert asics["nexus"].headroom == {(100, 30): Headroom(0, 60_000, 0, -1)}
    assert read_asics({"spectrum4": OWN})["spectrum4"].buffer_bytes == 40_000_000
    assert read_asics(None) == dict(ASICS)


LIKE = {"like": "spectrum3", "source": "show buffer configuration, 2026-02-03"}


def test_a_user_row_may_copy_an_asic_and_change_its_pools():
    asic = read_asics({"sn4700": {**LIKE, "pool_bytes": 20_000_000, "lossy_pool_bytes": 9_000_000}})["sn4700"]
    base = ASICS["spectrum3"]
    assert (asic.pool_bytes, asic.lossy_pool_bytes, asic.sizes_pools) == (20_000_000, 9_000_000, False)
    assert (asic.name, asic.title, asic.source) == ("sn4700", base.title, LIKE["source"])
    assert (asic.headroom, asic.formula, asic.buffer_bytes) == (base.headroom, base.formula, base.buffer_bytes)
    assert read_asics({"sn4700": LIKE})["sn4700"].sizes_pools
    assert read_asics({"sn4700": {**LIKE, "headroom": OWN["headroom"]}})["sn4700"].formula is None


def test_a_user_row_may_omit_headroom():
    asic_settings = {"source": "a test", "buffer_bytes": 9_000_000, "pool_bytes": 4_000_000, "cell_bytes": 208}
    asic = read_asics({"nexus": {**asic_settings, "lossless_classes": 1, "alpha_exponent": -1}})["nexus"]
    assert (asic.headroom, asic.alpha_exponent) == ({}, -1)


def test_the_documentation_has_a_whole_asic_for_cisco():
    text = DOCS.read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(# group_vars/all.yml; the numbers.*?)```", text, re.DOTALL)
    example = yaml.safe_load(block)
    ports = {f"Ethernet1/{number}": {"speed_gbit_s": 100, "cable_m": 10} for number in range(1, 37)}
    switch = {"system": example["roce_switch_system"], "asic": example["roce_switch_asic"], "ports": ports}
    for exponent in (-2, 0):
        example["roce_asics"]["n9336c_fx2"]["alpha_exponent"] = exponent
        wanted = plan(read_policy({}), read_switches({"spine1": switch}, asics=example["roce_asics"]))["spine1"]
        ecn = wanted.ports["Ethernet1/1"].queues[3].ecn
        assert f"from {ecn.minimum_bytes:,} to {ecn.maximum_bytes:,}" in text.replace(" bytes with", " with")


def changed(row=None, **settings):
    asic_settings = {**OWN, **settings}
    if row is not None:
        asic_settings["headroom"] = [{**OWN["headroom"][0], **row}]
    return {"nexus": {name: value for name, value in asic_settings.items() if value is not None}}


@pytest.mark.parametrize("speed", [1, 2, 5, 10, 25, 40, 50, 100, 200, 400, 800, 1600])
def test_a_user_row_may_have_any_ethernet_speed(speed):
    assert set(read_asics(changed({"speed_gbit_s": speed}))["nexus"].headroom) == {(speed, 30)}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ([OWN], "roce_asics: not a dictionary"),
        ({"nexus": 5}, "roce_asics: nexus: not a dictionary"),
        (changed(source=None), "roce_asics: nexus: source is missing; set it"),
        (changed(source=5), "source: 5 is not text"),
        (changed(source=""), "nexus: source: the text is empty; give it a value"),
        (changed(source="a\nb"), "nexus: source: 'a\\nb' contains '\\n', which is not a printable character"),
        (changed(buffer_bytes=None), "buffer_bytes is missing"),
        (
            changed(buffer_bytes=40_000),
            "40000 is not valid; use a whole number from 1000000 to 64000000000",
        ),
        (changed(pool_bytes=None), "pool_bytes is missing"),
        (changed(pool_bytes=41_000_000), "pool_bytes 41000000 is more than the whole buffer of 40000000; correct"),
        (
            changed(headroom_pool_bytes=30_000_000),
            "headroom_pool_bytes 30000000 leaves nothing of pool_bytes 30000000; correct the one that is wrong",
        ),
        (
            {"mine": {**LIKE, "like": "spectrum9"}},
            "mine: like: 'spectrum9' is unknown",
        ),
        (changed(cell_bytes=0), "cell_bytes: 0 is not valid"),
        (changed(lossless_classes=9), "lossless_classes: 9 is not valid"),
        (changed(unicast_queues="8"), "unicast_queues: '8' is not valid"),
        (changed(cells=3), "unknown setting 'cells'"),
        (changed(headroom={}), "is not a list"),
        (changed(headroom=OWN["headroom"] * 2), "headroom[1]: 100 Gbit/s and 30 m are listed twice"),
        (changed({"speed_gbit_s": 120}), "headroom[0]: speed_gbit_s: 120 is unknown"),
        (changed({"cable_m": 0}), "cable_m: 0 is not valid"),
        (changed({"xoff_bytes": None}), "xoff_bytes is missing"),
        (changed({"alpha_exponent": 9}), "alpha_exponent: 9 is not valid"),
        (changed({"size": 9}), "headroom[0]: unknown setting 'size'"),
    ],
)
def test_an_invalid_user_row_is_refused(variable, message):
    with pytest.raises(FabricError) as refused:
        read_asics(variable)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "fact"), [("trident9", "'trident9' is unknown"), (None, "is missing"), ([], "unknown")]
)
def test_an_unknown_asic_is_refused_and_the_known_asics_are_listed(name, fact):
    with pytest.raises(FabricError) as refused:
        find_asic(ASICS, name, "switch leaf1")
    assert str(refused.value).startswith("switch leaf1: ")
    assert fact in refused.value.cause
    assert "jericho2, spectrum, spectrum2" in refused.value.remedy
    assert "roce_asics" in refused.value.remedy
