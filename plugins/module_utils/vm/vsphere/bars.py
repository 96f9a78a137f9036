# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The 64-bit MMIO space of a virtual machine with GPUs, whose BARs vSphere's API does not report. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB

# The large BAR by vendor and device, in GiB: the memory of the device by its name in pci.ids, up to the next power of
# two. That is the size of NVIDIA's BAR1 and AMD's BAR0 on servers (the recordings with such GPUs agree). The table is
# for devices whose BARs were not read; BARs in a topology take precedence.
LARGE_BAR_GIB = {
    (0x10DE, 0x1DB1): 16,  # V100 SXM2 16 GB
    (0x10DE, 0x1DB4): 16,  # V100 PCIe 16 GB
    (0x10DE, 0x1DB5): 32,  # V100 SXM2 32 GB
    (0x10DE, 0x1DB6): 32,  # V100 PCIe 32 GB
    (0x10DE, 0x1DB8): 32,  # V100 SXM3 32 GB
    (0x10DE, 0x20B0): 64,  # A100 SXM4 40 GB
    (0x10DE, 0x20B2): 128,  # A100 SXM4 80 GB
    (0x10DE, 0x20B5): 128,  # A100 PCIe 80 GB
    (0x10DE, 0x20B7): 32,  # A30 PCIe 24 GB
    (0x10DE, 0x20F1): 64,  # A100 PCIe 40 GB
    (0x10DE, 0x2235): 64,  # A40 48 GB
    (0x10DE, 0x2236): 32,  # A10 24 GB
    (0x10DE, 0x2321): 128,  # H100 NVL 94 GB
    (0x10DE, 0x2330): 128,  # H100 SXM5 80 GB
    (0x10DE, 0x2331): 128,  # H100 PCIe 80 GB
    (0x10DE, 0x2335): 256,  # H200 SXM 141 GB
    (0x10DE, 0x26B5): 64,  # L40 48 GB
    (0x10DE, 0x26B9): 64,  # L40S 48 GB
    (0x10DE, 0x27B8): 32,  # L4 24 GB
    (0x1002, 0x740F): 64,  # Instinct MI210 64 GB
    (0x1002, 0x74A1): 256,  # Instinct MI300X 192 GB
}
# The space that a virtual machine has without the setting (Denneman, "vSphere ML Accelerator Spectrum Deep Dive").
DEFAULT_GIB = 32


def unknown(functions: Iterable[Function]) -> list[str]:
    """Return the addresses of the GPUs whose BAR is neither in the topology nor in the table."""
    return [
        item.address
        for item in functions
        if item.kind == "gpu" and not item.bars and (item.vendor_id, item.device_id) not in LARGE_BAR_GIB
    ]


def mmio_gib(functions: Iterable[Function]) -> int:
    """Return pciPassthru.64bitMMIOSizeGB: the power of two above the sum of the GPUs' BARs, at least the default."""
    total = 0
    for item in functions:
        if item.kind == "gpu":
            bar_bytes = sum(
                region.size_bytes for region in item.bars if region.kind == "memory" and region.width_bits == 64
            )
            total += bar_bytes or LARGE_BAR_GIB.get((item.vendor_id, item.device_id), 0) * GIB
    size = DEFAULT_GIB
    while size * GIB <= total:
        size *= 2
    return size
