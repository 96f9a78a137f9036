# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the drives of a host: their PCI functions, uses, signatures and arrays, and which file systems are mounted.

Signatures are read from the devices themselves: udev's records may be older. Arrays are those of
Linux Documentation/admin-guide/md.rst.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.disks import found
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System, root_remedy
from ansible_collections.sailloft.fleet.plugins.module_utils.storage import superblock

# The class code of an NVM Express I/O controller: PCI Code and ID Assignment Specification, class 01h, subclass 08h.
NVME_CLASS = "0x0108"
# The file systems that this node made or took over, by label: the UUID, or MAKING until it is complete.
MADE, MAKING = "/var/lib/sailloft/storage", "making"
# blkid(8): nothing was found; several signatures were found.
NOTHING, SEVERAL = 2, 8


@dataclass(frozen=True)
class Signature:
    """The signature of a device. ``kind``: that of blkid, such as xfs or linux_raid_member, or why it is unknown."""

    kind: str
    label: str = ""
    uuid: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.label}".strip()


@dataclass(frozen=True)
class Device:
    """A drive or an array. ``uses``: why a drive must not be written."""

    name: str  # the kernel's: nvme0n1, md127
    path: str
    signature: Signature | None
    xfs: superblock.XfsSuperblock | None
    uses: tuple[str, ...] = ()
    address: str = ""
    numa_node: int = -1


@dataclass(frozen=True)
class StripedArray:
    """An md array. ``members``: the kernel's names of its drives. ``level``: "" of one that does not run."""

    device: Device
    members: frozenset[str]
    level: str
    chunk_bytes: int


@dataclass(frozen=True)
class StorageSeen:
    """The drives of PCI functions, the arrays, the paths at which devices are mounted by name, and the records.

    ``functions``: the NUMA nodes of all NVMe functions by address, also of those without a disk.
    """

    drives: tuple[Device, ...]
    arrays: tuple[StripedArray, ...]
    mounted: dict[str, str]
    made: dict[str, str]
    functions: dict[str, int]


def observe(system: System) -> StorageSeen:
    """Read the host. Raises HostError."""
    drives = []
    for disk in found.find(system, ()):
        for address in sorted(disk.addresses) if disk.size_bytes else ():
            drives.append(_device(system, disk.name, disk.path, disk.uses, address))
    return StorageSeen(
        tuple(sorted(drives, key=lambda drive: (drive.address, drive.name))),
        tuple(_array(system, name) for name in system.names("/sys/block") if system.exists(f"/sys/block/{name}/md")),
        mounts(system),
        {label: system.read(f"{MADE}/{label}") or MAKING for label in system.names(MADE)},
        {
            address: _node(system, address)
            for address in system.names("/sys/bus/pci/devices")
            if (system.read(f"/sys/bus/pci/devices/{address}/class") or "").startswith(NVME_CLASS)
        },
    )


def mounts(system: System) -> dict[str, str]:
    """Return where block devices are mounted, by the kernel's name: the first path of each (proc(5), mountinfo)."""
    paths: dict[str, str] = {}
    for line in (system.read("/proc/self/mountinfo") or "").splitlines():
        columns = line.split()
        name = system.link_name(f"/sys/dev/block/{columns[2]}")
        if name:
            paths.setdefault(name, columns[4])
    return paths


def _node(system: System, address: str) -> int:
    """Return the NUMA node of a function. A host with one node may say -1, which is no node."""
    node = int(system.read(f"/sys/bus/pci/devices/{address}/numa_node") or -1)
    nodes = [name for name in system.names("/sys/devices/system/node") if name[:4] == "node" and name[4:].isdecimal()]
    return 0 if node < 0 and nodes == ["node0"] else node


def _array(system: System, name: str) -> StripedArray:
    folder = f"/sys/block/{name}/md"
    level = system.read(f"{folder}/level") or ""
    stopped = system.read(f"{folder}/array_state") in ("clear", "inactive")
    device = Device(name, f"/dev/{name}", None, None) if stopped else _device(system, name, f"/dev/{name}", (), "")
    members = frozenset(system.names(f"/sys/block/{name}/slaves"))
    return StripedArray(device, members, "" if stopped else level, int(system.read(f"{folder}/chunk_size") or 0))


def _device(system: System, name: str, path: str, uses: tuple[str, ...], address: str) -> Device:
    node = _node(system, address) if address else -1
    signature = read_signature(path)
    is_xfs = signature is not None and signature.kind == "xfs"
    return Device(name, path, signature, read_superblock(path) if is_xfs else None, uses, address, node)


def read_signature(path: str) -> Signature | None:
    """Return the signature of a device, None for a blank one. A device that cannot be read is not blank.

    Raises HostError.
    """
    try:
        # blkid may end in the same way for a device that it cannot open as for a blank one.
        with open(path, "rb") as device:
            device.read(superblock.BYTES)
    except OSError as error:
        return Signature(f"unknown: {error.strerror}")
    try:
        probed = subprocess.run(
            ["blkid", "--probe", "--output", "export", path], capture_output=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"{path} cannot be probed for signatures: {error}", "look at the drive") from error
    fields = dict(line.partition("=")[::2] for line in probed.stdout.decode(errors="replace").splitlines())
    if probed.returncode == NOTHING and not probed.stderr:
        return None
    if probed.returncode == SEVERAL:
        return Signature("several signatures")
    kind = fields.get("TYPE") or fields.get("PTTYPE")
    if probed.returncode or not kind:
        return Signature(f"unknown: blkid ended with {probed.returncode}")
    return Signature(kind, fields.get("LABEL", ""), fields.get("UUID", ""))


def read_superblock(path: str) -> superblock.XfsSuperblock | None:
    """Return the XFS on a device, None if there is none. Raises HostError."""
    try:
        with open(path, "rb") as device:
            return superblock.parse(device.read(superblock.BYTES))
    except OSError as error:
        raise HostError(f"{path} cannot be read: {error.strerror}", root_remedy(error, "look at the drive")) from error


def is_mounted(system: System, device: str, path: str) -> bool:
    """Return whether the device is what one sees at a path."""
    try:
        return os.stat(system.path(path)).st_dev == os.stat(device).st_rdev
    except OSError:
        return False
