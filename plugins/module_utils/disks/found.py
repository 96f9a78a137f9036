# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The disks of a host, what uses them, and the choice of those to erase.

lsblk shows mounted file systems, swap space, and the md, dm and LVM devices above a disk. An exclusive open fails for
all of these, also in other mount namespaces, and for programs that opened the disk exclusively (open(2), O_EXCL).
Programs that opened it otherwise, such as QEMU, are found in /proc. A cache of cachefilesd is on a mounted file system.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.usage import functions_behind

COLUMNS = "NAME,PATH,TYPE,SERIAL,SIZE,RO,MOUNTPOINTS"
# blkid's exit status where a device has no signature.
NOTHING_FOUND = 2


class DiskError(SailloftError):
    """A disk that cannot be erased; the message names it, the cause and the next step."""


@dataclass(frozen=True)
class NodeDisk:
    """A disk. ``addresses``: its PCI functions, several with multipath; ``uses``: why it must not be erased."""

    name: str
    path: str
    serial: str
    size_bytes: int
    addresses: frozenset[str]
    uses: tuple[str, ...]

    @property
    def is_nvme(self) -> bool:
        """Return whether NVMe commands erase it."""
        return self.name.startswith("nvme")


def find(system: System, keep_labels: Collection[str]) -> list[NodeDisk]:
    """Return the host's disks. Raises HostError."""
    listed = json.loads(system.run(["lsblk", "--json", "--bytes", "--output", COLUMNS]))["blockdevices"]
    files = Files(system.root)
    holders = _open_files()
    return [_disk(row, files, holders, keep_labels) for row in listed if row["type"] in ("disk", "loop")]


def choose(disks: Sequence[NodeDisk], wanted: Sequence[dict[str, str | None]]) -> list[NodeDisk]:
    """Return the disks that ``wanted`` names by serial or pci, each once. Raises DiskError if one is missing or used.

    All namespaces of an NVMe controller have its address and serial: they are erased together, or not at all. Other
    disks are never chosen together: the address of a SATA or SAS controller would be that of all its disks.
    """
    chosen: dict[str, NodeDisk] = {}
    for selector in wanted:
        key, value = next(((key, str(value)) for key, value in selector.items() if value), ("serial", ""))
        names = {disk.path: {disk.serial} if key == "serial" else disk.addresses for disk in disks}
        matches = [disk for disk in disks if value and value in names[disk.path]]
        if not matches:
            disk_names = ", ".join(f"{disk.path} ({disk.serial or 'no serial'})" for disk in disks) or "none"
            raise DiskError(
                f"this host has no disk with the {key} {value}, but {disk_names}",
                "nothing was erased; correct node_boot_wipe.disks, or check whether the disk is broken",
            )
        if len(matches) > 1 and any(not disk.is_nvme or disk.addresses != matches[0].addresses for disk in matches):
            raise DiskError(
                f"the {key} {value} is that of {', '.join(disk.path for disk in matches)}",
                "nothing was erased; name each of these disks by what it alone has, its serial or its address",
            )
        chosen.update({disk.path: disk for disk in matches})
    used = [f"{disk.path}: {'; '.join(disk.uses)}" for disk in chosen.values() if disk.uses]
    if used:
        raise DiskError(", ".join(used), "nothing was erased; end these uses, or leave the disk out")
    return list(chosen.values())


def _disk(row: dict[str, Any], files: Files, holders: dict[int, str], keep_labels: Collection[str]) -> NodeDisk:
    device = files.link(f"sys/class/block/{row['name']}") or ""
    rows = list(_tree(row))
    uses = [use for part in rows for use in _uses(part, is_disk=part is row)]
    for part in rows:
        if part["type"] in ("disk", "part", "loop"):
            uses += [*_held(part["path"], holders), *_kept(part["path"], keep_labels)]
    return NodeDisk(
        row["name"],
        row["path"],
        (row["serial"] or "").strip(),
        int(row["size"]),
        frozenset(functions_behind(files, device)),
        tuple(dict.fromkeys(uses)),
    )


def _tree(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield row
    for child in row.get("children") or []:
        yield from _tree(child)


def _uses(row: dict[str, Any], is_disk: bool) -> Iterator[str]:
    for point in filter(None, row["mountpoints"]):
        yield f"{row['path']} holds swap space" if point == "[SWAP]" else f"{row['path']} is mounted on {point}"
    if not is_disk and row["type"] != "part":
        yield f"it is part of {row['path']} ({row['type']})"
    if row["ro"]:
        yield f"{row['path']} is read-only"


def _kept(path: str, keep_labels: Collection[str]) -> Iterator[str]:
    """Yield the labels to keep, read from the device itself: lsblk shows those that udev has seen."""
    if not keep_labels:
        return
    # As values: the form "export" escapes characters of a label.
    tags = [part for name in ("LABEL", "PART_ENTRY_NAME") for part in ("--match-tag", name)]
    probed = subprocess.run(
        ["blkid", "--probe", "--output", "value", *tags, path], capture_output=True, check=False, timeout=60
    )
    # blkid ends in the same way where it could not open the device.
    if probed.returncode not in (0, NOTHING_FOUND) or probed.stderr:
        yield f"{path} cannot be read to look for labels that are kept (blkid ended with {probed.returncode})"
    for label in probed.stdout.decode(errors="replace").splitlines():
        if label in keep_labels:
            yield f"{path} has the label {label}, which is kept"


def _held(path: str, holders: dict[int, str]) -> Iterator[str]:
    """Yield who else has the device open. A device that cannot be opened counts as used."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        cause = "the kernel or a program uses it exclusively" if error.errno == errno.EBUSY else str(error.strerror)
        yield f"{path} cannot be opened: {cause}"
        return
    try:
        program = holders.get(os.fstat(handle).st_rdev)
    finally:
        os.close(handle)
    if program:
        yield f"{path} is open in {program}"


def _open_files() -> dict[int, str]:
    """Return a program that has it open for each block device, by device number."""
    holders: dict[int, str] = {}
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            handles = os.listdir(f"/proc/{process}/fd")
        except OSError:  # it has ended
            continue
        for handle in handles:
            try:
                status = os.stat(f"/proc/{process}/fd/{handle}")
                if stat.S_ISBLK(status.st_mode):
                    with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as comm:
                        holders[status.st_rdev] = f"{comm.read().strip()} (process {process})"
            except OSError:
                continue
    return holders
