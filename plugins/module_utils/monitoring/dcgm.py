# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The metrics that dcgm-exporter must measure: its own list lacks row remapping and the reasons of slow clocks."""

from __future__ import annotations

# Names of DCGM 3.3 to 4.6, as in NVIDIA/DCGM dcgmlib/dcgm_fields.h; DCGM 4.7 has new names beside some of them.
FIELDS = (
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."),
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Reasons of slow clocks (bits; 0x40 heat, 0x80 power brake)."),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Last Xid error, never reset."),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "Rows will be remapped at the next reset."),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Remapping of rows has failed."),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for uncorrectable errors."),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for correctable errors."),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrectable memory errors since the driver was loaded."),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "PCIe packets that were repeated."),
    ("DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", "PCIe generation of the link; idle links drop to 1."),
    ("DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", "PCIe lanes of the link."),
)


def counters() -> str:
    """Return the file for dcgm-exporter's option --collectors."""
    return "# DCGM field, Prometheus metric type, help message\n" + "".join(
        f"{name}, {kind}, {text}\n" for name, kind, text in FIELDS
    )
