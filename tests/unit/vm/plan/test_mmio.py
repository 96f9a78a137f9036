# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from machines import GIB, MIB, bridge, endpoint, lab, plan, recording
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Bar,
    Cpu,
    Host,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import mmio, pci_tree

NAME = "pci0000:10"


def machine(bars: list[Bar], gpus: int = 8, cpu: Cpu | None = None) -> Host:
    """Return a host with GPUs that have these BARs, each behind its own root port."""
    functions = []
    for number in range(gpus):
        port = bridge(f"0000:10:{number:02x}.0", None, NAME, "root_port")
        functions += [port, endpoint(f"0000:{0x20 + number:02x}:00.0", port.address, NAME, bars=bars)]
    nodes = [NumaNode(0, list(range(8)), [], 1 << 40)]
    return Host(
        nodes, [RootComplex(NAME, 0, 0x10, 0)], functions, cpu or Cpu("x86_64", "GenuineIntel", None, "vmx", 46)
    )


def h100(**changes: object) -> object:
    """Plan eight H100 SXM, each with 64-bit prefetchable BARs of 128 GiB, 16 MiB and 32 MiB."""
    bars = [
        Bar(0, 16 * MIB, "memory", 64, True),
        Bar(2, 128 * GIB, "memory", 64, True),
        Bar(4, 32 * MIB, "memory", 64, True),
    ]
    return plan(machine(bars), gpus={"count": 8}, nics={}, memory_mib=8192, **changes).window


def test_small_devices_get_qemus_default_window() -> None:
    window = plan().window
    assert window.window_bytes == 32 * GIB
    assert window.low_bytes < 100 * MIB


def test_the_window_of_eight_large_gpus_includes_alignment() -> None:
    window = h100()
    # Each GPU needs slightly more than 128 GiB, and starts on a multiple of 128 GiB; the guest's own root bus is in
    # front of the first. With 2 TiB, OVMF leaves one of them without an address (tests/boot).
    assert window.window_bytes == 4096 * GIB
    assert (8 * 256) * GIB < window.high_bytes < (8 * 256 + 1) * GIB


def test_the_window_for_ovmf_includes_a_share_for_each_port() -> None:
    """OVMF 2022.11 does this: 14 GPUs of 64 GiB leave 64 GiB of 1 TiB, and 17 small ports want 4 GiB each."""
    host = machine([Bar(2, 64 * GIB, "memory", 64, True)], 14)
    for number in range(14, 31):
        port = bridge(f"0000:10:{number:02x}.0", None, NAME, "root_port")
        host.functions += [port, endpoint(f"0000:{0x40 + number:02x}:00.0", port.address, NAME, "nvme", bars=[])]
    requested = {"gpus": {"count": 14}, "nics": {}, "nvme": {"count": 17}}
    assert plan(host, firmware="bios", **requested).window.window_bytes == 1024 * GIB
    assert plan(host, firmware="efi", **requested).window.window_bytes == 2048 * GIB


def test_root_buses_are_placed_in_order_with_their_alignment() -> None:
    """A small root bus in front pushes a large one to the next multiple of its alignment."""
    small = pci_tree.Port(pci_tree.ROOT, ports=[pci_tree.Port(pci_tree.ROOT_PORT, slot=2)])
    gpu = endpoint("0000:20:00.0", None, NAME, bars=[Bar(2, 32 * GIB, "memory", 64, True)])
    port = pci_tree.Port(pci_tree.ROOT_PORT, endpoints=[pci_tree.Endpoint("hostdev", gpu.address)])
    small.ports.append(pci_tree.Port(pci_tree.EXPANDER, ports=[port]))
    window = mmio.size_up("a", small, {gpu.address: gpu}, 1024, None, None, 0, "bios")
    assert window.high_bytes == 64 * GIB


def test_32_bit_and_non_prefetchable_bars_are_below_4_gib() -> None:
    bars = [Bar(0, 64 * MIB, "memory", 32, False), Bar(2, 64 * MIB, "memory", 64, False), Bar(5, 128, "io", 32, False)]
    window = plan(machine(bars, 2), gpus={"count": 2}, nics={}).window
    assert 256 * MIB < window.low_bytes <= 512 * MIB
    assert window.high_bytes < GIB


def test_the_window_for_all_gpus_of_a_recorded_server_is_1_tib() -> None:
    host = recording("supermicro-4029gp-ve")
    gpus = [item.address for item in host.functions if item.kind == "gpu"]
    assert plan(host, gpus={"addresses": gpus}, nics={}, vcpus=4, memory_mib=4096).window.window_bytes == 1024 * GIB


def test_a_requested_window_must_be_large_enough() -> None:
    assert h100(mmio_window_mib=8192 * 1024).window_bytes == 8192 * GIB
    with raises(DomainError, "mmio_window_mib", "65536"):
        h100(mmio_window_mib=65536)


def test_a_window_beyond_the_address_bits_is_refused_with_the_largest_device() -> None:
    bars = [Bar(2, 128 * GIB, "memory", 64, True)]
    host = machine(bars, 4, Cpu("x86_64", "GenuineIntel", None, "vmx", 40))
    host.functions[-1].bars = [Bar(2, 256 * GIB, "memory", 64, True)]
    with raises(DomainError, "40", "1024", "0000:23:00.0", "262144"):
        plan(host, gpus={"count": 4}, nics={})
    host.cpu.physical_address_bits = None
    assert plan(host, gpus={"count": 4}, nics={}).window.window_bytes == 1024 * GIB


def test_memory_and_amds_reserved_range_reduce_the_address_space() -> None:
    bars = [Bar(2, 256 * GIB, "memory", 64, True)]
    intel = machine(bars, 1, Cpu("x86_64", "GenuineIntel", None, "vmx", 40))
    amd = machine(bars, 1, Cpu("x86_64", "AuthenticAMD", None, "svm", 40))
    fits = {"gpus": {"count": 1}, "nics": {}, "memory_mib": 505 * 1024}
    assert plan(intel, **fits).window.window_bytes == 512 * GIB
    with pytest.raises(DomainError, match=r"\(1012 GiB\)"):
        plan(amd, **fits)


def test_bars_that_do_not_fit_below_4_gib_are_refused_with_a_device() -> None:
    host = machine([Bar(0, 256 * MIB, "memory", 32, False)], 4)
    with raises(DomainError, "4 GiB", "960", "0000:23:00.0"):
        plan(host, gpus={"count": 4}, nics={})


@pytest.mark.parametrize(("firmware", "room"), [("bios", 14), ("efi", 9)])
def test_more_io_bars_than_the_firmware_supports_are_refused(firmware: str, room: int) -> None:
    """The limits are from boots: SeaBIOS halts at 15 such ports; OVMF serves 9, and at 16 devices lack memory."""
    bars = [Bar(0, 64 * MIB, "memory", 64, True), Bar(5, 256, "io", 32, False)]
    requested = {"nics": {}, "memory_mib": 8192, "firmware": firmware}
    plan(machine(bars, room), gpus={"count": room}, **requested)
    with raises(DomainError, room + 1, room):
        plan(machine(bars, room + 1), gpus={"count": room + 1}, **requested)


def test_the_error_names_at_most_three_devices_with_io_bars() -> None:
    bars = [Bar(0, 64 * MIB, "memory", 64, True), Bar(5, 40960, "io", 32, False)]
    for count, more in ((3, ""), (4, ", ...")):
        with pytest.raises(DomainError) as caught:
            plan(machine(bars, count), gpus={"count": count}, nics={}, memory_mib=8192)
        assert str(caught.value).endswith(f"assign fewer of 0000:20:00.0, 0000:21:00.0, 0000:22:00.0{more}")


def test_the_plan_of_the_lab_uses_the_hosts_40_address_bits() -> None:
    assert lab().cpu.physical_address_bits == 40
    assert plan().address_bits == 40
