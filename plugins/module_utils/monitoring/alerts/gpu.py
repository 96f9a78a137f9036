# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Alerts of GPUs, NVSwitches and PCIe links, most of them of what sailloft-health finds. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.series import at, fault_alert
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import (
    CRITICAL,
    DATACENTER,
    GONE,
    GPU,
    HARDWARE,
    PLATFORM,
    WARNING,
    Alert,
    Case,
)


def _dcgm(field: str, gpu: int = 0) -> str:
    return f'{field}{{gpu="{gpu}",UUID="GPU-{gpu}",job="dcgm",{at()}}}'


def _reason(bit: int) -> str:
    """Return the expression that holds while a bit of the reasons is set: PromQL has no bit operators."""
    return f"floor(DCGM_FI_DEV_CLOCKS_EVENT_REASONS / {bit}) % 2 == 1"


COUNT = "count by (instance, host, rack, role) (DCGM_FI_DEV_GPU_TEMP)"
TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"

ALERTS = (
    fault_alert(
        "GpuLost",
        "gpu_lost|gpu_unreadable|gpu_driver_fails|gpu_not_initialized|xid_79",
        GPU,
        HARDWARE,
        ("a GPU is lost", "the GPU fell off the bus, or the driver is not loaded", "save dmesg, then reboot the node"),
        "gpu-lost",
        CRITICAL,
        also=f"{COUNT} < max_over_time({COUNT}[1h:5m])",
        cases=(Case({_dcgm(TEMPERATURE): (50, 50), _dcgm(TEMPERATURE, 1): (50, GONE)}),),
        hides=True,
    ),
    fault_alert(
        "GpuRowRemapPending",
        "gpu_row_remap_pending|gpu_retired_pages_pending|gpu_repair_pending|amd_retired_pages_pending",
        GPU,
        HARDWARE,
        ("memory of a GPU waits for a reset", "rows with errors will be remapped", "drain the node, reset the GPU"),
        "gpu-row-remap",
        also="DCGM_FI_DEV_ROW_REMAP_PENDING > 0",
        cases=(Case({_dcgm("DCGM_FI_DEV_ROW_REMAP_PENDING"): (0, 1)}),),
    ),
    fault_alert(
        "GpuRowRemapFailed",
        "gpu_row_remap_failure|gpu_unrepairable_memory",
        GPU,
        HARDWARE,
        ("memory of a GPU cannot be repaired", "no spare row is left", "run the field diagnostic, replace the GPU"),
        "gpu-row-remap",
        CRITICAL,
        also="DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
        cases=(Case({_dcgm("DCGM_FI_DEV_ROW_REMAP_FAILURE"): (0, 1)}),),
    ),
    fault_alert(
        "GpuEccUncorrectable",
        "gpu_ecc_.*uncorrectable|gpu_sram_threshold_exceeded|amd_ecc_uncorrectable",
        GPU,
        HARDWARE,
        ("uncorrectable memory errors of a GPU", "a weak memory cell", "reset the GPU once it is free"),
        "gpu-ecc",
    ),
    fault_alert(
        "GpuPowerBrake",
        "gpu_power_brake|gpu_power_brake_time",
        GPU,
        DATACENTER,
        ("a GPU brakes for lack of power", "a power supply or feed is lost", "look at the power supplies by the BMC"),
        "gpu-power-brake",
        CRITICAL,
        also=_reason(0x80),
        cases=(Case({_dcgm("DCGM_FI_DEV_CLOCKS_EVENT_REASONS"): (1, 0x88)}),),
    ),
    fault_alert(
        "GpuThermalSlowdown",
        "gpu_hw_thermal_slowdown|gpu_hw_thermal_slowdown_time|gpu_hw_slowdown",
        GPU,
        HARDWARE,
        ("a GPU is slow because it is hot", "fans, dust, coolant or inlet air", "compare with its neighbours"),
        "gpu-thermal",
        also=_reason(0x40),
        cases=(Case({_dcgm("DCGM_FI_DEV_CLOCKS_EVENT_REASONS"): (4, 0x48)}),),
    ),
    Alert(
        "GpuHot",
        'DCGM_FI_DEV_GPU_TEMP{job="dcgm",OF} > LIMIT',
        minutes=10,
        severity=WARNING,
        owner=HARDWARE,
        level=GPU,
        summary="{{ $labels.instance }}: GPU {{ $labels.gpu }} is hot",
        cause="fans, dust, coolant or inlet air",
        step="compare with its neighbours",
        runbook="gpu-thermal",
        place=("instance", "gpu"),
        cases=(Case({_dcgm(TEMPERATURE): (60, 99)}),),
        limit="gpu_temperature_celsius",
    ),
    fault_alert(
        "GpuXid",
        "xid_unknown|xid_.*",
        GPU,
        HARDWARE,
        ("Xid of a GPU", "see NVIDIA's catalogue", "read the node's verdict: sailloft-health"),
        "xid-reset-gpu",
        but="xid_79",
    ),
    fault_alert(
        "NvlinkFault",
        "gpu_nvlinks_active|gpu_nvlink_.*|gpu_fabric_.*",
        GPU,
        HARDWARE,
        ("NVLink of a GPU", "a link is down or has errors", "sailloft-health names the link"),
        "nvlink-down",
    ),
    fault_alert(
        "NvswitchFatal",
        "sxid_fatal|fabric_manager_(fatal|gpu_left|topology|no_switches)",
        GPU,
        HARDWARE,
        ("fatal error of an NVSwitch", "the NVSwitch or a GPU's links to it", "drain the node, then reboot it"),
        "nvswitch",
        CRITICAL,
    ),
    fault_alert(
        "PcieDegraded",
        "pcie_width|pcie_speed|pcie_bandwidth_.*",
        GPU,
        HARDWARE,
        ("a PCIe link is slower than planned", "the link trained down", "drain the node, reset the GPU, then reboot"),
        "pcie-link-degraded",
    ),
    fault_alert(
        "DcgmFault",
        "dcgm_.*",
        GPU,
        HARDWARE,
        ("DCGM found a fault", "its message names it", "read it: sailloft-health"),
        "dcgm-health",
    ),
    fault_alert(
        "GpuConfiguration",
        "gpu_persistence_mode|gpu_ecc_mode|gpu_mig_mode|version_.*|nvidia_version_mismatch",
        GPU,
        PLATFORM,
        ("a setting or version is not the planned one", "an update, or a change by hand", "run the playbook again"),
        "gpu-configuration",
    ),
)
