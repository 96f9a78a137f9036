# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of the host: PCIe links, disks, memory, file systems, processors, clock and units. Pure."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    AT_LEAST,
    AT_MOST,
    CONFIGURATION,
    GUEST,
    HARDWARE,
    Expected,
    ExpectedDevice,
    Place,
    Rule,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.make import Limit, flag, increase

PLAN, ESTIMATE = "the node's plan", "estimate"
NVME = "NVM Express Base Specification, SMART / Health Information log"
HOUR, DAY = 3600, 24 * 3600
# A kernel reserves a part of the memory that differs between versions; a module of such a server has more than 2 %.
MEMORY_SHARE = 0.98
# A guest's plan is all that its firmware has: the kernel's page structures (1.6 %), its code and the memory of
# crashkernel are not in MemTotal. An estimate; no module can be lost in a guest.
GUEST_MEMORY_SHARE, GUEST_RESERVED = 0.95, 1 << 30


def _of_device(value: Callable[[ExpectedDevice], float | None]) -> Limit:
    """Return what a planned device must have."""

    def limit(expected: Expected, place: Place) -> float | None:
        devices = (device for device in expected.devices if (device.kind, device.address) == (place.kind, place.name))
        return next((value(device) for device in devices), None)

    return limit


def _memory(expected: Expected, place: Place) -> float | None:
    if place.kind != "node" or expected.memory_bytes is None:
        return None
    if expected.machine == GUEST:
        return int(GUEST_MEMORY_SHARE * expected.memory_bytes) - GUEST_RESERVED
    return int(MEMORY_SHARE * expected.memory_bytes)


def _processors(expected: Expected, place: Place) -> float | None:
    return expected.processors if place.kind == "node" else None


def _mount(expected: Expected, place: Place) -> str | None:
    return place.name if place.kind == "mount" and place.name in expected.mounts else None


def _unit(expected: Expected, place: Place) -> str | None:
    names = {name for unit in expected.units for name in (unit, f"{unit}.service")}
    return place.name if place.kind == "unit" and place.name in names else None


RULES = (
    Rule(
        "pcie_width",
        "PCIe link narrower than planned",
        HARDWARE,
        AT_LEAST,
        "drain",
        PLAN,
        "pcie-link-degraded",
        unit="lanes",
        expected=_of_device(lambda device: device.link_width),
    ),
    # Not measured of a link that sleeps or may be idle.
    Rule(
        "pcie_speed",
        "PCIe link slower than planned",
        HARDWARE,
        AT_LEAST,
        "drain",
        PLAN,
        "pcie-link-degraded",
        unit="GT/s",
        is_occasional=True,
        expected=_of_device(lambda device: device.link_speed_gt_s),
    ),
    increase("pcie_errors_corrected", "many corrected PCIe errors", "watch", ESTIMATE, "pcie-errors", 1000, HOUR),
    increase("pcie_errors_nonfatal", "uncorrected PCIe errors", "watch", ESTIMATE, "pcie-errors", 0, DAY),
    increase("pcie_errors_fatal", "fatal PCIe errors", "drain", ESTIMATE, "pcie-errors", 0, DAY),
    flag("disk_failed", "disk failed", "person", NVME, "disk"),
    flag("disk_spare_low", "spare blocks of the disk used up", "watch", NVME, "disk"),
    flag("disk_hot", "disk too hot", "watch", NVME, "disk"),
    Rule("disk_used", "disk worn out", HARDWARE, AT_MOST, "watch", NVME, "disk", 100, unit="% of its rated endurance"),
    increase("disk_media_errors", "disk lost data", "watch", ESTIMATE, "disk", 0, DAY),
    # Errors of long ago stay in this log.
    Rule(
        "disk_error_log", "disk logged errors", HARDWARE, AT_MOST, "note", "smartctl(8): exit status, bit 6", "disk", 0
    ),
    # The counters begin at zero with each boot.
    Rule("edac_uncorrected", "uncorrected memory errors", HARDWARE, AT_MOST, "person", "Linux EDAC", "memory", 0),
    increase(
        "edac_corrected",
        "many corrected memory errors",
        "watch",
        "estimate; mcelog warns at 10 a day, which many modules reach for years",
        "memory",
        1000,
        DAY,
    ),
    Rule(
        "memory_bytes",
        "less memory than planned",
        HARDWARE,
        AT_LEAST,
        "drain",
        PLAN,
        "memory",
        unit="bytes",
        expected=_memory,
    ),
    Rule(
        "processors",
        "fewer processors than planned",
        HARDWARE,
        AT_LEAST,
        "drain",
        PLAN,
        "processors",
        expected=_processors,
    ),
    flag("mount_missing", "file system not mounted", "configure", PLAN, "file-system", CONFIGURATION, expected=_mount),
    flag("mount_read_only", "file system read-only", "drain", "mount(2)", "file-system"),
    flag("mount_hangs", "file system does not answer", "drain", "statfs(2)", "file-system", CONFIGURATION),
    # Of a file server that all nodes have: to drain each of them would not help.
    flag(
        "network_mount_hangs", "network file system does not answer", "watch", "statfs(2)", "file-system", CONFIGURATION
    ),
    Rule(
        "mount_space_used", "file system full", CONFIGURATION, AT_MOST, "watch", ESTIMATE, "file-system", 95, unit="%"
    ),
    Rule(
        "mount_inodes_used",
        "file system out of inodes",
        CONFIGURATION,
        AT_MOST,
        "watch",
        ESTIMATE,
        "file-system",
        95,
        unit="%",
    ),
    flag("clock_not_synchronised", "clock not synchronised", "configure", "adjtimex(2)", "clock", CONFIGURATION),
    Rule("clock_offset", "clock wrong", CONFIGURATION, AT_MOST, "configure", ESTIMATE, "clock", 0.1, unit="s"),
    flag("unit_failed", "unit failed", "watch", "systemctl(1)", "units", CONFIGURATION),
    flag(
        "container_cannot_start",
        "jobs' containers cannot start",
        "configure",
        "podman-run(1)",
        "containers",
        CONFIGURATION,
    ),
    flag("unit_inactive", "required unit not active", "configure", PLAN, "units", CONFIGURATION, expected=_unit),
)
