# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of GPUs: what nvidia-smi, DCGM, Fabric Manager and amd-smi say of them, and their versions. Pure.

Many rules are occasional because not every GPU or driver has the value: that it is never measured there is no fault of
the checker. What cannot be read although it exists is gpu_unreadable, which is not occasional.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    AT_LEAST,
    AT_MOST,
    CONFIGURATION,
    EQUAL,
    HARDWARE,
    Expected,
    ExpectedDevice,
    Place,
    Rule,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.make import Limit, event, flag, increase

SMI = "nvidia-smi(1)"
MEMORY = "NVIDIA GPU Memory Error Management"
DCGM = "NVIDIA DCGM"
PLAN = "the node's plan"
HOUR = 3600
# NVIDIA's severities of a failed diagnostic (DCGM, dcgm_errors.h): 1 monitor, 2 isolate, 3 unknown, 4 triage,
# 5 configuration, 6 reset.
DIAGNOSTICS = (
    "software",
    "memory",
    "pcie",
    "diagnostic",
    "targeted_stress",
    "targeted_power",
    "memory_bandwidth",
    "memtest",
    "pulse_test",
    "nvbandwidth",
    "eud",
    "other",
)


def _of_gpu(value: Callable[[ExpectedDevice], float | None]) -> Limit:
    """Return what a planned GPU must have."""

    def limit(expected: Expected, place: Place) -> float | None:
        if place.kind != "gpu":
            return None
        return next((value(device) for device in expected.devices if device.address == place.name), None)

    return limit


def _setting(name: str) -> Limit:
    return lambda expected, place: expected.gpu_settings.get(name) if place.kind == "gpu" else None


def _constant(value: str) -> Limit:
    """Return the one good word of a GPU, or of the node for what belongs to no GPU."""
    return lambda expected, place: value if place.kind in ("gpu", "node") else None


def _version(name: str, kind: str) -> Limit:
    """Return the version of a kind of place: of this place, or else of all."""

    def limit(expected: Expected, place: Place) -> str | None:
        if place.kind != kind:
            return None
        return expected.versions.get(f"{name} {place.name}".rstrip(), expected.versions.get(name))

    return limit


_occasional_flag = partial(flag, is_occasional=True)


def _no_errors(check: str, title: str, source: str) -> Rule:
    return Rule(check, title, HARDWARE, AT_MOST, "reset_gpu", source, "gpu-ecc", limit=0, is_occasional=True)


def _equal(check: str, title: str, action: str, runbook: str, source: str, limit: Limit, layer: str) -> Rule:
    return Rule(check, title, layer, EQUAL, action, source, runbook, is_occasional=True, expected=limit)


def _number(check: str, title: str, unit: str) -> Rule:
    """Return the rule of a number without a limit: it is compared over the fleet. A site may give it a limit."""
    return Rule(check, title, HARDWARE, AT_MOST, "watch", "the site", "outlier", unit=unit, is_occasional=True)


_SMI_RULES = (
    flag("gpu_lost", "GPU lost: the driver no longer reaches it", "reboot", SMI, "gpu-lost"),
    _occasional_flag(
        "gpu_driver_fails",
        "no GPU can be used: the NVIDIA driver is not loaded, or of another version than its library",
        "drain",
        SMI,
        "gpu-driver",
        layer=CONFIGURATION,
    ),
    flag("gpu_unreadable", "GPU values cannot be read", "watch", SMI, "gpu-unreadable"),
    _occasional_flag("gpu_row_remap_pending", "GPU row remap pending", "reset_gpu", MEMORY, "gpu-row-remap"),
    _occasional_flag("gpu_row_remap_failure", "GPU row remap failed", "person", MEMORY, "gpu-row-remap"),
    _occasional_flag("gpu_retired_pages_pending", "GPU page retirement pending", "reset_gpu", MEMORY, "gpu-row-remap"),
    _occasional_flag("gpu_repair_pending", "GPU channel or TPC repair pending", "reset_gpu", SMI, "gpu-row-remap"),
    _occasional_flag("gpu_unrepairable_memory", "GPU memory beyond repair", "person", SMI, "gpu-row-remap"),
    _occasional_flag(
        "gpu_sram_threshold_exceeded", "GPU SRAM errors above NVIDIA's threshold", "person", MEMORY, "gpu-ecc"
    ),
    _no_errors("gpu_ecc_dram_uncorrectable", "uncorrectable DRAM errors since the driver was loaded", MEMORY),
    _no_errors("gpu_ecc_sram_uncorrectable", "uncorrectable SRAM errors since the driver was loaded", MEMORY),
    # The lifetime's counter shows errors that came between the last round and a new start of the driver.
    increase(
        "gpu_ecc_lifetime_uncorrectable",
        "new uncorrectable memory errors",
        "watch",
        MEMORY,
        "gpu-ecc",
        0,
        24 * HOUR,
        is_occasional=True,
    ),
    _occasional_flag("gpu_reset_required", "GPU needs a reset", "reset_gpu", SMI, "gpu-reset"),
    _occasional_flag("gpu_drain_recommended", "GPU must be drained", "drain", SMI, "gpu-reset"),
    _occasional_flag("gpu_reboot_required", "GPU needs a reboot of the host", "reboot", SMI, "gpu-reset"),
    _occasional_flag("gpu_inforom_corrupted", "GPU InfoROM corrupted", "person", SMI, "gpu-inforom"),
    _occasional_flag(
        "gpu_power_brake", "GPU slowed down by the power brake: a power supply fails", "person", SMI, "gpu-power-brake"
    ),
    _occasional_flag("gpu_hw_thermal_slowdown", "GPU slowed down by heat", "drain", SMI, "gpu-thermal"),
    _occasional_flag(
        "gpu_hw_slowdown", "GPU slowed down by the hardware, for no reason that it tells", "drain", SMI, "gpu-thermal"
    ),
    # Both are sampled above once a round; the counters of drivers from 590 on also show what happened between rounds.
    increase(
        "gpu_power_brake_time",
        "GPU was slowed down by the power brake",
        "watch",
        "a choice: 1 s in an hour",
        "gpu-power-brake",
        1_000_000,
        HOUR,
        unit="us",
        is_occasional=True,
    ),
    increase(
        "gpu_hw_thermal_slowdown_time",
        "GPU was slowed down by heat",
        "watch",
        "a choice: 1 min in an hour",
        "gpu-thermal",
        60_000_000,
        HOUR,
        unit="us",
        is_occasional=True,
    ),
    increase(
        "gpu_pcie_replays",
        "PCIe link of the GPU repeats packets",
        "watch",
        "DCGM: 8 a minute",
        "pcie-replays",
        8 * 60,
        HOUR,
        is_occasional=True,
    ),
    _equal(
        "gpu_fabric_state",
        "GPU has not joined the NVLink fabric",
        "drain",
        "nvlink-fabric",
        SMI,
        _constant("Completed"),
        CONFIGURATION,
    ),
    _equal(
        "gpu_fabric_status",
        "GPU could not join the NVLink fabric",
        "drain",
        "nvlink-fabric",
        SMI,
        _constant("Success"),
        CONFIGURATION,
    ),
    _equal(
        "gpu_fabric_bandwidth",
        "NVLink fabric slower than built",
        "drain",
        "nvlink-fabric",
        SMI,
        _constant("Full"),
        HARDWARE,
    ),
    _equal(
        "gpu_fabric_health", "NVLink fabric unhealthy", "drain", "nvlink-fabric", SMI, _constant("Healthy"), HARDWARE
    ),
    *(
        _equal(f"gpu_{name}", f"GPU {words}", "configure", "gpu-configuration", PLAN, _setting(name), CONFIGURATION)
        for name, words in (
            ("persistence_mode", "persistence mode not as planned"),
            ("ecc_mode", "ECC mode not as planned"),
            ("mig_mode", "MIG mode not as planned"),
        )
    ),
    _number("gpu_count", "GPUs that the driver lists", ""),
    _number("gpu_temperature", "GPU temperature", "C"),
    _number("gpu_memory_temperature", "GPU memory temperature", "C"),
    _number("gpu_power", "GPU power", "W"),
    _number("gpu_utilization", "GPU utilization", "%"),
    # Only measured at a utilization of 90 % and more, so that nodes can be compared.
    _number("gpu_sm_clock_under_load", "SM clock under load", "MHz"),
    _number("gpu_memory_clock_under_load", "memory clock under load", "MHz"),
    _number("gpu_power_under_load", "GPU power under load", "W"),
)

_NVLINK_RULES = (
    Rule(
        "gpu_nvlinks_active",
        "NVLinks of the GPU inactive",
        HARDWARE,
        AT_LEAST,
        "drain",
        PLAN,
        "nvlink-down",
        unit="links",
        expected=_of_gpu(lambda gpu: gpu.nvlinks),
    ),
    increase("gpu_nvlink_replays", "NVLink repeats packets", "watch", "DCGM: 1 warns", "nvlink-errors", 0, HOUR),
    increase("gpu_nvlink_recoveries", "NVLink had to recover", "watch", "DCGM: 1 warns", "nvlink-errors", 0, HOUR),
    increase(
        "gpu_nvlink_crc_errors", "NVLink has CRC errors", "drain", "DCGM: 100 a second", "nvlink-errors", 100 * 60, 60
    ),
    # NVLink 5. All are zero on healthy links.
    increase("gpu_nvlink_recovery_failures", "NVLink stayed down", "drain", "estimate", "nvlink-errors", 0, 24 * HOUR),
    increase("gpu_nvlink_effective_errors", "NVLink uncorrected errors", "watch", "estimate", "nvlink-errors", 0, HOUR),
    increase("gpu_nvlink_symbol_errors", "NVLink has symbol errors", "watch", "estimate", "nvlink-errors", 0, HOUR),
    increase("gpu_nvlink_packet_errors", "NVLink has damaged packets", "watch", "estimate", "nvlink-errors", 0, HOUR),
    Rule(
        "gpu_nvlink_effective_ber",
        "NVLink has bit errors after their correction",
        HARDWARE,
        AT_MOST,
        "watch",
        "DCGM: anything above the least value",
        "nvlink-errors",
        limit=15e-255,
    ),
)

_DCGM_RULES = (
    _equal("dcgm_health", "DCGM found a fault", "drain", "dcgm-health", DCGM, _constant("Healthy"), HARDWARE),
    _equal("dcgm_health_warning", "DCGM warns", "watch", "dcgm-health", DCGM, _constant("Healthy"), HARDWARE),
    *(
        _equal(
            f"dcgm_diag_{test}",
            f"DCGM's diagnostic failed: {test.replace('_', ' ')}",
            "person",
            "dcgm-diag",
            DCGM,
            _constant("Pass"),
            HARDWARE,
        )
        for test in DIAGNOSTICS
    ),
    _equal(
        "dcgm_diag_reset",
        "DCGM's diagnostic asks for a reset",
        "reset_gpu",
        "dcgm-diag",
        DCGM,
        _constant("Pass"),
        HARDWARE,
    ),
    _equal("dcgm_diag_monitor", "DCGM's diagnostic warns", "watch", "dcgm-diag", DCGM, _constant("Pass"), HARDWARE),
    _equal(
        "dcgm_diag_configuration",
        "DCGM's diagnostic finds the node configured wrongly",
        "configure",
        "dcgm-diag",
        DCGM,
        _constant("Pass"),
        CONFIGURATION,
    ),
)


def _fabric_manager(check: str, title: str, action: str, layer: str = HARDWARE) -> Rule:
    source = "NVIDIA Fabric Manager User Guide"
    return event(f"fabric_manager_{check}", title, action, source, "fabric-manager", layer)


_FABRIC_MANAGER_RULES = (
    _fabric_manager("fatal", "Fabric Manager: fatal error of an NVSwitch", "reboot"),
    _fabric_manager("non_fatal", "Fabric Manager: error of an NVSwitch that is not fatal", "note"),
    _fabric_manager("gpu_left", "Fabric Manager: a GPU left the NVLink fabric", "reboot"),
    _fabric_manager("topology", "Fabric Manager does not run: an NVSwitch is missing", "person"),
    _fabric_manager("no_switches", "Fabric Manager sees no NVSwitch", "reboot", CONFIGURATION),
    _fabric_manager("error", "Fabric Manager reports an error", "note", CONFIGURATION),
)

_VERSION_RULES = (
    *(
        _equal(
            f"version_{name}",
            f"version of the {words} not as released",
            "configure",
            "versions",
            "the image or release",
            _version(name, "node"),
            CONFIGURATION,
        )
        for name, words in (("nvidia_driver", "NVIDIA driver"), ("kernel", "kernel"))
    ),
    _equal(
        "version_vbios",
        "version of the GPU's VBIOS not as released",
        "configure",
        "versions",
        "the release",
        _version("vbios", "gpu"),
        CONFIGURATION,
    ),
    _equal(
        "version_firmware",
        "version of the NIC's firmware not as released",
        "configure",
        "versions",
        "the release",
        _version("firmware", "nic"),
        CONFIGURATION,
    ),
)

# From AMD's documents; no AMD GPU was seen.
_AMD = "AMD SMI documentation"
_AMD_RULES = (
    _no_errors("amd_ecc_uncorrectable", "uncorrectable memory errors of the GPU", _AMD),
    increase(
        "amd_pcie_replays",
        "PCIe link of the GPU repeats packets",
        "watch",
        "as for NVIDIA's GPUs",
        "pcie-replays",
        8 * 60,
        HOUR,
        is_occasional=True,
    ),
    _occasional_flag("amd_retired_pages_pending", "GPU page retirement pending", "reset_gpu", _AMD, "gpu-row-remap"),
)

RULES = (
    *_SMI_RULES,
    *_NVLINK_RULES,
    *_DCGM_RULES,
    *_FABRIC_MANAGER_RULES,
    *_VERSION_RULES,
    *_AMD_RULES,
)
