# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Headroom and ECN: the formulas against their sources' own numbers, and how they grow."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.asics import ASICS, Asic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.error import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import Ecn, Headroom

SPECTRUM3 = ASICS["spectrum3"]
SPEEDS = st.sampled_from([1, 2, 5, 10, 25, 40, 50, 100, 200, 400, 800, 1600])
CABLES = st.integers(1, 2000)
MTUS = st.integers(1500, 9216)
ANY_ASIC = st.sampled_from(list(ASICS.values()))


def headroom(asic: Asic, speed: int, cable: int, mtu: int = 9100, own=None) -> Headroom:
    return thresholds.headroom_of(asic, speed, cable, mtu, own or {}, "switch leaf1: port swp1")


def test_the_numbers_that_dcqcn_computes_from_its_formula():
    # Section 4: Trident II, 12 MB of buffer, 32 ports, 8 priorities with 22.4 KB of headroom each, beta 8: alpha 1.
    trident2 = replace(SPECTRUM3, buffer_bytes=12_000_000)
    bound = thresholds.ecn_bound_bytes(trident2, 8 * 32 * 22_400, 32, 8, 0)
    assert float(bound) == pytest.approx(21_750, rel=0.001)


def test_the_mlx5_drivers_number():
    # (301 + 216 * 5 / 100) * 400000 / 1000 + 272 * 9216 / 100, in the driver's whole numbers
    assert thresholds.mlx5_xoff_bytes(400, 5, 9216) == pytest.approx((301 + 10) * 400 + 25_067, rel=0.01)
    assert thresholds.mlx5_xoff_bytes(10, 5, 9216) == thresholds.mlx5_xoff_bytes(40, 5, 9216)


def test_sonics_number():
    # Cells of 144 bytes, 905 quanta: 1024 + 144 / 64 (9216 + 2 * 5 * 4e11 / (8 * 1.98e8) + 819.2 + 57920), in whole KiB
    exact = 1024 + 144 / 64 * (9216 + 2 * 5 * 4e11 / (8 * 1.98e8) + 819.2 + 905 * 64)
    found = thresholds.sonic_xoff_bytes(SPECTRUM3, 400, 5, 9216)
    assert found % 1024 == 0
    assert exact <= found < exact + 1024


@pytest.mark.parametrize(("cable", "xoff"), [(1, 38_912), (5, 38_912), (6, 77_824), (40, 77_824), (41, 373_760)])
def test_headroom_is_that_of_the_next_longer_cable(cable, xoff):
    assert headroom(SPECTRUM3, 400, cable).xoff_bytes == xoff


def test_longer_packets_than_the_profiles_add_to_it():
    base = headroom(SPECTRUM3, 400, 5, 9100)
    assert headroom(SPECTRUM3, 400, 5, 1500) == base
    more = headroom(SPECTRUM3, 400, 5, 9216)
    assert more == replace(base, xoff_bytes=38_912 + 3 * 144)  # 2.72 * 116 bytes are 315.52, in cells of 144


@pytest.mark.parametrize(
    ("speed", "cable", "message"),
    [
        (800, 5, "has no headroom profile for 800 Gbit/s, but for 10, 25, 40, 50, 100, 200, 400"),
        (400, 301, "a cable of 301 m is longer than NVIDIA Spectrum-3's profiles for 400 Gbit/s, which end at 300 m"),
    ],
)
def test_nothing_is_made_up(speed, cable, message):
    with pytest.raises(FabricError) as refused:
        headroom(SPECTRUM3, speed, cable)
    assert str(refused.value).startswith("switch leaf1: port swp1: ")
    assert message in refused.value.why


def test_an_asic_without_profiles():
    with pytest.raises(FabricError, match="no headroom profile for 400 Gbit/s; give the ASIC's profile"):
        headroom(replace(SPECTRUM3, headroom={}), 400, 5)


def test_the_users_own_number():
    own = {(400, 100): 120_000, (400, 10): 60_000}
    assert headroom(SPECTRUM3, 400, 5, own=own) == Headroom(47_104, 60_000, 9_216, 0, 37_888)
    assert headroom(SPECTRUM3, 400, 50, own=own).xoff_bytes == 120_000
    assert headroom(SPECTRUM3, 400, 200, own=own).xoff_bytes == 373_760  # longer than the user's
    assert headroom(SPECTRUM3, 200, 5, own=own).xoff_bytes == 35_840
    assert headroom(SPECTRUM3, 400, 600, own={(400, 600): 800_000}).xoff_bytes == 800_000


@pytest.mark.parametrize("own_bytes", [60, 20_000, 900_000, 60_000_000])
def test_an_own_number_that_is_not_believed(own_bytes):
    with pytest.raises(FabricError) as refused:
        headroom(SPECTRUM3, 400, 5, own={(400, 10): own_bytes})
    least, most = thresholds.band_bytes(SPECTRUM3, 400, 10, 9100)
    sonic = thresholds.sonic_xoff_bytes(SPECTRUM3, 400, 10, 9122)
    mlx5 = thresholds.mlx5_xoff_bytes(400, 10, 9122)
    for number in (own_bytes, least, most, sonic, mlx5):
        assert str(number) in refused.value.why
    assert (min(sonic, mlx5) // 4, max(sonic, mlx5) * 4) == (least, most)


def test_a_profile_that_is_not_believed():
    wrong = replace(SPECTRUM3, headroom={(400, 40): Headroom(0, 77, 0, 0)})
    with pytest.raises(FabricError, match=r"profile of 77 bytes for 400 Gbit/s, 40 m .* is not within"):
        headroom(wrong, 400, 5)


@settings(deadline=None)
@given(ANY_ASIC, SPEEDS, SPEEDS, CABLES, CABLES, MTUS, MTUS)
def test_both_formulas_grow_with_speed_cable_and_mtu(asic, speed, faster, cable, longer, mtu, larger):
    (speed, faster), (cable, longer), (mtu, larger) = (
        sorted([speed, faster]),
        sorted([cable, longer]),
        sorted([mtu, larger]),
    )
    assert thresholds.sonic_xoff_bytes(asic, speed, cable, mtu) <= thresholds.sonic_xoff_bytes(
        asic, faster, longer, larger
    )
    assert thresholds.mlx5_xoff_bytes(speed, cable, mtu) <= thresholds.mlx5_xoff_bytes(faster, longer, larger)
    low, high = thresholds.band_bytes(asic, speed, cable, mtu), thresholds.band_bytes(asic, faster, longer, larger)
    assert 0 < low[0] <= high[0] <= high[1] >= low[1] > low[0]


@settings(deadline=None)
@given(st.data(), ANY_ASIC, MTUS, MTUS)
def test_headroom_grows_with_speed_cable_and_mtu(data, asic, mtu, larger):
    speeds = sorted({speed for speed, _rest in asic.headroom})
    speed, faster = sorted([data.draw(st.sampled_from(speeds)), data.draw(st.sampled_from(speeds))])
    longest = min(max(cable for each, cable in asic.headroom if each == some) for some in (speed, faster))
    cable, longer = sorted([data.draw(st.integers(1, longest)), data.draw(st.integers(1, longest))])
    mtu, larger = sorted([mtu, larger])
    small, great = headroom(asic, speed, cable, mtu), headroom(asic, faster, longer, larger)
    assert small.xoff_bytes <= great.xoff_bytes
    assert (
        small.xoff_bytes % asic.cell_bytes
        == asic.headroom[min(key for key in asic.headroom if key[0] == speed and key[1] >= cable)].xoff_bytes
        % asic.cell_bytes
    )


@settings(deadline=None)
@given(SPEEDS, SPEEDS, MTUS, MTUS)
def test_the_reference_grows_with_speed_and_mtu(speed, faster, mtu, larger):
    (speed, faster), (mtu, larger) = sorted([speed, faster]), sorted([mtu, larger])
    small, great = thresholds.reference_ecn(speed, mtu), thresholds.reference_ecn(faster, larger)
    assert small.minimum_bytes <= great.minimum_bytes
    assert small.minimum_bytes > mtu
    assert small.minimum_bytes % 1000 == 0
    assert small.maximum_bytes == 10 * small.minimum_bytes


def test_the_reference_is_cumulus_at_its_speed():
    assert thresholds.reference_ecn(100, 9100) == Ecn(150_000, 1_500_000, 100)
    assert thresholds.reference_ecn(400, 9100) == Ecn(600_000, 6_000_000, 100)


@settings(deadline=None)
@given(
    st.sampled_from(list(ASICS.values())),
    st.integers(0, 10**7),
    st.integers(1, 128),
    st.integers(3, 8),
    st.integers(-6, 3),
    SPEEDS,
)
def test_what_is_compiled_marks_before_pfc_or_is_refused(asic, taken, ports, classes, exponent, speed):
    """All queues of all ports at the threshold, and one port at its share of what is left: it does not pause yet."""
    bound = thresholds.ecn_bound_bytes(asic, taken, ports, classes, exponent)
    try:
        ecn = thresholds.bounded_ecn(thresholds.reference_ecn(speed, 9100), bound, 9100, "here")
    except FabricError as refused:
        words = str(refused)
    else:
        used = ecn.minimum_bytes * ports * classes
        pause_at = Fraction(2) ** exponent * (asic.buffer_bytes - taken - used)
        assert ports * ecn.minimum_bytes < pause_at
        thresholds.check_ecn(ecn, bound, "here", "roce")
        return
    assert bound <= 10_000
    assert words.startswith("here: to act before PFC, ECN would have to begin below ")


def test_the_bound_lowers_the_whole_of_the_marking():
    ecn = thresholds.bounded_ecn(Ecn(600_000, 6_000_000, 100), Fraction(100_001), 9100, "here")
    assert ecn == Ecn(100_000, 1_000_000, 100)
    # Strictly below.
    assert thresholds.bounded_ecn(Ecn(100_000, 200_000, 100), Fraction(100_000), 9100, "here").minimum_bytes == 99_000
    assert thresholds.bounded_ecn(Ecn(600_000, 6_000_000, 100), Fraction(100_000), 9100, "here").minimum_bytes == 99_000
    assert thresholds.bounded_ecn(Ecn(99_000, 1, 100), Fraction(100_000), 9100, "here") == Ecn(99_000, 1, 100)


def test_own_marking_that_is_too_late():
    with pytest.raises(FabricError, match="its ECN begins at 100000 bytes, and must begin below 100000 here"):
        thresholds.check_ecn(Ecn(100_000, 200_000, 100), Fraction(100_000), "here", "roce")
    thresholds.check_ecn(Ecn(99_999, 200_000, 100), Fraction(100_000), "here", "roce")
