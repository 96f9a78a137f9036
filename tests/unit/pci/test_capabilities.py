# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.pci import capabilities
from ansible_collections.sailloft.fleet.plugins.module_utils.pci import registers as r
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.capabilities import (
    AcsCapability,
    AtsCapability,
    LinkRegisters,
    VfBar,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.config import ConfigSpace, PciError


def parsed(parse, data: bytearray):
    return parse(ConfigSpace.of_bytes(bytes(data)))


def test_the_express_capability_is_read(endpoint):
    express = parsed(capabilities.express, endpoint)
    assert (express.offset, express.version, express.port_type) == (0x60, 2, 0)
    assert (express.max_payload_supported_bytes, express.max_payload_bytes) == (512, 256)
    assert express.max_read_request_bytes == 4096
    assert express.relaxed_ordering is True
    assert (express.device_capabilities, express.device_control) == (0x8002, 0x5937)
    assert (express.device_capabilities_2, express.device_control_2) == (0x70993, 0x0009)
    assert express.link == LinkRegisters(16.0, 8, 32.0, 16)


@pytest.mark.parametrize("code", range(8))
def test_every_max_read_request_code_is_decoded(endpoint, code):
    endpoint[0x69] = code << 4 | 0x09
    sizes = {0: 128, 1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096, 6: None, 7: None}
    assert parsed(capabilities.express, endpoint).max_read_request_bytes == sizes[code]


def test_disabled_relaxed_ordering_is_read(endpoint):
    endpoint[0x68] &= ~0x10
    assert parsed(capabilities.express, endpoint).relaxed_ordering is False


@pytest.mark.parametrize("port_type", [0x9, 0xA])
def test_a_device_inside_the_root_complex_has_no_link(endpoint, port_type):
    endpoint[0x62] = port_type << 4 | 2
    assert parsed(capabilities.express, endpoint).link is None


def test_the_speed_vector_takes_precedence_over_the_older_speed_number(endpoint):
    endpoint[0x8C] = 0x1E  # up to 16 GT/s
    assert parsed(capabilities.express, endpoint).link.max_speed_gt_s == 16.0
    endpoint[0x8C] = 0
    assert parsed(capabilities.express, endpoint).link.max_speed_gt_s == 32.0


@pytest.mark.parametrize(
    ("code", "speed_gt_s"), [(1, 2.5), (2, 5.0), (3, 8.0), (4, 16.0), (5, 32.0), (6, 64.0), (7, None)]
)
def test_every_link_speed_is_decoded(endpoint, code, speed_gt_s):
    endpoint[0x72] = 0x80 | code
    endpoint[0x8C] = 1 << code
    link = parsed(capabilities.express, endpoint).link
    assert (link.speed_gt_s, link.max_speed_gt_s) == (speed_gt_s, speed_gt_s)


def test_unknown_link_speed_and_width_are_read_as_none(endpoint):
    endpoint[0x72:0x74] = bytes(2)
    link = parsed(capabilities.express, endpoint).link
    assert (link.speed_gt_s, link.width) == (None, None)


def test_version_1_has_no_second_registers(endpoint):
    endpoint[0x62] = 0x01
    express = parsed(capabilities.express, endpoint)
    assert (express.device_capabilities_2, express.device_control_2) == (None, None)
    assert express.max_read_request_bytes == 4096


def test_an_express_capability_that_does_not_fit_is_refused(endpoint):
    endpoint[0x41] = 0xE0
    endpoint[0xE0:0xE4] = bytes([0x10, 0x00, 0x02, 0x00])
    with raises(PciError, "0xe0", "2"):
        parsed(capabilities.express, endpoint)


@pytest.mark.parametrize(("offset", "max_speed_gt_s"), [(0xD0, 32.0), (0xD4, 16.0)])
def test_an_express_capability_at_the_end_of_its_space_is_read(endpoint, offset, max_speed_gt_s):
    """At 0xd4 only Link Capabilities 2 does not fit, and the older speed number is used."""
    structure = bytes(endpoint[0x62:0x90])
    endpoint[0x41] = offset
    endpoint[offset : offset + 2] = bytes([0x10, 0x00])
    endpoint[offset + 2 : 0x100] = structure[: 0x100 - offset - 2]
    endpoint[offset + 0x0C] = 0x04
    express = parsed(capabilities.express, endpoint)
    assert express.link.max_speed_gt_s == max_speed_gt_s
    assert express.device_control_2 == 0x0009


def test_the_link_registers_may_be_the_last_of_config_space(endpoint):
    """Version 1 ends with Link Status, here at 0xfe; conventional config space ends at 256 bytes."""
    structure = bytes(endpoint[0x62:0x74])
    endpoint[0x41] = 0xEC
    endpoint[0xEC:0x100] = bytes([0x10, 0x00]) + structure
    endpoint[0xEE] = 0x01
    express = parsed(capabilities.express, endpoint[:0x100])
    assert (express.version, express.link) == (1, LinkRegisters(16.0, 8, 32.0, 16))


def test_link_registers_that_do_not_fit_are_refused(endpoint):
    endpoint[0x41] = 0xF0
    endpoint[0xF0:0xF4] = bytes([0x10, 0x00, 0x01, 0x00])
    with pytest.raises(PciError, match="registers"):
        parsed(capabilities.express, endpoint)


def test_the_acs_and_ats_capabilities_are_read(endpoint):
    assert parsed(capabilities.acs, endpoint) == AcsCapability(0x100, 0x5F, 0x1D)
    assert parsed(capabilities.ats, endpoint) == AtsCapability(0x150, True, 5)
    endpoint[0x157] = 0
    assert parsed(capabilities.ats, endpoint) == AtsCapability(0x150, False, 5)


def test_the_bits_of_acs_are_those_of_the_specification():
    """The order from bit 0 is that of the PCI Express Base Specification, 7.7.11.2."""
    bits = (r.PCI_ACS_SV, r.PCI_ACS_TB, r.PCI_ACS_RR, r.PCI_ACS_CR, r.PCI_ACS_UF, r.PCI_ACS_EC, r.PCI_ACS_DT)
    assert bits == tuple(1 << at for at in range(7))
    assert sum(bits) == r.PCI_ACS_BITS


def test_the_sriov_capability_is_read(endpoint):
    sriov = parsed(capabilities.sriov, endpoint)
    assert (sriov.enabled, sriov.initial_vfs, sriov.total_vfs, sriov.num_vfs) == (True, 16, 16, 3)
    assert sriov.vf_device_id == 0x101E
    assert sriov.vf_bars == (VfBar(0, 0x184, "memory", 64, True), VfBar(2, 0x18C, "memory", 32, False))


def test_the_memory_type_bits_of_an_io_vf_bar_are_address_bits(endpoint):
    endpoint[0x190:0x194] = (0xC00D).to_bytes(4, "little")
    assert parsed(capabilities.sriov, endpoint).vf_bars[2:] == (VfBar(3, 0x190, "io", 32, False),)


def test_vf_addresses_continue_on_the_next_bus(endpoint):
    assert parsed(capabilities.sriov, endpoint).vf_routing_ids(0x3B00) == [0x3C00, 0x3C02, 0x3C04]
    endpoint[0x168] = 0
    assert parsed(capabilities.sriov, endpoint).vf_routing_ids(0x3B00) == []


def test_a_64_bit_vf_bar_without_its_upper_half_is_refused(endpoint):
    endpoint[0x198] = 0x0C
    with raises(PciError, "VF BAR", "0x198", "64 bits"):
        parsed(capabilities.sriov, endpoint)


def test_a_capability_truncated_by_the_end_of_config_space_is_refused(endpoint):
    endpoint[0x160:0x164] = ((0xFFC << 20) | 0x1_0000).to_bytes(4, "little")
    endpoint[0xFFC:0x1000] = (0x1_0010).to_bytes(4, "little")
    with pytest.raises(PciError, match="ends at 0x1000"):
        parsed(capabilities.sriov, endpoint)


# The output of lspci -vvv on the machine on which these were recorded.
LSPCI = {
    "root-port": (0x4, LinkRegisters(2.5, 1, 16.0, 32), AcsCapability(0x148, 0x5F, 0x1D), None),
    "switch-upstream": (0x5, LinkRegisters(2.5, 1, 2.5, 1), None, None),
    "switch-downstream": (0x6, LinkRegisters(2.5, 1, None, None), None, None),
    "igb-pf": (0x0, LinkRegisters(2.5, 1, 2.5, 1), None, None),
    "igb-vf": (0x0, LinkRegisters(2.5, 1, 2.5, 1), None, None),
    "ats-endpoint": (0x0, LinkRegisters(2.5, 1, 2.5, 1), None, AtsCapability(0x100, False, 0)),
}


@pytest.mark.parametrize("name", LSPCI)
def test_recorded_functions_match_the_output_of_lspci(recorded, name):
    config = recorded(name)
    express = capabilities.express(config)
    assert (express.port_type, express.link, capabilities.acs(config), capabilities.ats(config)) == LSPCI[name]
    assert (express.max_read_request_bytes, express.max_payload_bytes, express.relaxed_ordering) == (128, 128, False)


def test_the_recorded_physical_function_is_read(recorded):
    sriov = capabilities.sriov(recorded("igb-pf"))
    assert (sriov.initial_vfs, sriov.total_vfs, sriov.num_vfs, sriov.enabled) == (8, 8, 2, True)
    # Linux had put the two VFs of 0000:15:00.0 at 15:10.0 and 15:10.2.
    assert sriov.vf_routing_ids(0x15 << 8) == [0x15 << 8 | 0x10 << 3, 0x15 << 8 | 0x10 << 3 | 2]
    assert [(region.index, region.width_bits, region.prefetchable) for region in sriov.vf_bars] == [
        (0, 64, True),
        (3, 64, True),
    ]
    assert capabilities.sriov(recorded("igb-vf")) is None
