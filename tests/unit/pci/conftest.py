# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from typing import Callable

import pytest
from recorded_config import recorded_bytes

from ansible_collections.sailloft.fleet.plugins.module_utils.pci.config import ConfigSpace


@pytest.fixture
def recorded() -> Callable[[str], ConfigSpace]:
    """Return a function that reads the recorded config space of a function of the emulated server."""
    return lambda name: ConfigSpace.of_bytes(recorded_bytes(name))


def put(data: bytearray, offset: int, value: int, size_bytes: int) -> None:
    data[offset : offset + size_bytes] = value.to_bytes(size_bytes, "little")


@pytest.fixture
def endpoint() -> bytearray:
    """An endpoint like a GPU: PCI Express 2.0+ capability at 0x60, ACS at 0x100, ATS at 0x150, SR-IOV at 0x160."""
    data = bytearray(4096)
    # Neighbouring registers are never zero here, so that a read that is too wide is noticed.
    for first, last in ((0x60, 0x9C), (0x100, 0x108), (0x150, 0x158), (0x160, 0x184), (0x19C, 0x1A0)):
        data[first:last] = b"\xee" * (last - first)
    put(data, 0x00, 0x10DE, 2)
    put(data, 0x06, 0x0010, 2)  # status: has a capability list
    data[0x34] = 0x40
    data[0x40:0x42] = bytes([0x01, 0x60])  # power management, followed by 0x60
    data[0x60:0x62] = bytes([0x10, 0x00])
    put(data, 0x62, 0x0002, 2)  # version 2, endpoint
    put(data, 0x64, 0x00008002, 4)  # DevCap: 512 bytes of payload
    put(data, 0x68, 0x5937, 2)  # DevCtl: MaxReadReq 4096, MaxPayload 256, relaxed ordering, errors reported
    put(data, 0x6C, 0x0040_0105, 4)  # LnkCap: 32 GT/s x16
    put(data, 0x72, 0x1084, 2)  # LnkSta: 16 GT/s x8
    put(data, 0x84, 0x70993, 4)  # DevCap2
    put(data, 0x88, 0x0009, 2)  # DevCtl2
    put(data, 0x8C, 0x3E, 4)  # LnkCap2: 2.5 to 32 GT/s
    put(data, 0x100, 0x150_1_000D, 4)
    put(data, 0x104, 0x005F, 2)
    put(data, 0x106, 0x001D, 2)
    put(data, 0x150, 0x160_1_000F, 4)
    put(data, 0x156, 0x8005, 2)
    put(data, 0x160, 0x000_1_0010, 4)
    put(data, 0x168, 0x0001, 2)
    put(data, 0x16C, 16, 2)
    put(data, 0x16E, 16, 2)
    put(data, 0x170, 3, 2)
    put(data, 0x174, 0x0100, 2)
    put(data, 0x176, 0x0002, 2)
    put(data, 0x17A, 0x101E, 2)
    put(data, 0x184, 0x0000000C, 4)  # BAR 0 and 1: 64 bits, prefetchable
    put(data, 0x18C, 0xFE000000, 4)  # BAR 2: 32 bits
    return data
