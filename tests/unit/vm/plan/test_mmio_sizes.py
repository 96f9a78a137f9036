# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The windows of small trees in bytes, and the limits to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from machines import GIB, MIB, endpoint
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import mmio, pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.mmio import Window

PORT_KEYS = "abcdefghijklmnopqrstuvwxyz"


def high(size: int) -> Bar:
    return Bar(0, size, "memory", 64, True)


def low(size: int) -> Bar:
    return Bar(0, size, "memory", 32, False)


def io(size: int) -> Bar:
    return Bar(5, size, "io", 32, False)


def root_of(*ports: pci_tree.Port) -> pci_tree.Port:
    return pci_tree.Port(pci_tree.ROOT, ports=list(ports))


def sized(
    *devices: list[Bar],
    memory_mib: int = 1024,
    bits: int | None = None,
    vendor: str | None = None,
    wanted_mib: int = 0,
    firmware: str = "bios",
    kind: str = "gpu",
) -> Window:
    """Return the window of a flat guest with a port for each device, which is a list of BARs."""
    functions = {}
    ports = []
    for key, bars in zip(PORT_KEYS, devices):
        functions[key] = endpoint("0000:20:00.0", None, "pci0000:10", kind, bars=bars)
        ports.append(pci_tree.Port(pci_tree.ROOT_PORT, endpoints=[pci_tree.Endpoint("hostdev", key)]))
    return mmio.size_up("vm", root_of(*ports), functions, memory_mib, bits, vendor, wanted_mib, firmware)


def refused(*devices: list[Bar], **more: Any) -> str:
    with pytest.raises(DomainError) as caught:
        sized(*devices, **more)
    assert caught.value.domain == "vm"
    return str(caught.value).removeprefix("virtual machine vm: ")


def test_the_constants_are_those_of_their_sources():
    assert mmio.LOW_WINDOW_BYTES == 960 * MIB
    assert mmio.AMD_HYPERTRANSPORT_START_BYTES == 1012 * GIB
    assert mmio.LARGEST_WINDOW_BYTES == 2**51
    assert (mmio.DEFAULT_ADDRESS_BITS, mmio.VIRTIO_BAR_BYTES, mmio.IO_PORT_STEP_BYTES) == (40, 16384, 4096)
    assert (mmio.HOT_PLUG_LOW_BYTES, mmio.HOT_PLUG_HIGH_BYTES) == (2 * MIB, 32 * MIB)


@pytest.mark.parametrize(
    ("number", "power"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (2**40 - 1, 2**40), (2**40 + 1, 2**41)]
)
def test_a_bar_is_a_power_of_two(number, power):
    assert mmio.power_of_two(number) == power


@pytest.mark.parametrize(
    ("region", "above"),
    [
        (Bar(0, 1, "memory", 64, True), True),
        (Bar(0, 1, "memory", 64, False), False),
        (Bar(0, 1, "memory", 32, True), False),
    ],
)
def test_only_a_prefetchable_bar_of_64_bits_may_be_above_4_gib(region, above):
    assert mmio.is_high(region) is above


@pytest.mark.parametrize(
    ("devices", "low_bytes", "high_bytes"),
    [
        ([], 2 * MIB, 32 * MIB),
        # Each port gets what the firmware reserves at least, and so does the root bus.
        ([[]], 2 * MIB, 32 * MIB),
        ([[], []], 4 * MIB, 64 * MIB),
        ([[low(2 * MIB)]], 2 * MIB, 32 * MIB),
        ([[low(2 * MIB + 1)]], 4 * MIB, 32 * MIB),
        ([[low(MIB), low(MIB), low(1)]], 3 * MIB, 32 * MIB),
        ([[low(4 * MIB), low(8 * MIB)]], 12 * MIB, 32 * MIB),
        ([[high(64 * MIB)]], 2 * MIB, 64 * MIB),
        ([[high(32 * MIB), high(16)]], 2 * MIB, 33 * MIB),
        # The port with the larger BAR comes first, and the smaller one follows at its own alignment.
        ([[high(16 * MIB)], [high(128 * MIB)]], 2 * 2 * MIB, (128 + 32) * MIB),
        ([[high(GIB), high(MIB)], [high(GIB)]], 2 * 2 * MIB, 3 * GIB),
        ([[low(64 * MIB), low(MIB)], [low(64 * MIB)]], 192 * MIB, 64 * MIB),
        ([[io(32)]], 2 * MIB, 32 * MIB),
    ],
)
def test_windows_are_packed_with_the_largest_alignment_first(devices, low_bytes, high_bytes):
    assert sized(*devices) == Window(low_bytes, high_bytes, 32 * GIB, None)


def test_each_virtio_device_takes_its_bar_in_both_windows():
    port = pci_tree.Port(pci_tree.ROOT_PORT, endpoints=[pci_tree.Endpoint("disk", "0")] * 129)
    window = mmio.size_up("vm", root_of(port), {}, 1024, None, None, 0, "bios")
    # 129 times 16 KiB are 2 MiB and 16 KiB.
    assert window == Window(3 * MIB, 32 * MIB, 32 * GIB, None)
    port.endpoints = port.endpoints[:128]
    assert mmio.size_up("vm", root_of(port), {}, 1024, None, None, 0, "bios").low_bytes == 2 * MIB


@pytest.mark.parametrize(
    ("high_bytes", "window_bytes"),
    [(32 * GIB, 32 * GIB), (32 * GIB + 1, 64 * GIB), (64 * GIB, 64 * GIB), (1 << 50, 1 << 50)],
)
def test_the_window_is_doubled_until_it_holds_the_devices(high_bytes, window_bytes):
    assert sized([high(high_bytes)]).window_bytes == window_bytes


def test_the_window_is_not_doubled_beyond_the_largest():
    assert sized([high(1 << 51)], [high(1 << 51)]) == Window(4 * MIB, 1 << 52, 1 << 51, None)


@pytest.mark.parametrize(
    ("firmware", "wanted_mib", "reserve_mib"),
    [("bios", 1 << 20, 32), ("efi", 0, 32), ("efi", 32 << 10, 32), ("efi", 64 << 10, 256), ("efi", 1 << 20, 4096)],
)
def test_ovmf_reserves_a_share_of_a_large_window_for_each_port(firmware, wanted_mib, reserve_mib):
    found = sized([], [], wanted_mib=wanted_mib, firmware=firmware)
    assert found.high_bytes == 2 * reserve_mib * MIB
    assert found.window_bytes == (wanted_mib or 32 << 10) * MIB


def test_a_requested_window_may_be_as_small_as_the_devices():
    assert sized([high(GIB)], wanted_mib=1024).window_bytes == GIB
    assert refused([high(GIB), high(16)], wanted_mib=1024) == Mentions("mmio_window_mib 1024", "1025")


def test_the_low_window_has_960_mib():
    fits = [[low(512 * MIB)], [low(256 * MIB)], [low(128 * MIB)], [low(64 * MIB)]]
    assert sized(*fits).low_bytes == 960 * MIB
    assert refused(*fits, [low(16)], kind="nic") == Mentions("962", "960", "nic a", "512")


def test_a_guest_without_devices_that_does_not_fit_names_none():
    assert refused(bits=35) == Mentions("1024 MiB", "32 GiB", "35")


@pytest.mark.parametrize(
    ("memory_mib", "bits", "vendor", "fits"),
    [
        # 4 GiB, memory in whole GiB, and the window of 32 GiB: 64 GiB are 36 bits.
        (28 * 1024, 36, None, True),
        (28 * 1024 + 1, 36, None, False),
        (28 * 1024 - 1, 36, None, True),
        # Below 1 TiB, an AMD host has a gap from 1012 GiB on.
        (976 * 1024, 40, "AuthenticAMD", True),
        (976 * 1024 + 1, 40, "AuthenticAMD", False),
        (988 * 1024, 40, "GenuineIntel", True),
        (988 * 1024 + 1, 40, "GenuineIntel", False),
        # With more bits, memory begins at 1 TiB there.
        (992 * 1024, 41, "AuthenticAMD", True),
        (992 * 1024 + 1, 41, "AuthenticAMD", False),
        (992 * 1024 + 1, 41, "GenuineIntel", True),
        (988 * 1024 + 1, None, "AuthenticAMD", True),
    ],
)
def test_memory_and_window_fit_to_the_gib(memory_mib, bits, vendor, fits):
    if fits:
        assert sized([], memory_mib=memory_mib, bits=bits, vendor=vendor).address_bits == bits
    else:
        assert f"do not fit into {bits} physical address bits" in refused(
            [], memory_mib=memory_mib, bits=bits, vendor=vendor
        )


def test_the_device_with_the_largest_bars_is_named():
    bars = [[high(GIB)], [high(GIB), high(2 * GIB), low(MIB)], [high(MIB)]]
    assert "; gpu b (3072 MiB) has the largest BARs" in refused(*bars, bits=35)
    # Of equal ones, the last.
    assert "; gpu b (1024 MiB) has the largest BARs" in refused([high(GIB)], [high(GIB)], bits=35)


@pytest.mark.parametrize(
    ("window_bytes", "mebibytes"), [(32 * GIB, 0), (GIB, 0), (32 * GIB + MIB, 32769), (64 * GIB, 65536)]
)
def test_ovmf_is_told_a_window_above_its_default(window_bytes, mebibytes):
    assert mmio.ovmf_window_mib(Window(0, 0, window_bytes, None)) == mebibytes


def test_ports_with_io_need_steps_of_4_kib():
    assert mmio.IO_STEPS == {"bios": 14, "efi": 9}
    # Two BARs behind one port share a step, and a port without any needs none.
    assert sized([io(4096)] * 1, *[[io(2048), io(2048)]] * 13, [low(16)])
    assert refused(*[[io(2048), io(2049)]] * 7, [io(1)]) == Mentions("8", "15", "bios", "14", "a, b, c")
    assert refused([io(4096 * 10)], firmware="efi") == Mentions("1", "16", "efi", "9", "a")


def test_buses_of_expanders_come_after_the_root_bus_at_their_alignment():
    functions = {"a": endpoint("0000:20:00.0", None, "pci0000:10", bars=[high(GIB), low(8 * MIB)])}
    inner = pci_tree.Port(pci_tree.ROOT_PORT, endpoints=[pci_tree.Endpoint("hostdev", "a")])
    expander = pci_tree.Port(pci_tree.EXPANDER, ports=[inner])
    root = root_of(pci_tree.Port(pci_tree.ROOT_PORT), expander)
    window = mmio.size_up("vm", root, functions, 1024, None, None, 0, "bios")
    assert window == Window(16 * MIB, 2 * GIB, 32 * GIB, None)
