# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.pci import capabilities
from ansible_collections.sailloft.fleet.plugins.module_utils.pci import registers as r
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.config import SIZES, ConfigSpace, PciError


def test_both_capability_lists_are_read(endpoint):
    config = ConfigSpace.of_bytes(bytes(endpoint))
    assert config.capabilities() == {0x01: 0x40, 0x10: 0x60}
    assert config.extended_capabilities() == {0x0D: 0x100, 0x0F: 0x150, 0x10: 0x160}


def test_a_recorded_root_port_is_read(recorded):
    config = recorded("root-port")
    assert config.header_type == 1
    assert config.capabilities() == {0x10: 0x54, 0x11: 0x48, 0x0D: 0x40}
    assert config.extended_capabilities() == {0x01: 0x100, 0x0D: 0x148}


def test_the_first_of_two_equal_capabilities_is_used(endpoint):
    endpoint[0x61] = 0x90
    endpoint[0x90:0x92] = bytes([0x10, 0x00])
    assert ConfigSpace.of_bytes(bytes(endpoint)).capabilities()[0x10] == 0x60


def test_reserved_low_bits_of_a_pointer_are_ignored(endpoint):
    endpoint[0x34] = 0x43
    endpoint[0x41] = 0x61
    assert ConfigSpace.of_bytes(bytes(endpoint)).capabilities() == {0x01: 0x40, 0x10: 0x60}


def test_there_is_no_capability_list_if_the_status_register_has_none(endpoint):
    endpoint[0x06] = 0
    assert ConfigSpace.of_bytes(bytes(endpoint)).capabilities() == {}


def test_the_capability_pointer_of_a_cardbus_bridge_is_read_at_0x14(endpoint):
    endpoint[0x0E] = 0x82  # the top bit means that it has several functions
    endpoint[0x14], endpoint[0x34] = 0x60, 0x00
    assert ConfigSpace.of_bytes(bytes(endpoint)).capabilities() == {0x10: 0x60}


def test_a_capability_list_with_a_loop_is_refused(endpoint):
    endpoint[0x61] = 0x40
    with pytest.raises(PciError, match="0x40"):
        ConfigSpace.of_bytes(bytes(endpoint)).capabilities()


def test_a_capability_list_that_points_into_the_header_is_refused(endpoint):
    endpoint[0x61] = 0x10
    with pytest.raises(PciError, match=r"header.*0x10"):
        ConfigSpace.of_bytes(bytes(endpoint)).capabilities()


@pytest.mark.parametrize("target", [0x100, 0x150])
def test_an_extended_list_with_a_loop_is_refused(endpoint, target):
    endpoint[0x160:0x164] = ((target << 20) | 0x10010).to_bytes(4, "little")
    with pytest.raises(PciError, match=f"{target:#x}"):
        ConfigSpace.of_bytes(bytes(endpoint)).extended_capabilities()


def test_an_extended_list_that_points_below_0x100_is_refused(endpoint):
    endpoint[0x160:0x164] = ((0x40 << 20) | 0x10010).to_bytes(4, "little")
    with pytest.raises(PciError, match=r"0x100.*0x40"):
        ConfigSpace.of_bytes(bytes(endpoint)).extended_capabilities()


def test_a_null_capability_is_skipped(endpoint):
    endpoint[0x100:0x104] = (0x150 << 20).to_bytes(4, "little")
    assert ConfigSpace.of_bytes(bytes(endpoint)).extended_capabilities() == {0x0F: 0x150, 0x10: 0x160}


@pytest.mark.parametrize("header", [b"\x00" * 4, b"\xff" * 4])
def test_an_empty_extended_list_has_no_capabilities(endpoint, header):
    endpoint[0x100:0x104] = header
    assert ConfigSpace.of_bytes(bytes(endpoint)).extended_capabilities() == {}


@pytest.mark.parametrize("length", [0, 3, 63, 65, 255, 257, 4095, 4097])
def test_config_space_of_an_invalid_size_is_refused(endpoint, length):
    with pytest.raises(PciError, match=f"of {length} bytes"):
        ConfigSpace.of_bytes(bytes(endpoint + bytes(1))[:length])


@pytest.mark.parametrize("length", [64, 128])
def test_config_space_that_is_read_without_privilege_has_no_capabilities(endpoint, length):
    config = ConfigSpace.of_bytes(bytes(endpoint[:length]))
    assert (config.capabilities(), config.extended_capabilities()) == ({}, {})
    assert capabilities.express(config) is None
    assert capabilities.acs(config) is None


def test_conventional_config_space_has_no_extended_list(endpoint):
    config = ConfigSpace.of_bytes(bytes(endpoint[:256]))
    assert config.capabilities() == {0x01: 0x40, 0x10: 0x60}
    assert config.extended_capabilities() == {}


def test_reading_beyond_the_end_is_refused(endpoint):
    with pytest.raises(PciError, match=r"0x100.*before.*0xfe"):
        ConfigSpace.of_bytes(bytes(endpoint[:256])).read(0xFE, 4)


def test_a_removed_device_does_not_answer(endpoint):
    assert ConfigSpace.of_bytes(bytes(endpoint)).answers
    assert not ConfigSpace.of_bytes(b"\xff" * 4096).answers


def test_the_last_register_can_be_read(endpoint):
    assert ConfigSpace.of_bytes(bytes(endpoint[:256])).read(0xFC, 4) == 0
    endpoint[0xFFF] = 0x80
    assert ConfigSpace.of_bytes(bytes(endpoint)).read(0xFFC, 4) == 0x80000000


def test_registers_in_memory_are_not_fetched(endpoint):
    def fetch(offset: int, size_bytes: int) -> bytes:
        raise AssertionError(f"{offset:#x}")

    assert ConfigSpace(bytes(endpoint[:256]), 4096, fetch).read(0xFC, 4) == 0


def test_a_capability_that_does_not_answer_ends_the_list(endpoint):
    endpoint[0x41] = 0x90
    endpoint[0x90:0x92] = bytes([0xFF, 0x60])
    assert ConfigSpace.of_bytes(bytes(endpoint)).capabilities() == {0x01: 0x40}


def test_only_wanted_registers_are_fetched(endpoint):
    asked = []

    def fetch(offset: int, size_bytes: int) -> bytes:
        asked.append((offset, size_bytes))
        return bytes(endpoint[offset : offset + size_bytes])

    config = ConfigSpace(bytes(endpoint[:256]), 4096, fetch)
    assert capabilities.acs(config).control == 0x1D
    assert capabilities.ats(config).enabled
    assert asked == [(0x100, 4), (0x150, 4), (0x160, 4), (0x104, 2), (0x106, 2), (0x156, 2)]


def test_a_short_answer_is_an_error(endpoint):
    config = ConfigSpace(bytes(endpoint[:256]), 4096, lambda offset, size_bytes: b"\x0d")
    with pytest.raises(PciError, match="1 of 4 bytes at 0x100"):
        config.extended_capabilities()


@given(st.sampled_from(SIZES), st.randoms(use_true_random=False))
def test_any_bytes_are_read_or_refused_with_a_pci_error(size, random):
    data = bytearray(random.randbytes(size))
    if random.random() < 0.8:  # so that most lists are walked, not rejected at once
        data[0x06] |= 0x10
        data[0x0E] &= 0x80
    config = ConfigSpace.of_bytes(bytes(data))
    for parse in (capabilities.express, capabilities.acs, capabilities.ats, capabilities.sriov):
        with contextlib.suppress(PciError):
            parse(config)


def test_reads_end_at_both_ends_of_config_space(endpoint):
    config = ConfigSpace.of_bytes(bytes(endpoint))
    endpoint[0xFFC:] = b"\1\2\3\4"
    assert config.read(0, 2) == 0x10DE
    assert ConfigSpace.of_bytes(bytes(endpoint)).read(0xFFC, 4) == 0x04030201
    for offset in (-1, 0xFFD):
        with raises(PciError, "0x1000", f"{offset:#x}"):
            config.read(offset, 4)


def test_other_bits_of_the_status_register_are_not_a_capability_list(endpoint):
    endpoint[0x06] = 0xEF
    assert ConfigSpace.of_bytes(bytes(endpoint)).capabilities() == {}


def test_reserved_low_bits_of_an_extended_pointer_are_ignored(endpoint):
    endpoint[0x100:0x104] = (0x153_1_000D).to_bytes(4, "little")
    assert ConfigSpace.of_bytes(bytes(endpoint)).extended_capabilities() == {0x0D: 0x100, 0x0F: 0x150, 0x10: 0x160}


def test_an_extended_capability_of_version_0_at_the_end_of_the_list_is_read(endpoint):
    endpoint[0x100:0x104] = (0x0000_0001).to_bytes(4, "little")
    assert ConfigSpace.of_bytes(bytes(endpoint)).extended_capabilities() == {0x01: 0x100}


def test_the_bus_numbers_of_a_recorded_switch_are_read(recorded):
    """The switch at 11:00.0 had its ports on bus 0x12, and their devices on 0x13 and 0x14."""
    upstream = recorded("switch-upstream")
    assert upstream.header_type == r.PCI_HEADER_TYPE_BRIDGE
    assert (upstream.read(r.PCI_SECONDARY_BUS, 1), upstream.read(r.PCI_SUBORDINATE_BUS, 1)) == (0x12, 0x14)
