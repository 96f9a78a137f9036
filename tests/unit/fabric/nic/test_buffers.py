# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The sizes of a NIC's ingress buffers, computed as its driver computes them."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.buffers import (
    buffers,
    lossless_bytes,
    xoff_bytes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb, SeenNic

NIC = Nic("mlx5_0", "eth0")
LOSSLESS_BYTES = 159_744  # at 400 Gbit/s over 5 m with packets of 9000 bytes


@pytest.mark.parametrize(
    ("speed", "cable", "mtu", "size"),
    [
        (400, 5, 9000, (301 + 10) * 400 + 24_480),
        (400, 1, 9000, (301 + 2) * 400 + 24_480),
        (400, 100, 9000, (301 + 216) * 400 + 24_480),
        (400, 1000, 9000, (301 + 2160) * 400 + 24_480),
        (40, 5, 9000, (301 + 10) * 40 + 24_480),
        (41, 5, 9000, (301 + 10) * 41 + 24_480),
        (39, 5, 9000, (301 + 10) * 40 + 24_480),
        (1, 5, 9000, (301 + 10) * 40 + 24_480),
        (400, 5, 100, (301 + 10) * 400 + 272),
        (400, 5, 99, (301 + 10) * 400 + 269),
    ],
)
def test_xoff_follows_from_speed_cable_and_packet(speed, cable, mtu, size):
    assert xoff_bytes(speed, cable, mtu) == size


@pytest.mark.parametrize(
    ("speed", "cable", "mtu", "size"),
    [
        (400, 5, 9000, LOSSLESS_BYTES),
        (400, 35, 9082, 184_320),  # xoff, a frame and a cell are exactly 45 times the grain
        (40, 84, 9100, 57_344),  # they are one byte more than 13 times the grain
    ],
)
def test_a_lossless_buffer_is_a_multiple_of_the_grain(speed, cable, mtu, size):
    assert lossless_bytes(speed, cable, mtu) == size


def buffered(seen_dcb, lossless=(3,), speed=400):
    return buffers(SeenNic(NIC, seen_dcb), lossless, speed, 5, 9000)


def dcb(now, total=None):
    return Dcb("dcb", buffer_bytes=(now, 1, 2, 3, 4, 5, 6, 7), buffer_total_bytes=total)


def test_each_lossless_priority_has_its_own_buffer():
    assert buffered(dcb(262_144)) == ((0, 0, 0, 1, 0, 0, 0, 0), (262_144, LOSSLESS_BYTES, 0, 0, 0, 0, 0, 0))
    assert buffered(dcb(262_144), (0, 7)) == (
        (1, 0, 0, 0, 0, 0, 0, 2),
        (262_144, LOSSLESS_BYTES, LOSSLESS_BYTES, 0, 0, 0, 0, 0),
    )


@pytest.mark.parametrize(
    ("now", "total", "expected"),
    [
        (262_144, 1 << 20, 262_144),
        (262_144, 262_144 + LOSSLESS_BYTES, 262_144),
        (262_144, 262_143 + LOSSLESS_BYTES, 262_144 - 4096),
        (1 << 20, LOSSLESS_BYTES + 20_480, 20_480),
        (18_432, None, 18_432),
        (18_432, 1 << 20, 18_432),
    ],
)
def test_the_shared_buffer_keeps_its_size_or_gets_what_is_left(now, total, expected):
    assert buffered(dcb(now, total))[1][0] == expected


def test_the_buffers_of_all_lossless_priorities_are_taken_from_the_ports_bytes():
    assert buffered(dcb(1 << 20, 3 * LOSSLESS_BYTES), (0, 3))[1][0] == LOSSLESS_BYTES


@pytest.mark.parametrize(
    ("now", "total", "remaining", "of"),
    [
        (18_431, None, 18_431, 18_431),
        (262_144, LOSSLESS_BYTES + 20_479, 16_384, LOSSLESS_BYTES + 20_479),
        (262_144, LOSSLESS_BYTES - 1, 0, LOSSLESS_BYTES - 1),
        (0, None, 0, 0),
    ],
)
def test_a_shared_buffer_of_less_than_two_frames_is_refused(now, total, remaining, of):
    with raises(FabricError, "mlx5_0", "eth0", "400", "5", LOSSLESS_BYTES, remaining, of, "cable_m"):
        buffered(dcb(now, total))


def test_a_nic_whose_buffers_are_unknown_is_refused():
    for unknown in (None, Dcb("dcb")):
        with raises(FabricError, "0", "None bytes"):
            buffered(unknown)
