# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.pci import capabilities, writes
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.config import ConfigSpace, PciError
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.writes import RegisterWrite


def written(data: bytearray, write: RegisterWrite) -> ConfigSpace:
    """Return config space after the write, on a device whose register accepts it."""
    after = bytearray(data)
    after[write.offset : write.offset + write.size_bytes] = write.to_bytes()
    return ConfigSpace.of_bytes(bytes(after))


def test_a_register_write_is_converted_to_bytes(endpoint):
    write = writes.max_read_request(ConfigSpace.of_bytes(bytes(endpoint)), 512)
    assert write == RegisterWrite(offset=0x68, size_bytes=2, value=0x2937, current=0x5937)
    assert write.to_bytes() == b"\x37\x29"
    assert write.changes


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(control=st.integers(0, 0xFFFF), size=st.sampled_from(writes.READ_REQUEST_BYTES))
def test_max_read_request_changes_only_its_bits(endpoint, control, size):
    endpoint[0x68:0x6A] = control.to_bytes(2, "little")
    write = writes.max_read_request(ConfigSpace.of_bytes(bytes(endpoint)), size)
    assert capabilities.express(written(endpoint, write)).max_read_request_bytes == size
    assert write.value & ~0x7000 == control & ~0x7000
    again = writes.max_read_request(written(endpoint, write), size)
    assert not again.changes


@pytest.mark.parametrize("size", [0, -128, 64, 127, 129, 1000, 3072, 8192, 4097])
def test_an_invalid_max_read_request_is_refused(endpoint, size):
    with pytest.raises(PciError, match=f"{size}"):
        writes.max_read_request(ConfigSpace.of_bytes(bytes(endpoint)), size)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("control", [0x0000, 0x5937, 0xFFFF])
def test_relaxed_ordering_changes_only_its_bit(endpoint, control, enabled):
    endpoint[0x68:0x6A] = control.to_bytes(2, "little")
    write = writes.relaxed_ordering(ConfigSpace.of_bytes(bytes(endpoint)), enabled)
    assert capabilities.express(written(endpoint, write)).relaxed_ordering is enabled
    assert write.value & ~0x10 == control & ~0x10


def test_acs_control_is_written(endpoint):
    write = writes.acs_control(ConfigSpace.of_bytes(bytes(endpoint)), 0x5D)
    assert write == RegisterWrite(offset=0x106, size_bytes=2, value=0x5D, current=0x1D)
    assert capabilities.acs(written(endpoint, write)).control == 0x5D


def test_acs_control_keeps_the_upper_bits(endpoint):
    endpoint[0x107] = 0x1C  # enhanced capability: I/O request blocking and targets
    assert writes.acs_control(ConfigSpace.of_bytes(bytes(endpoint)), 0).value == 0x1C00


@pytest.mark.parametrize(("control", "lacking"), [(0x20, "0x20"), (0x7D, "0x20"), (0x80, "0x80"), (0x10000, "0x10000")])
def test_acs_bits_that_the_capability_lacks_are_refused(endpoint, control, lacking):
    with pytest.raises(PciError, match=f"lacks: {lacking}"):
        writes.acs_control(ConfigSpace.of_bytes(bytes(endpoint)), control)


def test_negative_acs_control_is_refused(endpoint):
    with pytest.raises(PciError, match="ACS control -0x1"):
        writes.acs_control(ConfigSpace.of_bytes(bytes(endpoint)), -1)


def test_writes_to_missing_capabilities_are_refused(endpoint):
    header = ConfigSpace.of_bytes(bytes(endpoint[:64]))
    with pytest.raises(PciError, match="no ACS capability"):
        writes.acs_control(header, 0x5D)
    with pytest.raises(PciError, match="no PCI Express"):
        writes.max_read_request(header, 4096)
    with pytest.raises(PciError, match="no PCI Express"):
        writes.relaxed_ordering(header, False)


def test_acs_control_is_computed_for_the_recorded_root_port(recorded):
    # On the emulated server, 0x5d written to this register read back as 0x5d.
    assert writes.acs_control(recorded("root-port"), 0x5D) == RegisterWrite(0x14E, 2, 0x5D, 0x1D)
