# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Headroom and ECN: the formulas, compared with the numbers of their sources, and their growth."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, Ecn, Headroom
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS, Asic

SPECTRUM3 = ASICS["spectrum3"]
SPEEDS = st.sampled_from([1, 2, 5, 10, 25, 40, 50, 100, 200, 400, 800, 1600])
CABLES = st.integers(1, 2000)
MTUS = st.integers(1500, 9216)
ANY_ASIC = st.sampled_from(list(ASICS.values()))


def headroom(asic: Asic, speed: int, cable: int, mtu: int = 9100, own_xoff=None) -> Headroom:
    return thresholds.headroom_of(asic, speed, cable, mtu, own_xoff or {}, "switch leaf1: port swp1")


def test_pfc_queue_bytes_match_the_dcqcn_paper():
    # Section 4: Trident II, 12 MB of buffer, 32 ports, 8 priorities with 22.4 KB of headroom each, beta 8 (alpha 1).
    bound = thresholds.pfc_queue_bytes(Fraction(12_000_000 - 8 * 32 * 22_400), 32, 8, 0)
    assert float(bound) == pytest.approx(21_750, rel=0.001)


@pytest.mark.parametrize(
    ("asic", "ports", "bytes_"),
    [("spectrum", 32, 35_788), ("spectrum2", 32, 113_616), ("spectrum3", 32, 206_656), ("spectrum4", 64, 264_601)],
)
def test_pfc_queue_bytes_are_computed_from_the_ingress_pool(asic, ports, bytes_):
    """All ports have three classes, and the ingress pool is that of the vendor's file for leaf switches."""
    pool = thresholds.free_bytes(ASICS[asic], thresholds.HeadroomSum(), None, "here")
    assert int(thresholds.pfc_queue_bytes(pool, ports, 3, 0)) == bytes_


def test_the_floor_is_the_bytes_that_may_arrive_after_a_pause():
    # 400 Gbit/s over 300 m: 2 x 9122 + 2 x 300 m x 4e11 / 8 / 1.98e8 m/s + 905 x 64
    assert thresholds.on_cable_bytes(400, 300) == 151_516
    assert thresholds.floor_bytes(400, 300, 9100) == 18_244 + 151_516 + 57_920 == 227_680
    assert thresholds.floor_bytes(100, 5, 1500) == 2 * 1522 + 632 + 394 * 64
    assert thresholds.response_bytes(1600) == thresholds.response_bytes(800) == 905 * 64


# The results of NVIDIA's file (sonic-swss 422271e7e, cfgmgr/buffer_headroom_mellanox.lua), run by Lua 5.1 with the
# cells of platform/mellanox/asic_table.j2 and the traffic of buffers_config.j2 (sonic-buildimage 086b03bd70), MTU 9100,
# 4 lanes. ASIC, Gbit/s; xoff for 3, 30 and 300 m; for 30 m where the ports share a headroom pool.
NVIDIA_RESULTS = """
spectrum 10 19456 19456 23552 17408
spectrum 25 20480 21504 30720 19456
spectrum 40 23552 24576 39936 22528
spectrum 50 25600 27648 46080 25600
spectrum 100 43008 47104 84992 45056
spectrum2 10 21504 21504 25600 19456
spectrum2 25 22528 23552 33792 21504
spectrum2 40 25600 26624 44032 24576
spectrum2 50 27648 29696 51200 27648
spectrum2 100 47104 51200 94208 49152
spectrum2 200 52224 61440 145408 59392
spectrum3 10 21504 21504 25600 19456
spectrum3 25 22528 23552 33792 21504
spectrum3 40 25600 26624 44032 24576
spectrum3 50 27648 29696 51200 27648
spectrum3 100 47104 51200 94208 49152
spectrum3 200 52224 61440 145408 59392
spectrum3 400 89088 106496 274432 104448
spectrum4 10 21504 21504 25600 19456
spectrum4 25 22528 23552 34816 21504
spectrum4 50 28672 30720 52224 28672
spectrum4 100 49152 53248 95232 51200
spectrum4 200 56320 64512 148480 62464
spectrum4 400 96256 113664 281600 111616
spectrum4 800 105472 139264 476160 137216
spectrum5 10 21504 21504 25600 19456
spectrum5 25 22528 23552 34816 21504
spectrum5 50 28672 30720 52224 28672
spectrum5 100 49152 53248 95232 51200
spectrum5 200 56320 64512 148480 62464
spectrum5 400 96256 113664 281600 111616
spectrum6 10 40960 41984 46080 39936
spectrum6 25 41984 44032 55296 41984
spectrum6 100 69632 74752 120832 72704
spectrum6 200 75776 84992 177152 82944
spectrum6 400 115712 134144 318464 132096
spectrum6 800 117760 154624 524288 152576
"""


def test_spectrum_xoff_is_what_nvidias_image_computes():
    for result in NVIDIA_RESULTS.strip().splitlines():
        name, *numbers = result.split()
        speed, *of_cables, with_pool = map(int, numbers)
        asic = ASICS[name]
        assert [thresholds.spectrum_xoff_bytes(asic, speed, cable, 9100) for cable in (3, 30, 300)] == of_cables
        assert thresholds.spectrum_xoff_bytes(replace(asic, headroom_pool_bytes=1), speed, 30, 9100) == with_pool


def test_headroom_of_an_nvidia_switch_is_never_below_the_floor():
    assert thresholds.floor_bytes(100, 3, 9100) == 43_839  # the image computes 43,008
    assert headroom(ASICS["spectrum"], 100, 3).xoff_bytes == 44_032
    assert headroom(SPECTRUM3, 400, 3).xoff_bytes == 89_088


@pytest.mark.parametrize(
    ("speed", "quanta"),
    [(1, 2), (2, 2), (5, 2), (10, 67), (25, 80), (40, 118), (50, 147), (100, 394), (200, 453), (400, 905), (800, 905)],
)
def test_a_peer_obeys_within_the_quanta_of_its_speed(speed, quanta):
    assert thresholds.response_bytes(speed) == quanta * 64


@pytest.mark.parametrize(
    ("cell", "bytes_per_byte"),
    [(96, 2), (128, 2), (129, 3), (144, 3), (192, 3), (193, 4), (256, 4)],  # 193 / 64, rounded up
)
def test_the_worst_packets_take_several_bytes_of_cells_for_each_byte(cell, bytes_per_byte):
    occupancy = 1 + 128 / 1088 * (bytes_per_byte - 1)
    exact = 1024 + occupancy * (9100 + 2 * 5 * 1e11 / (8 * 1.98e8) + 819.2 + 394 * 64)
    asic = replace(SPECTRUM3, cell_bytes=cell, headroom_pool_bytes=1)
    xoff_bytes = thresholds.spectrum_xoff_bytes(asic, 100, 5, 9100)
    assert exact <= xoff_bytes < exact + 1024
    assert xoff_bytes % 1024 == 0


@pytest.mark.parametrize(
    ("asic", "cable", "xoff"),
    [
        ("tomahawk3", 1, 178_562),
        ("tomahawk3", 5, 178_562),
        ("tomahawk3", 6, 178_562 + 3 * 254),  # (201,930 - 178,562) / 35 = 667.7, rounded up to cells of 254 bytes
        ("tomahawk3", 40, 201_930),
        ("tomahawk3", 41, 201_930 + 3 * 254),
        ("tomahawk3", 299, 373_888 - 2 * 254),
        ("spectrum3", 41, 112_640),
        ("spectrum3", 300, 274_432),
    ],
)
def test_headroom_is_interpolated_between_two_cable_lengths(asic, cable, xoff):
    assert headroom(ASICS[asic], 400, cable).xoff_bytes == xoff


def test_packets_longer_than_in_the_profile_add_to_headroom():
    asic = ASICS["tomahawk3"]
    base = headroom(asic, 400, 5, 9100)
    assert headroom(asic, 400, 5, 1500) == base
    assert headroom(asic, 400, 5, 9216) == replace(base, xoff_bytes=178_562 + 2 * 254)  # 2.72 * 116 = 315.52
    assert headroom(SPECTRUM3, 400, 5, 1500) == headroom(SPECTRUM3, 400, 5, 9100)
    assert headroom(SPECTRUM3, 400, 5, 9216).xoff_bytes - headroom(SPECTRUM3, 400, 5, 9100).xoff_bytes in (0, 1024)


@pytest.mark.parametrize(
    ("speed", "cable", "facts"),
    [
        (800, 5, ("800 Gbit/s", "10, 25, 40, 50, 100, 200, 400")),
        (400, 301, ("301 m", "NVIDIA Spectrum-3", "400 Gbit/s", "300 m")),
    ],
)
def test_speeds_and_cables_outside_the_profiles_are_refused(speed, cable, facts):
    with refuses("switch leaf1: port swp1", *facts):
        headroom(SPECTRUM3, speed, cable)


def test_an_asic_without_profiles_is_refused():
    with refuses("switch leaf1: port swp1", "400 Gbit/s", "roce_asics"):
        headroom(replace(SPECTRUM3, headroom={}), 400, 5)


def test_headroom_given_by_the_user_replaces_the_profile():
    own_xoff = {(400, 100): 160_000, (400, 10): 90_000}
    assert headroom(SPECTRUM3, 400, 5, own_xoff=own_xoff) == Headroom(47_104, 90_000, 9_216, 0, 37_888)
    assert headroom(SPECTRUM3, 400, 50, own_xoff=own_xoff).xoff_bytes == 160_000
    assert headroom(SPECTRUM3, 400, 200, own_xoff=own_xoff).xoff_bytes == 211_968  # longer than the user's cables
    assert headroom(SPECTRUM3, 200, 5, own_xoff=own_xoff).xoff_bytes == 53_248
    assert headroom(SPECTRUM3, 400, 600, own_xoff={(400, 600): 800_000}).xoff_bytes == 800_000


def test_user_headroom_below_the_floor_is_refused():
    facts = ("headroom_bytes", 102000, "400 Gbit/s, 300 m", 9100, 227680, 9122, 151516, 57920)
    with refuses("switch leaf1: port swp1", *facts):
        headroom(SPECTRUM3, 400, 250, own_xoff={(400, 300): 102_000})
    assert headroom(SPECTRUM3, 400, 250, own_xoff={(400, 300): 227_680}).xoff_bytes == 227_680
    with refuses("switch leaf1: port swp1", 227679, 227680):
        headroom(SPECTRUM3, 400, 250, own_xoff={(400, 300): 227_679})


def test_user_headroom_above_12_times_the_floor_is_refused():
    minimum = thresholds.floor_bytes(400, 10, 9100)
    assert headroom(SPECTRUM3, 400, 5, own_xoff={(400, 10): 12 * minimum}).xoff_bytes == 12 * minimum
    with refuses("switch leaf1: port swp1", "12 times", minimum, 12 * minimum + 1):
        headroom(SPECTRUM3, 400, 5, own_xoff={(400, 10): 12 * minimum + 1})


def test_a_profile_below_the_floor_is_refused():
    wrong = replace(ASICS["tomahawk3"], headroom={(400, 300): Headroom(0, 150_368, 0, 0)})
    with refuses("switch leaf1: port swp1", "profile", 150368, "400 Gbit/s, 300 m", 227680):
        headroom(wrong, 400, 300)
    assert headroom(wrong, 400, 50).xoff_bytes == 150_368  # the row of the shortest cable also counts for shorter ones


@given(ANY_ASIC, SPEEDS, SPEEDS, CABLES, CABLES, MTUS, MTUS)
def test_formula_and_floor_grow_with_speed_cable_and_mtu(asic, speed, faster, cable, longer, mtu, larger):
    (speed, faster), (cable, longer), (mtu, larger) = (
        sorted([speed, faster]),
        sorted([cable, longer]),
        sorted([mtu, larger]),
    )
    pooled = replace(asic, headroom_pool_bytes=1)
    for computed in (lambda *of: thresholds.spectrum_xoff_bytes(pooled, *of), thresholds.floor_bytes):
        assert 0 < computed(speed, cable, mtu) <= computed(faster, longer, larger)


@given(st.data(), ANY_ASIC, MTUS, MTUS)
def test_headroom_grows_with_speed_cable_and_mtu_and_is_never_below_the_floor(data, asic, mtu, larger):
    speeds = sorted({speed for speed, _rest in asic.headroom})
    speed, faster = sorted([data.draw(st.sampled_from(speeds)), data.draw(st.sampled_from(speeds))])
    longest = min(
        max(cable for row_speed, cable in asic.headroom if row_speed == asic_speed) for asic_speed in (speed, faster)
    )
    cable, longer = sorted([data.draw(st.integers(1, longest)), data.draw(st.integers(1, longest))])
    mtu, larger = sorted([mtu, larger])
    small, great = headroom(asic, speed, cable, mtu), headroom(asic, speed, longer, larger)
    assert small.xoff_bytes <= great.xoff_bytes
    assert small.xoff_bytes <= headroom(asic, faster, longer, larger).xoff_bytes or speed != faster
    assert small.xoff_bytes >= thresholds.floor_bytes(speed, cable, mtu)


@given(SPEEDS, SPEEDS, MTUS, MTUS)
def test_reference_ecn_grows_with_speed_and_mtu(speed, faster, mtu, larger):
    (speed, faster), (mtu, larger) = sorted([speed, faster]), sorted([mtu, larger])
    small, great = thresholds.reference_ecn(speed, mtu), thresholds.reference_ecn(faster, larger)
    assert small.minimum_bytes <= great.minimum_bytes
    assert small.minimum_bytes > mtu
    assert small.minimum_bytes % 1000 == 0
    assert small.maximum_bytes == 10 * small.minimum_bytes


def test_reference_ecn_is_the_cumulus_default_scaled_by_speed():
    assert thresholds.reference_ecn(100, 9122) == Ecn(150_000, 1_500_000, 100)
    assert thresholds.reference_ecn(400, 9122) == Ecn(600_000, 6_000_000, 100)


@given(
    st.integers(10**6, 10**9),
    st.integers(1, 128),
    st.integers(3, 8),
    st.integers(-6, 3),
    SPEEDS,
)
def test_compiled_ecn_marks_20_percent_where_pfc_may_begin_or_is_refused(free, ports, classes, exponent, speed):
    """A port does not pause yet when all queues of all ports have q bytes: its use is its share of the free pool."""
    q = thresholds.pfc_queue_bytes(Fraction(free), ports, classes, exponent)
    assert ports * q == Fraction(2) ** exponent * (free - classes * ports * q)
    if q < 10_200:  # marking begins at one packet or more, in whole kilobytes
        with refuses("here", f"{int(q)} bytes", "9122 bytes"):
            thresholds.bounded_ecn(thresholds.reference_ecn(speed, 9122), q, 9122, "here")
        return
    ecn = thresholds.bounded_ecn(thresholds.reference_ecn(speed, 9122), q, 9122, "here")
    assert thresholds.marked_percent(ecn, q) >= 20
    assert 10_000 <= ecn.minimum_bytes < q
    assert ecn.minimum_bytes < ecn.maximum_bytes <= 10 * ecn.minimum_bytes
    assert ecn.minimum_bytes % 1000 == ecn.maximum_bytes % 1000 == 0
    thresholds.check_ecn(ecn, q, "here", "roce")


def test_the_marked_percentage_depends_on_the_queue_length():
    ecn = Ecn(100_000, 200_000, 50)
    marked = {queue: thresholds.marked_percent(ecn, Fraction(queue)) for queue in (0, 100_000, 140_000, 200_000)}
    assert marked == {0: 0, 100_000: 0, 140_000: 20, 200_000: 50}
    assert thresholds.marked_percent(ecn, Fraction(200_001)) == 100
    assert [thresholds.marked_percent(Ecn(5, 5, 50), Fraction(queue)) for queue in (5, 6)] == [0, 100]


@pytest.mark.parametrize(
    ("pfc_bytes", "ecn"),
    [
        (1_680_000, Ecn(600_000, 6_000_000, 100)),  # exactly 20%
        (1_679_999, Ecn(600_000, 5_999_000, 100)),  # only the end is lowered
        (1_200_000, Ecn(600_000, 3_600_000, 100)),
        (1_000_000, Ecn(500_000, 3_000_000, 100)),  # the minimum is half of the queue
        (8_000, Ecn(5_000, 20_000, 100)),  # the minimum is one packet
    ],
)
def test_the_end_of_marking_is_lowered_before_its_beginning(pfc_bytes, ecn):
    reference = Ecn(600_000, 6_000_000, 100)
    assert thresholds.bounded_ecn(reference, Fraction(pfc_bytes), 4_214, "here") == ecn


def test_a_queue_that_keeps_a_link_busy_grows_with_its_speed():
    assert [thresholds.busy_link_bytes(speed) for speed in (100, 400, 800)] == [14_285, 57_142, 114_285]


def test_user_ecn_thresholds_that_allow_pfc_before_marking_are_refused():
    with refuses("here", "class roce", 35788, "30000 to 300000", "100%", "2.14%", "20%", "minimum_bytes"):
        thresholds.check_ecn(Ecn(30_000, 300_000, 100), Fraction(35_788), "here", "roce")
    thresholds.check_ecn(Ecn(30_000, 58_940, 100), Fraction(35_788), "here", "roce")  # exactly 20%


NEED = thresholds.HeadroomSum(1_000_000, 7_000_000, "1 lossless class on 32 ports")
PLAIN = replace(SPECTRUM3, buffer_bytes=60_000_000, pool_bytes=26_000_000, lossy_pool_bytes=26_000_000)
FIXED = replace(PLAIN, sizes_pools=False)
SHARED = replace(FIXED, lossy_pool_bytes=0, headroom_pool_bytes=3_500_000)


@pytest.mark.parametrize(
    ("asic", "shares", "free"),
    [
        (PLAIN, None, 26_000_000),
        (replace(PLAIN, pool_bytes=27_000_000), None, 26_000_000),  # half of the buffer without the headroom
        (FIXED, None, 26_000_000),
        (SHARED, None, 25_000_000),  # less the reserved buffer of the priorities
        (replace(SHARED, buffer_bytes=26_000_000), None, 21_500_000),  # also less the headroom that is part of the size
        (PLAIN, BufferShares(50), 26_000_000),
        (PLAIN, BufferShares(9, 45), 5_400_000),
    ],
)
def test_free_bytes_are_the_pool_without_headroom(asic, shares, free):
    assert thresholds.free_bytes(asic, NEED, shares, "here") == free


REMEDY = "make a class lossy, use shorter cables or fewer ports, or describe the switch's pools in roce_asics"


@pytest.mark.parametrize(
    ("asic", "shares", "cause"),
    [
        (
            replace(PLAIN, buffer_bytes=8_000_000),
            None,
            "the headroom of 1 lossless class on 32 ports, 8000000 bytes, does not fit into NVIDIA Spectrum-3's buffer "
            "of 8000000",
        ),
        (
            replace(FIXED, pool_bytes=26_000_001),
            None,
            "the headroom of 1 lossless class on 32 ports, 8000000 bytes, and the pools, 26000001 for lossless and "
            "26000000 for lossy packets, are 60000001 together, but NVIDIA Spectrum-3 has 60000000",
        ),
        (
            replace(SHARED, headroom_pool_bytes=3_499_999),
            None,
            "the headroom of 1 lossless class on 32 ports is 7000000 bytes, more than 2 times the pool of 3499999 "
            "bytes that they share on NVIDIA Spectrum-3",
        ),
        (
            replace(SHARED, pool_bytes=1_000_000),
            None,
            "the 1000000 bytes reserved for 1 lossless class on 32 ports leave nothing of NVIDIA Spectrum-3's pool "
            "of 1000000",
        ),
        (
            replace(PLAIN, buffer_bytes=8_000_000),
            BufferShares(50),
            "the headroom of 1 lossless class on 32 ports, 8000000 bytes, does not fit into NVIDIA Spectrum-3's buffer "
            "of 8000000",
        ),
        (
            replace(PLAIN, buffer_bytes=17_777_777),
            BufferShares(9, 45),
            "the headroom of 1 lossless class on 32 ports, 8000000 bytes, does not fit into the 45% that the system "
            "keeps for headroom of the 17777777 that ports share of NVIDIA Spectrum-3's buffer: 7999999",
        ),
    ],
)
def test_headroom_that_does_not_fit_into_buffer_or_pool_is_refused(asic, shares, cause):
    with pytest.raises(FabricError) as refused:
        thresholds.free_bytes(asic, NEED, shares, "switch leaf1")
    assert str(refused.value).startswith(f"switch leaf1: {cause}; ")
    assert refused.value.remedy.endswith(REMEDY)
    assert ("larger part" in refused.value.remedy) == (shares is not None and shares.headroom_percent is not None)


def test_headroom_for_longer_packets_is_rounded_up_to_cells():
    # 2.72 * 116 bytes = 315.52 bytes, slightly more than three cells of 105 bytes.
    asic = replace(ASICS["tomahawk3"], cell_bytes=105, formula=None)
    speed, cable = min(asic.headroom)
    added_bytes = headroom(asic, speed, cable, 9216).xoff_bytes - headroom(asic, speed, cable, 9100).xoff_bytes
    assert added_bytes == 4 * 105


def test_the_lossless_share_is_taken_of_the_buffer_without_headroom():
    need = thresholds.HeadroomSum(SPECTRUM3.buffer_bytes // 8, SPECTRUM3.buffer_bytes // 8, "the ports")
    remaining_bytes = SPECTRUM3.buffer_bytes - need.bytes
    shares = BufferShares(lossless_percent=60, headroom_percent=None)
    assert thresholds.free_bytes(SPECTRUM3, need, shares, "here") == Fraction(remaining_bytes * 60, 100)
