# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Choose the drives of each file system, and what has to be done with them. Pure.

A drive is written only if it is blank and nothing uses it, or if its only signature is ours: an XFS with the label of
a file system that it is chosen for, or a member of an array with our name. Everything else is somebody's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.drives import (
    MAKING,
    Device,
    StorageSeen,
    StripedArray,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import LocalStorage

# mdadm(8): an array of the homehost "any" is local to every host, so that a node may get another name.
HOMEHOST = "any"
# mdadm's default, written out because the proof compares it.
CHUNK_KIB = 512
# What is to be done: nothing; start the array; put an XFS on a running array; make all anew.
HELD, ASSEMBLE, FORMAT, MAKE = "held", "assemble", "format", "make"


@dataclass(frozen=True)
class FileSystem:
    """A file system and its drives. ``array``: that which has its drives now. ``before``: what is there, in words."""

    storage: LocalStorage
    label: str
    drives: tuple[Device, ...]
    array: StripedArray | None
    action: str
    before: str

    @property
    def path(self) -> str:
        """Return where it is mounted."""
        return self.storage.path_of(self.label)

    @property
    def is_striped(self) -> bool:
        """Return whether it is on an array."""
        return self.storage.is_striped

    @property
    def device(self) -> Device | None:
        """Return the device that has it now; None before its array runs."""
        return (self.array.device if self.array else None) if self.is_striped else self.drives[0]

    def shown(self) -> str:
        """Return what is wanted, in words."""
        addresses = ", ".join(drive.address for drive in self.drives)
        return f"XFS on {addresses}" + (f", striped by {CHUNK_KIB} KiB" if self.is_striped else "")


def plan(storages: Sequence[LocalStorage], seen: StorageSeen) -> list[FileSystem]:
    """Return the file systems. Raises HostError for the first drive that is missing or somebody's."""
    chosen: dict[str, list[Device]] = {}
    # Drives that are named are not chosen for a node.
    used = {address for storage in storages for address in storage.drives}
    for storage in storages:
        drives = _named(storage, seen) if storage.drives else _of_node(storage, seen, used)
        used |= {drive.address for drive in drives}
        chosen[storage.name] = drives
    return [
        system
        for storage in storages
        for system in (
            [_striped(storage, chosen[storage.name], seen)]
            if storage.is_striped
            else _single(storage, chosen[storage.name], seen)
        )
    ]


def _named(storage: LocalStorage, seen: StorageSeen) -> list[Device]:
    drives = []
    for address in storage.drives:
        namespaces = [drive for drive in seen.drives if drive.address == address]
        if len(namespaces) > 1:
            raise _error(storage, f"{address} has {len(namespaces)} namespaces", "leave one, or choose another drive")
        if not namespaces:
            drives_shown = excerpt([f"{drive.address} ({drive.path})" for drive in seen.drives], 8) or "none"
            cause = "is an NVMe function without a disk" if address in seen.functions else "is no drive of this host"
            raise _error(
                storage, f"{address} {cause}; its drives: {drives_shown}", "correct drives, or look at the drive"
            )
        drives += namespaces
    return drives


def _of_node(storage: LocalStorage, seen: StorageSeen, used: Collection[str]) -> list[Device]:
    """Return drives of the node: those that are ours already, then blank ones, by address."""
    of_node = [
        drive for drive in seen.drives if drive.numa_node == storage.numa_node and drive.address in seen.functions
    ]
    ours = [drive for drive in of_node if _is_ours(drive, storage)]
    blank = [drive for drive in of_node if drive.address not in used and not drive.signature and not drive.uses]
    drives = [*ours, *(drive for drive in blank if drive not in ours)]
    if len(ours) > storage.count or len(drives) < storage.count:
        reasons = [f"{drive.address}: {_reason(drive) or 'taken'}" for drive in of_node if drive not in drives]
        reasons += [
            f"{address}: it has no disk"
            for address, node in seen.functions.items()
            if node == storage.numa_node and all(drive.address != address for drive in seen.drives)
        ]
        raise _error(
            storage,
            f"NUMA node {storage.numa_node} has {len(drives)} drives for it, not {storage.count}"
            + (f" ({'; '.join(reasons)})" if reasons else ""),
            "correct count or numa_node, or free drives",
        )
    return sorted(drives[: storage.count], key=lambda drive: drive.address)


def _is_ours(drive: Device, storage: LocalStorage) -> bool:
    signature = drive.signature
    if signature is None:
        return False
    if storage.is_striped:
        return signature.kind == "linux_raid_member" and signature.label == f"{HOMEHOST}:{storage.name}"
    return signature.kind == "xfs" and signature.label in storage.labels


def _reason(drive: Device) -> str:
    """Return why a drive is somebody's; "" if it is not."""
    parts = list(drive.uses)
    if drive.signature:
        parts.insert(0, f"it has a signature ({drive.signature})")
    return ", ".join(parts)


def _error(storage: LocalStorage, cause: str, remedy: str) -> HostError:
    return HostError(cause, f"nothing was changed; {remedy}", subject=f"storage_client: {storage.name}")


def _somebodys(storage: LocalStorage, drive: Device) -> HostError:
    return _error(
        storage,
        f"{drive.address} ({drive.path}) is not blank: {_reason(drive)}",
        f"choose another drive, or end these uses and clear it: wipefs --all {drive.path}",
    )


def _single(storage: LocalStorage, drives: Sequence[Device], seen: StorageSeen) -> list[FileSystem]:
    """Return the file systems of single drives: one that has a label keeps it, the others get those that are left."""
    by_label: dict[str, Device] = {}
    for drive in drives:
        if _is_ours(drive, storage) and drive.signature:
            labelled = by_label.setdefault(drive.signature.label, drive)
            if labelled is not drive:
                raise _error(
                    storage,
                    f"{labelled.path} and {drive.path} have the label {drive.signature.label}",
                    "clear one of them with wipefs --all",
                )
        elif _reason(drive):
            raise _somebodys(storage, drive)
    unlabelled = [drive for drive in drives if drive not in by_label.values()]
    systems = []
    for label in storage.labels:
        drive = by_label[label] if label in by_label else unlabelled.pop(0)
        action = _action(storage, label, drive, seen) if drive.signature else MAKE
        if action == MAKE and drive.uses:
            raise _somebodys(storage, drive)
        systems.append(FileSystem(storage, label, (drive,), None, action, _words(drive)))
    return systems


def _words(device: Device) -> str:
    return f"{device.signature} ({device.signature.uuid})" if device.signature else "blank"


def _action(storage: LocalStorage, label: str, device: Device, seen: StorageSeen) -> str:
    """Return HELD for an XFS that is used on, MAKE for one that is not complete or not kept."""
    if device.name in seen.mounted:
        return HELD
    recorded = seen.made.get(label)
    if device.xfs is None or not device.xfs.is_complete or recorded == MAKING:
        return MAKE
    return HELD if storage.keep or recorded == device.xfs.uuid else MAKE


def _striped(storage: LocalStorage, drives: Sequence[Device], seen: StorageSeen) -> FileSystem:
    names = {drive.name for drive in drives}
    array = next((array for array in seen.arrays if array.members & names), None)

    def file_system(action: str, present: str) -> FileSystem:
        return FileSystem(storage, storage.name, tuple(drives), array, action, present)

    ours = [drive for drive in drives if _is_ours(drive, storage)]
    for drive in drives:
        if drive not in ours and _reason(drive):
            raise _somebodys(storage, drive)
    if array and not array.members <= names:
        raise _error(
            storage, f"{array.device.path} has further drives: {', '.join(sorted(array.members - names))}", "name all"
        )
    if not ours:
        return file_system(MAKE, "blank")
    if array and array.device.name in seen.mounted:
        # Somebody may have mounted it elsewhere, which the unit's read-back tells.
        return file_system(HELD, _words(array.device))
    recorded = seen.made.get(storage.name)
    is_complete = len(ours) == len(drives) and len({drive.signature.uuid for drive in ours if drive.signature}) == 1
    if recorded == MAKING or (not is_complete and not storage.keep):
        return file_system(MAKE, "an incomplete array")
    if not is_complete:
        raise _error(
            storage,
            f"only {len(ours)} of its {len(drives)} drives have its array: what was on it is lost, or on another drive",
            f"find the drive, or clear the others with wipefs --all: {', '.join(drive.path for drive in ours)}",
        )
    if array is None or not array.level:
        return file_system(ASSEMBLE if storage.keep or recorded else MAKE, "an array that does not run")
    if array.level != "raid0":
        raise _error(storage, f"{array.device.path} is {array.level}, not raid0", "choose other drives, or clear them")
    if array.device.signature is None:
        return file_system(FORMAT, "an array without a file system")
    if array.device.signature.kind != "xfs" or array.device.signature.label != storage.name:
        raise _error(
            storage, f"{array.device.path} has {array.device.signature}", f"clear it: wipefs --all {array.device.path}"
        )
    return file_system(_action(storage, storage.name, array.device, seen), _words(array.device))
