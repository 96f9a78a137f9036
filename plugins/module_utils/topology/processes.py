# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The processes that have a device file of a PCI function open: guests, whatever started them, and other programs.

Sources: Linux Documentation/driver-api/vfio.rst (/dev/vfio/GROUP is the whole IOMMU group; with iommufd a device is
/dev/vfio/devices/vfioN, and the function's directory vfio-dev has that name); NVIDIA's driver README, "The /proc
Filesystem Interface" (the minor number of /dev/nvidiaN).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files

# The directory of a PCI function that has the names of its device files, and the directory of these files: the classes
# vfio-dev, drm, accel and infiniband_verbs.
DEVICE_FILES = {
    "vfio-dev": "/dev/vfio/devices",
    "drm": "/dev/dri",
    "accel": "/dev/accel",
    "infiniband_verbs": "/dev/infiniband",
}


@dataclass(frozen=True)
class OpenFile:
    """A device file that a process has open.

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
    paths = _paths(files, functions)
    opened: list[OpenFile] = []
    unread = 0
    for process in sorted((name for name in files.names("proc") if name.isdigit()), key=int):
        try:
            names = os.listdir(files.path(f"proc/{process}/fd"))
        except PermissionError:
            unread += 1
            continue
        except OSError:
            continue  # it has ended meanwhile
        targets = {_target(files, f"proc/{process}/fd/{name}") for name in names}
        device_paths = sorted(targets & set(paths))
        if device_paths:
            arguments = arguments_of(files, process)
            program = os.path.basename(arguments[0]) if arguments else "ended"
            name = name_of(arguments)
            opened += [OpenFile(path, tuple(sorted(paths[path])), int(process), program, name) for path in device_paths]
    return opened, unread


def _paths(files: Files, functions: list[Function]) -> dict[str, set[str]]:
    """Return the addresses of the functions behind each device file."""
    minors = _nvidia_minors(files)
    paths: dict[str, set[str]] = {}
    for function in functions:
        device_files = [f"/dev/nvidia{minors[function.address]}"] if function.address in minors else []
        for name, place in DEVICE_FILES.items():
            device_files += [
                f"{place}/{file_name}" for file_name in files.names(f"sys/bus/pci/devices/{function.address}/{name}")
            ]
        # The drivers of VFIO: vfio-pci, mlx5_vfio_pci, nvgrace-gpu-vfio-pci, ...
        if function.iommu_group is not None and "vfio" in (function.driver or ""):
            device_files.append(f"/dev/vfio/{function.iommu_group}")
        for disk in function.interfaces.get("block", []):
            parts = files.names(f"sys/class/block/{disk}")
            device_files += [
                f"/dev/{file_name}" for file_name in [disk, *(part for part in parts if part.startswith(disk))]
            ]
        for path in device_files:
            paths.setdefault(path, set()).add(function.address)
    return paths


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
