# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Frames of LLDP as switches and others send them; tests/cabling hears the real lldpd."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import lldp
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import Neighbour

HEAD = lldp.GROUP + bytes.fromhex("525400000001") + struct.pack("!H", lldp.ETHERTYPE)
CHASSIS = (1, b"\x04\x52\x54\x00\x00\x00\x01")
BRIDGE, STATION = (7, struct.pack("!HH", 0x14, 0x04)), (7, struct.pack("!HH", 0x94, 0x80))
TTL = (3, struct.pack("!H", 120))


def frame(*values: tuple[int, bytes]) -> bytes:
    return HEAD + b"".join(struct.pack("!H", kind << 9 | len(value)) + value for kind, value in (*values, (0, b"")))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([CHASSIS, (2, b"\x05Ethernet0"), TTL, (5, b"leaf1"), BRIDGE], (Neighbour("leaf1", ("Ethernet0",)), True)),
        # A port's identifier may be its MAC address, which says nothing about its place.
        (
            [CHASSIS, (2, b"\x03\x52\x54\0\0\0\1"), TTL, (4, b"swp1"), (5, b"leaf1")],
            (Neighbour("leaf1", ("swp1",)), False),
        ),
        (
            [CHASSIS, (2, b"\x0711"), TTL, (4, b"Ethernet1/1"), (5, b"leaf1"), STATION],
            (Neighbour("leaf1", ("11", "Ethernet1/1")), False),
        ),
        ([CHASSIS, (2, b"\x05Ethernet0"), (3, b"\0\0"), (5, b"leaf1")], None),
        ([CHASSIS, (2, b"\x05Ethernet0"), TTL], None),
        ([CHASSIS, (2, b"\x05\xff\xfe"), TTL, (5, b"\xff")], (Neighbour("\ufffd", ("\ufffd\ufffd",)), False)),
    ],
)
def test_a_frame_names_its_sender_and_its_port(values, found):
    assert lldp.parse(frame(*values)) == found


@given(st.binary(max_size=600))
def test_no_frame_raises_an_error(data):
    lldp.parse(data)
    lldp.parse(HEAD + data)


def test_a_frame_that_is_cut_off_is_read_as_far_as_it_goes():
    whole = frame(CHASSIS, (2, b"\x05Ethernet0"), TTL, (5, b"leaf1"))
    for length in range(len(whole)):
        lldp.parse(whole[:length])
    assert lldp.parse(b"\0" * 12 + b"\x08\x00" + whole[14:]) is None
