# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MMIO space of GPUs."""

from __future__ import annotations

import pytest
from machines import GIB, endpoint, recording

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.bars import LARGE_BAR_GIB, mmio_gib, unknown


def gpu(device_id: int, *sizes: int):
    bars = [Bar(number, size, "memory", 64, True) for number, size in enumerate(sizes)]
    return endpoint("0000:3b:00.0", None, "pci0000:3b", device_id=device_id, bars=bars)


@pytest.mark.parametrize(
    ("gpus", "gib"),
    [
        ([], 32),
        ([gpu(0x1DB4)], 32),
        ([gpu(0x1DB6)], 64),
        ([gpu(0x2330)] * 8, 2048),
        ([gpu(0x2330, 4 * GIB)], 32),
        ([gpu(0x1234, 64 * GIB)] * 2, 256),
    ],
)
def test_the_mmio_space_is_a_power_of_two_above_the_sum_of_the_bars(gpus, gib):
    assert mmio_gib(gpus) == gib


def test_a_gpu_with_unknown_bars_is_named():
    assert unknown([gpu(0x1234), gpu(0x2330), gpu(0x1234, GIB)]) == ["0000:3b:00.0"]


@pytest.mark.parametrize("name", ["nvidia-dgx2", "aws-g4dn-metal", "supermicro-4029gp-ve"])
def test_the_table_agrees_with_the_recordings(name):
    for function in recording(name).functions:
        known = LARGE_BAR_GIB.get((function.vendor_id, function.device_id))
        if function.kind == "gpu" and known and function.bars:
            assert max(each.size_bytes for each in function.bars) == known * GIB


# The memory in GB in the device's name in pci.ids.
MEMORY_GB = {
    (0x10DE, 0x1DB1): 16,
    (0x10DE, 0x1DB4): 16,
    (0x10DE, 0x1DB5): 32,
    (0x10DE, 0x1DB6): 32,
    (0x10DE, 0x1DB8): 32,
    (0x10DE, 0x20B0): 40,
    (0x10DE, 0x20B2): 80,
    (0x10DE, 0x20B5): 80,
    (0x10DE, 0x20B7): 24,
    (0x10DE, 0x20F1): 40,
    (0x10DE, 0x2235): 48,
    (0x10DE, 0x2236): 24,
    (0x10DE, 0x2321): 94,
    (0x10DE, 0x2330): 80,
    (0x10DE, 0x2331): 80,
    (0x10DE, 0x2335): 141,
    (0x10DE, 0x26B5): 48,
    (0x10DE, 0x26B9): 48,
    (0x10DE, 0x27B8): 24,
    (0x1002, 0x740F): 64,
    (0x1002, 0x74A1): 192,
}


def test_bars_in_the_table_are_the_memory_rounded_up_to_a_power_of_two():
    assert {device: 1 << (memory - 1).bit_length() for device, memory in MEMORY_GB.items()} == LARGE_BAR_GIB
