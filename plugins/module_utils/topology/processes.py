# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The processes that have a PCI function open: guests, whatever started them, and other programs.

The kernel says what is behind a device file: its device number leads through /sys/dev to the device's directory below
that of the PCI function (Linux Documentation/ABI/stable/sysfs-dev). Only files whose device is below no function are
known by name: /dev/vfio/GROUP, or noiommu-GROUP, is the whole IOMMU group (driver-api/vfio.rst, drivers/vfio/group.c);
NVIDIA's driver has the minor number of /dev/nvidiaN in /proc/driver/nvidia (its README, "The /proc Filesystem
Interface"), but shows nowhere which NVSwitch has the number N of /dev/nvidia-nvswitchN (linux_nvswitch.c). The files
resourceN of a function in /sys are its BARs (Linux Documentation/PCI/sysfs-pci.rst).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.usage import functions_behind

# A BAR of a function in /sys; "_wc" maps it write-combined.
BAR_FILE = re.compile(
    r"/sys/devices/\S*/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/resource\d(?:_wc)?$", re.MULTILINE
)
NVSWITCH_FILE = re.compile(r"/dev/nvidia-nvswitch\d+")
MAPS_BYTES_MAX = 1 << 26


@dataclass(frozen=True)
class OpenFile:
    """A device file or BAR that a process has open or mapped.

    ``addresses`` are the functions that it gives access to; ``guest`` is the name that QEMU was given, or None.
    """

    path: str
    addresses: tuple[str, ...]
    process: int
    program: str
    guest: str | None

    def __str__(self) -> str:
        return (
            f"guest {self.guest} (process {self.process})" if self.guest else f"process {self.process} ({self.program})"
        )


def open_files(files: Files, functions: list[Function]) -> tuple[list[OpenFile], int]:
    """Return the open device files of ``functions``, by process, and the number of processes that could not be read."""
    addresses = {function.address for function in functions}
    by_name = _by_name(files, functions)
    by_number: dict[str, set[str]] = {}
    opened: list[OpenFile] = []
    unread = 0
    for process in _processes(files):
        try:
            descriptors = os.listdir(files.path(f"proc/{process}/fd"))
        except PermissionError:
            unread += 1
            continue
        except OSError:
            continue  # it has ended meanwhile
        by_path: dict[str, set[str]] = {}
        for descriptor in descriptors:
            link = f"proc/{process}/fd/{descriptor}"
            path = _target(files, link)
            # Only files in /dev: looking at one on a dead NFS server would block.
            if path.startswith("/dev/") and path != "/dev/null":
                behind = by_name.get(NVSWITCH_FILE.sub("/dev/nvidia-nvswitch", path)) or _by_number(
                    files, link, by_number
                )
            else:
                behind = set(BAR_FILE.findall(path)) if path.startswith("/sys/") else set()
            if behind & addresses:
                by_path[path] = behind & addresses
        opened += _of_process(files, process, by_path)
    return opened, unread


def mapped_bars(files: Files, functions: list[Function]) -> list[OpenFile]:
    """Return the BARs of ``functions`` that processes have mapped, also if they have closed the file since.

    It reads the memory map of each process, which takes several times as long as ``open_files``: it is for functions
    that are about to lose their driver.
    """
    addresses = {function.address for function in functions}
    mapped: list[OpenFile] = []
    for process in _processes(files):
        try:
            maps = files.text_or_none(f"proc/{process}/maps", MAPS_BYTES_MAX) or ""
        except TopologyError:
            continue  # it has ended meanwhile, or may not be read, which open_files counts
        by_path = {match[0]: {match[1]} for match in BAR_FILE.finditer(maps) if match[1] in addresses}
        mapped += _of_process(files, process, by_path)
    return mapped


def _processes(files: Files) -> list[str]:
    return sorted((name for name in files.names("proc") if name.isdecimal()), key=int)


def _of_process(files: Files, process: str, by_path: dict[str, set[str]]) -> Iterator[OpenFile]:
    if by_path:
        arguments = arguments_of(files, process)
        program = os.path.basename(arguments[0]) if arguments else "ended"
        for path, addresses in sorted(by_path.items()):
            yield OpenFile(path, tuple(sorted(addresses)), int(process), program, name_of(arguments))


def _by_name(files: Files, functions: list[Function]) -> dict[str, set[str]]:
    """Return the addresses of the functions behind the device files whose device is below no function, by path."""
    minors = _nvidia_minors(files)
    by_name: dict[str, set[str]] = {}
    for function in functions:
        paths = [f"/dev/nvidia{minors[function.address]}"] if function.address in minors else []
        # The drivers of VFIO: vfio-pci, mlx5_vfio_pci, nvgrace-gpu-vfio-pci, ...
        if function.iommu_group is not None and "vfio" in (function.driver or ""):
            paths += [f"/dev/vfio/{function.iommu_group}", f"/dev/vfio/noiommu-{function.iommu_group}"]
        if function.kind == "nvswitch" and (function.driver or "").startswith("nvidia"):
            paths.append("/dev/nvidia-nvswitch")
        for path in paths:
            by_name.setdefault(path, set()).add(function.address)
    return by_name


def _by_number(files: Files, link: str, names_by_number: dict[str, set[str]]) -> set[str]:
    """Return the functions behind the device file that is open at ``link``; ``known`` are those of earlier calls."""
    try:
        status = os.stat(files.path(link))
    except OSError:
        return set()  # it was closed meanwhile
    if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
        return set()
    class_name = "char" if stat.S_ISCHR(status.st_mode) else "block"
    device = f"sys/dev/{class_name}/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if device not in names_by_number:
        names_by_number[device] = functions_behind(files, files.link(device) or "")
    return names_by_number[device]


def _nvidia_minors(files: Files) -> dict[str, str]:
    """Return the number N of the file /dev/nvidiaN of each GPU that NVIDIA's driver has."""
    minors = {}
    for address in files.names("proc/driver/nvidia/gpus"):
        text = files.text_or_none(f"proc/driver/nvidia/gpus/{address}/information") or ""
        match = re.search(r"^Device Minor:\s+(\d+)$", text, re.MULTILINE)
        if match:
            minors[address.lower()] = match[1]
    return minors


def _target(files: Files, link: str) -> str:
    try:
        return os.readlink(files.path(link))
    except OSError:
        return ""  # it was closed meanwhile


def arguments_of(files: Files, process: str) -> list[str]:
    """Return the command line of a process; empty if it has ended meanwhile, or is a kernel thread."""
    try:
        line = files.text_or_none(f"proc/{process}/cmdline") or ""
    except TopologyError:
        return []
    return line.split("\0") if line else []


def name_of(arguments: list[str]) -> str | None:
    """Return the name that QEMU was given: "-name db1" or "-name guest=db1,debug-threads=on"."""
    match = re.search(r"\0-name\0(?:guest=)?([^,\0]+)", "\0".join(["", *arguments]))
    return match[1] if match else None
