# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import function_roles as roles
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, Function, Host, Sriov

MIB = 1 << 20


def gpu(vendor=roles.NVIDIA, device=0x2901, **more):
    return Function("0000:13:00.0", "pci0000:00", None, 0x030200, vendor, device, "gpu", "endpoint", **more)


def nic(address="0000:14:00.0", device=roles.CONNECTX7, **more):
    return Function(address, "pci0000:00", None, 0x020700, roles.MELLANOX, device, "nic", "endpoint", **more)


def test_a_physical_function_has_no_virtual_ones_now():
    virtual = nic(physical_function="0000:14:00.1")
    assert (roles.is_physical(virtual), roles.is_virtual(virtual)) == (False, True)
    for sriov, physical in ((None, True), (Sriov(7, 0), True), (Sriov(7, 1), False)):
        function = nic(sriov=sriov)
        assert (roles.is_physical(function), roles.is_virtual(function)) == (physical, False)


def test_all_functions_of_a_device_with_the_mark_manage_nvswitches():
    marked, unmarked = nic("0000:05:00.0", manages_nvswitches=True), nic("0000:05:00.2", manages_nvswitches=False)
    virtual = nic("0000:05:01.5", physical_function="0000:05:00.0")
    other = nic("0000:06:00.0", manages_nvswitches=False)
    foreign = replace(nic("0000:05:00.3"), vendor_id=0x8086)
    functions = [virtual, unmarked, marked, other, foreign]
    roles.mark_management(functions)
    assert [item.kind for item in functions] == [*[roles.MANAGEMENT] * 3, "nic", "nic"]


@pytest.mark.parametrize("device", [0x2900, 0x29FF, 0x3180, 0x327F, 0x3000, 0x30FF])
def test_a_nic_of_unread_vpd_beside_nvlink5_gpus_could_manage_nvswitches(device):
    functions = [nic(), nic("0000:14:00.1", manages_nvswitches=False), nic("0000:15:00.0", 0x101B)]
    functions.append(nic("0000:14:00.2", physical_function="0000:14:00.0"))
    host = Host([], [], [gpu(device=device), *functions])
    assert roles.possible_management(host) == [functions[0], functions[3]]


@pytest.mark.parametrize(("vendor", "device"), [(0x1002, 0x2901), (roles.NVIDIA, 0x28FF), (roles.NVIDIA, 0x3280)])
def test_beside_other_gpus_a_nic_is_a_nic(vendor, device):
    assert roles.possible_management(Host([], [], [gpu(vendor, device), nic()])) == []


def test_a_host_has_nvswitches_as_functions_or_on_a_board_that_is_known():
    assert not roles.has_nvswitches(Host([], [], [gpu(device=0x2330), nic()]))
    assert roles.has_nvswitches(Host([], [], [replace(nic(), kind=roles.MANAGEMENT)]))
    assert roles.has_nvswitches(Host([], [], [replace(gpu(device=0x22A3), kind="nvswitch")]))
    for device in (0x2901, 0x3182):
        assert roles.has_nvswitches(Host([], [], [gpu(device=device)]))
        assert not roles.has_nvswitches(Host([], [], [gpu(0x1002, device)]))


def test_gpus_older_than_turing_have_no_open_modules():
    # TITAN V, V100S, P100; TITAN RTX, H100; another vendor's; not known.
    assert all(roles.lacks_open_modules(roles.NVIDIA, device) for device in (0x1D81, 0x1DF6, 0x15F8, 0x1DFF))
    assert not any(roles.lacks_open_modules(roles.NVIDIA, device) for device in (0x1E00, 0x1E02, 0x2330, 0))
    assert not roles.lacks_open_modules(0x1002, 0x1D81)


def bars(*sizes_mib):
    return [Bar(index, size * MIB, "memory", 64, True) for index, size in enumerate(sizes_mib)]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (gpu(device=0x26B9, bars=bars(16, 256, 32)), "largest BAR has 256 MiB"),  # L40S in display mode
        (gpu(0x1002, 0x74A1, bars=bars(256)), "largest BAR has 256 MiB"),
        (gpu(unassigned_bars=[1, 3], bars=bars(16, 131072)), "BAR 1, 3"),
        (gpu(device=0x26B9, bars=bars(16, 512)), ""),
        (gpu(device=0x1EB8, bars=bars(16, 256)), ""),  # a T4 has no larger one
        (gpu(device=0x2230, bars=bars(16, 256)), ""),  # RTX A6000
        (gpu(device=0x22F0, bars=bars(16, 256)), "256 MiB"),
        (gpu(device=0x237F, bars=bars(16, 256)), "256 MiB"),
        (gpu(device=0x2680, bars=bars(16, 256)), "256 MiB"),
        (gpu(device=0x267F, bars=bars(16, 256)), ""),
        (gpu(device=0x26B9), ""),  # not read
        (gpu(0x1AF4, 0x1043, bars=bars(1)), ""),
        (gpu(0x1002, 0x74B5, bars=bars(64), physical_function="0000:13:00.1"), ""),
        (nic(bars=bars(32)), ""),
    ],
)
def test_memory_is_reachable_through_an_assigned_bar_of_its_size(function, words):
    reason = roles.unreachable_memory_reason(function)
    assert words in reason if words else reason is None
