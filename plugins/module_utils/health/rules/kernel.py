# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of lines in the kernel's log, other than Xids and SXids. Pure.

Notes are forgotten after a day; "watch" stays until a person has looked.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    APPLICATION,
    CONFIGURATION,
    EQUAL,
    Rule,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.make import event

LINES_LOST, LOG_READ, COMPLETE = "kernel_log_lines_lost", "kernel_log_read", "complete"
SOURCE = "Linux"


RULES = (
    Rule(
        LOG_READ,
        "the kernel's log could not be read",
        CONFIGURATION,
        EQUAL,
        "watch",
        SOURCE,
        "kernel-log",
        expected=lambda expected, place: COMPLETE if place.kind == "node" else None,
    ),
    event(LINES_LOST, "lines of the kernel's log are lost: faults in them are unknown", "watch", SOURCE, "kernel-log"),
    event("gpu_not_initialized", "the driver could not initialize the GPU", "reboot", SOURCE, "gpu-lost"),
    event(
        "nvidia_version_mismatch", "NVIDIA driver updated without a reboot", "reboot", SOURCE, "versions", CONFIGURATION
    ),
    # The counters in /sys judge how frequent these are; a line alone is no fault.
    event("aer_corrected", "PCIe error, corrected", "note", SOURCE, "pcie-errors"),
    event("aer_uncorrected", "PCIe error, not corrected", "watch", SOURCE, "pcie-errors"),
    event("aer_fatal", "fatal PCIe error", "person", SOURCE, "pcie-errors"),
    # Also printed on healthy servers, where the slot's power is not announced to the NIC.
    event("nic_slot_power", "NIC gets too little power from its slot", "note", SOURCE, "nic-power"),
    event("nic_cable_hot", "cable or transceiver of the NIC too hot", "person", SOURCE, "cable"),
    event("nic_cable_error", "cable or transceiver of the NIC faulty", "person", SOURCE, "cable"),
    event("nic_health", "NIC's firmware stopped", "person", SOURCE, "nic-health"),
    event("nvme_dead", "NVMe disk no longer answers", "person", SOURCE, "disk"),
    event("nvme_timeout", "NVMe disk answered too late and was reset", "watch", SOURCE, "disk"),
    event("disk_io_error", "input or output error of a disk", "watch", SOURCE, "disk"),
    event(
        "network_disk_error",
        "disk of a storage server lost data or answered too late",
        "watch",
        SOURCE,
        "disk",
        CONFIGURATION,
    ),
    event("raid_failed", "RAID array failed", "person", SOURCE, "disk"),
    event("raid_degraded", "disk of a RAID array failed", "person", SOURCE, "disk"),
    event("file_system_error", "file system damaged", "person", SOURCE, "file-system"),
    event("file_system_read_only", "file system made read-only after an error", "person", SOURCE, "file-system"),
    event("memory_uncorrected", "uncorrected memory error", "person", SOURCE, "memory"),
    event("processor_hot", "processor slowed down by heat", "watch", SOURCE, "thermal"),
    event("lockup", "a processor was stuck", "watch", SOURCE, "hang"),
    event("hung_task", "a process was stuck in the kernel", "note", SOURCE, "hang"),
    event("out_of_memory", "a process was killed for want of memory", "note", SOURCE, "hang", APPLICATION),
)
