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
    EVENT,
    HARDWARE,
    Rule,
)

LINES_LOST, LOG_READ, COMPLETE = "kernel_log_lines_lost", "kernel_log_read", "complete"
SOURCE = "Linux"


def _event(check: str, title: str, action: str, runbook: str, layer: str = HARDWARE) -> Rule:
    return Rule(check, title, layer, EVENT, action, SOURCE, runbook)


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
    _event(LINES_LOST, "lines of the kernel's log are lost: faults in them are unknown", "watch", "kernel-log"),
    _event("gpu_not_initialized", "the driver could not initialize the GPU", "reboot", "gpu-lost"),
    _event("nvidia_version_mismatch", "NVIDIA driver updated without a reboot", "reboot", "versions", CONFIGURATION),
    # The counters in /sys judge how frequent these are; a line alone is no fault.
    _event("aer_corrected", "PCIe error, corrected", "note", "pcie-errors"),
    _event("aer_uncorrected", "PCIe error, not corrected", "watch", "pcie-errors"),
    _event("aer_fatal", "fatal PCIe error", "person", "pcie-errors"),
    # Also printed on healthy servers, where the slot's power is not announced to the NIC.
    _event("nic_slot_power", "NIC gets too little power from its slot", "note", "nic-power"),
    _event("nic_cable_hot", "cable or transceiver of the NIC too hot", "person", "cable"),
    _event("nic_cable_error", "cable or transceiver of the NIC faulty", "person", "cable"),
    _event("nic_health", "NIC's firmware stopped", "person", "nic-health"),
    _event("nvme_dead", "NVMe disk no longer answers", "person", "disk"),
    _event("nvme_timeout", "NVMe disk answered too late and was reset", "watch", "disk"),
    _event("disk_io_error", "input or output error of a disk", "watch", "disk"),
    _event(
        "network_disk_error", "disk of a storage server lost data or answered too late", "watch", "disk", CONFIGURATION
    ),
    _event("raid_failed", "RAID array failed", "person", "disk"),
    _event("raid_degraded", "disk of a RAID array failed", "person", "disk"),
    _event("file_system_error", "file system damaged", "person", "file-system"),
    _event("file_system_read_only", "file system made read-only after an error", "person", "file-system"),
    _event("memory_uncorrected", "uncorrected memory error", "person", "memory"),
    _event("processor_hot", "processor slowed down by heat", "watch", "thermal"),
    _event("lockup", "a processor was stuck", "watch", "hang"),
    _event("hung_task", "a process was stuck in the kernel", "note", "hang"),
    _event("out_of_memory", "a process was killed for want of memory", "note", "hang", APPLICATION),
)
