# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tell what a line of the kernel's log reports. Pure.

A line that matches nothing reports nothing: most lines with the word "error" are harmless, as nvidia-peermem's, and
mlx5_core's ACCESS_REG of a restricted function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Place
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import PATTERN, pci_address
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import xid

NODE = Place("node")


class Report(NamedTuple):
    """The report of a line. Lines with the same check, place and detail report one thing."""

    check: str
    place: Place
    detail: str = ""  # the link, for example


# Finds what a line reports: the row's check and match; the address of the record's device, "" if it has none; and the
# kinds of the planned devices by address.
Finder = Callable[[str, "re.Match[str]", str, Mapping[str, str]], "Report | None"]

_NVLINK5 = re.compile(r"(\w+)\s+(Fatal|Nonfatal)\s+.*?Link\s+(-?\d+)\s+\(0x([0-9a-fA-F]{1,8})\b")
_RECOVERY = re.compile(r"\bto 0x([0-9a-fA-F]{1,2}) \(")
_LINK = re.compile(r"(?i)\blink (-?\d+)")
# Drives of media that may be absent (the floppy of a virtual server), and devices of files and of memory.
_NO_DISK = re.compile(r"(?:fd|sr|loop|z?ram)\d")
_NETWORK_DISK = re.compile(r"(?:rbd|nbd|drbd)\d")
# Sub-codes of NETIR_LINK_EVT for which the catalogue says "ignore": the user or the host ended the link.
_ENDED = (0x26, 0x28)


def _xid(_check: str, match: re.Match[str], device: str, kinds: Mapping[str, str]) -> Report | None:
    address = pci_address(match[1])
    if address is None:
        return None
    code, text = int(match[2]), match[3] or ""
    check, detail = f"xid_{code}", ""
    if code in xid.NVLINK5:
        check, detail = _nvlink5(code, text)
    elif code == 154:
        action = _RECOVERY.search(text)
        name = xid.RECOVERY.get(int(action[1], 16)) if action else None
        check = f"xid_154_{name[0] if name else 'unknown'}"
    elif code == 74:
        link = _LINK.search(text)
        detail = f"link {link[1]}" if link else ""
    if check not in xid.CHECKS:
        check, detail = xid.UNKNOWN, f"Xid {code}"
    return Report(check, Place("gpu", address), detail)


def _nvlink5(code: int, text: str) -> tuple[str, str]:
    """Decode an error of NVLink 5 by its words and its sub-code, bits 20 to 25 of the first number."""
    match = _NVLINK5.search(text)
    if match is None:
        return f"xid_{code}_unknown", ""
    unit, severity, link, info = match.groups()
    sub_code = (int(info, 16) >> 20) & 0x3F
    detail = f"link {int(link)} {unit} {sub_code}"
    if severity == "Nonfatal":
        return f"xid_{code}_nonfatal", detail
    is_ended = code == 149 and unit.startswith("NETIR_LINK") and sub_code in _ENDED
    return f"xid_{code}_{'ended' if is_ended else 'fatal'}", detail


def _sxid(_check: str, match: re.Match[str], device: str, kinds: Mapping[str, str]) -> Report | None:
    """Decode an NVSwitch's error. Lines that begin with Severity or Data belong to the one before."""
    address, number, severity, text = pci_address(match[1]), int(match[2]), match[3], match[4]
    if address is None or severity not in ("Fatal", "Non-fatal"):
        return None
    link = _LINK.search(text)
    detail = f"SXid {number}{f' link {link[1]}' if link else ''}"
    return Report("sxid_fatal" if severity == "Fatal" else "sxid_non_fatal", Place("nvswitch", address), detail)


def _gpu(check: str, match: re.Match[str], device: str, kinds: Mapping[str, str]) -> Report | None:
    address = pci_address(match[1])
    return Report(check, Place("gpu", address)) if address else None


def _aer(_check: str, match: re.Match[str], device: str, kinds: Mapping[str, str]) -> Report | None:
    driver, address, severity = match[1], pci_address(match[2]), match[3].lower()
    if address is None:
        return None
    kind = kinds.get(address) or {"mlx5_core": "nic", "nvidia": "gpu"}.get(driver, "bridge")
    if "correct" in severity and not severity.startswith("uncorrect"):
        check = "aer_corrected"
    else:
        check = "aer_uncorrected" if "non-fatal" in severity or "nonfatal" in severity else "aer_fatal"
    return Report(check, Place(kind, address))


def _nic(check: str, match: re.Match[str], device: str, kinds: Mapping[str, str]) -> Report | None:
    """Place a NIC's line, which has the address in some kernels only."""
    address = pci_address(match[1] or device)
    return Report(check, Place("nic", address) if address else NODE)


def _disk(check: str, match: re.Match[str], device: str, kinds: Mapping[str, str]) -> Report | None:
    """Place a disk's line: a namespace or partition of an NVMe disk is the disk's.

    Disks of a storage server fail on many nodes at once, and no node is to blame.
    """
    name = match[1]
    if _NO_DISK.match(name):
        return None
    if _NETWORK_DISK.match(name):
        return Report("network_disk_error", Place("disk", name))
    nvme = re.match(r"nvme\d+", name)
    return Report(check, Place("nvme", nvme[0]) if nvme else Place("disk", name))


def _raid(_check: str, match: re.Match[str], device: str, kinds: Mapping[str, str]) -> Report | None:
    is_failed = "failing array" in match[3] or "cannot continue" in match[3].lower()
    return Report("raid_failed" if is_failed else "raid_degraded", Place("disk", match[1]), match[2])


def _node(check: str, match: re.Match[str], device: str, kinds: Mapping[str, str]) -> Report | None:
    return Report(check, NODE, match[1] if match.re.groups else "")


_MLX5 = rf"(?:mlx5_core ({PATTERN})[^:]*: )?"
_MODULE_EVENT = rf"{_MLX5}(?:mlx5_port_module_event:.*?: )?Port module event\[error\]: "
_ADDRESS = rf"({PATTERN})"
# Finder, check and pattern; the finder of a row without a check finds it. The first that matches counts; each is held
# against the line's beginning.
_ROWS: tuple[tuple[Finder, str, str], ...] = (
    # "Xid (PCI:0000:9b:00): 119, pid=…", without "PCI:" in old drivers, with "GPU-I:05" after the address under MIG.
    (_xid, "", rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}[^)]*\): (\d{{1,5}})(?:, *(.*))?"),
    (_sxid, "", rf"nvidia-nvswitch\d+: SXid \((?:PCI:)?{_ADDRESS}\): (\d{{1,6}}), (Fatal|Non-fatal|\w+),? ?(.*)"),
    # A GPU that is gone when the driver is loaded has no Xid; one that goes later has both, which are one event.
    (_gpu, "xid_79", rf"NVRM: GPU {_ADDRESS}: GPU has fallen off the bus"),
    (_gpu, "xid_79", rf"NVRM: The NVIDIA GPU {_ADDRESS}\s.*fallen off the bus"),
    (_gpu, "gpu_not_initialized", rf"NVRM: GPU {_ADDRESS}: RmInitAdapter failed"),
    (_node, "nvidia_version_mismatch", r"NVRM: API mismatch"),
    (_aer, "", rf"(\S+) {_ADDRESS}: (?:AER: )?PCIe Bus Error: severity=([A-Za-z]+(?: \([A-Za-z-]+\))?)"),
    # The device that reports a fatal error may not answer any more, so that its own line never comes.
    (_aer, "", rf"(\S+) {_ADDRESS}: AER: (?:Multiple )?(Uncorrect\w+ \(Fatal\)) error"),
    (_nic, "nic_slot_power", rf"{_MLX5}(?:mlx5_pcie_event:.*?: )?Detected insufficient power on the PCIe slot"),
    (_nic, "nic_cable_hot", rf"{_MODULE_EVENT}.*High Temperature"),
    (_nic, "nic_cable_error", _MODULE_EVENT),
    (_nic, "nic_health", rf"mlx5_core {_ADDRESS}.*(?:device's health compromised|Fatal error \d+ detected)"),
    (_disk, "nvme_dead", r"nvme (nvme\d+): (?:Disabling device after reset failure|Removing after probe failure)"),
    (_disk, "nvme_dead", r"nvme (nvme\d+): (?:Device not ready; aborting|controller is down)"),
    (_disk, "nvme_timeout", r"nvme (nvme\d+): I/O (?:tag )?\d+ .*timeout, (?:reset|disable)"),
    (_disk, "disk_io_error", r"(?:Buffer )?I/O error on dev (\S+?),"),
    (
        _disk,
        "disk_io_error",
        r"(?:blk_update_request: )?(?:critical medium|I/O|critical target|critical nexus) error, dev (\S+?),",
    ),
    (_raid, "", r"md/raid[\dlinear]*:?(md\w+): Disk failure on (\S+?)[, ](.*)"),
    (
        _disk,
        "file_system_read_only",
        r"(?:EXT4-fs|BTRFS|XFS|F2FS-fs)[^(]*\((?:device )?([^):]+)\).*"
        r"(?:Remounting filesystem read-only|forced readonly|Shutting down filesystem|has been shut down)",
    ),
    (_disk, "file_system_error", r"(?:EXT4-fs error|BTRFS error|BTRFS critical)[^(]*\((?:device )?([^):]+)\)"),
    (_disk, "file_system_error", r"EXT4-fs \(([^):]+)\): I/O error while writing superblock"),
    (_disk, "file_system_error", r"XFS \(([^):]+)\): (?:.*[Cc]orruption|(?i:log I/O error)|metadata I/O error)"),
    (_node, "memory_uncorrected", r"(?:.*EDAC MC\d+: \d+ UE|mce: Uncorrected hardware memory error)"),
    (_node, "processor_hot", r"(?:mce: )?CPU\d+: (?:Core|Package) temperature(?: is)? above threshold"),
    (_node, "lockup", r"(?:NMI )?watchdog: (?:BUG: soft lockup|Watchdog detected hard LOCKUP)"),
    (_node, "lockup", r"rcu: INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stall"),
    (_node, "hung_task", r"INFO: task ([^:]+):\d+ blocked for more than"),
    (_node, "out_of_memory", r"(?:Memory cgroup out of memory|Out of memory): Killed process"),
)
_PATTERNS = tuple((finder, check, re.compile(pattern, re.DOTALL)) for finder, check, pattern in _ROWS)


def report(text: str, device: str, kinds: Mapping[str, str]) -> Report | None:
    """Return what a line reports. ``device``: the address that the record names, "" if none."""
    for finder, check, pattern in _PATTERNS:
        match = pattern.match(text)
        if match:
            return finder(check, match, device, kinds)
    return None
