# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make the file systems of local drives, or compare them, and read them back; the same code runs at each boot."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import retry
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.storage import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.drives import MADE, MAKING, observe
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.plan import FileSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import LocalStorage, read_request

# mkfs discards all blocks of a drive first.
MAKE_LIMIT_S = 900.0
# In a mount namespace of its own, which ends with the shell: a killed run leaves nothing mounted.
SET_RIGHTS = 'mount -t xfs "$1" /mnt && chown "$2" /mnt && chmod "$3" /mnt'


def ensure(system: System, storages: Sequence[LocalStorage], check: bool = False) -> Outcome:
    """Bring the file systems about. Nothing is written if one drive of all is missing or somebody's. Raises HostError.

    Facts: ``file_systems``, what was read back; in check mode what is there now.
    """
    outcome = Outcome()
    _settle(system)
    systems = plan.plan(storages, observe(system))
    for fs in systems:
        if fs.action != plan.HELD:
            outcome.differ(f"file system {fs.label}", fs.before, fs.shown())
    if not check:
        systems = _bring(system, storages, systems)
    outcome.facts["file_systems"] = [_fact(fs) for fs in systems]
    return outcome


def _bring(system: System, storages: Sequence[LocalStorage], systems: list[FileSystem]) -> list[FileSystem]:
    """Do what the plan says and return the plan that was read back. Raises HostError if something is left to do."""
    stopped = [fs for fs in systems if fs.action == plan.ASSEMBLE]
    for fs in stopped:
        if fs.array:
            system.run(["mdadm", "--stop", fs.array.device.path])
        system.run(["mdadm", "--assemble", f"/dev/md/{fs.label}", *(drive.path for drive in fs.drives)])
    if stopped:
        # Only a running array shows what is on it.
        systems = plan.plan(storages, observe(system))
    if all(fs.action == plan.HELD for fs in systems):
        _record(system, systems)
        return systems
    for fs in systems:
        if fs.action in (plan.MAKE, plan.FORMAT):
            system.replace(f"{MADE}/{fs.label}", MAKING.encode())
            _make(system, fs)
    _settle(system)
    new_labels = [fs.label for fs in systems if fs.action in (plan.MAKE, plan.FORMAT)]
    seen = observe(system)
    # What was made in this run is complete.
    for label in new_labels:
        seen.made.pop(label, None)
    systems = plan.plan([replace(storage, keep=True) for storage in storages], seen)
    _check_made(systems, new_labels)
    _record(system, systems)
    return systems


def _settle(system: System) -> None:
    """Wait for udev: it opens what was just written, and makes the links by label that the units mount."""
    if system.exists("/run/udev/control"):
        # After that time it is another device that udev waits for.
        with contextlib.suppress(HostError):
            system.run(["udevadm", "settle", "--timeout=30"])


def _record(system: System, systems: Sequence[FileSystem]) -> None:
    """Write down which file systems this node uses, so that one that is not kept is not made anew at each boot."""
    for fs in systems:
        uuid = fs.device.xfs.uuid if fs.device and fs.device.xfs else ""
        if uuid and system.read(f"{MADE}/{fs.label}") != uuid:
            system.replace(f"{MADE}/{fs.label}", uuid.encode())


def _make(system: System, fs: FileSystem) -> None:
    if fs.action == plan.MAKE:
        _clear(system, fs)
    arguments: list[str] = []
    if fs.is_striped and fs.action == plan.MAKE:
        options = ["--level=0", f"--raid-devices={len(fs.drives)}", f"--chunk={plan.CHUNK_KIB}", "--metadata=1.2"]
        names = [f"--homehost={plan.HOMEHOST}", f"--name={fs.label}", "--run"]
        paths = [drive.path for drive in fs.drives]
        system.run(["mdadm", "--create", f"/dev/md/{fs.label}", *options, *names, *paths])
    path = fs.drives[0].path
    if fs.is_striped:
        path, chunk = _array_path(system, fs)
        # The log's own stripe unit is at most 256 KiB: mkfs.xfs(8).
        arguments = ["-d", f"su={chunk},sw={len(fs.drives)}", "-l", "su=32k"]
        if fs.action == plan.MAKE:
            # In a new array of the same drives, the file system of the former one shows again.
            arguments.append("-f")
    system.run(["mkfs.xfs", "-q", "-L", fs.label, *arguments, path], timeout_s=MAKE_LIMIT_S)
    storage = fs.storage
    rights = [f"{storage.owner}:{storage.group}", storage.mode]
    system.run(["unshare", "--mount", "sh", "-c", SET_RIGHTS, "sh", path, *rights])


def _clear(system: System, fs: FileSystem) -> None:
    """Take our signatures off the drives, and check once more that nothing else is there. Raises HostError."""
    if fs.array:
        system.run(["mdadm", "--stop", fs.array.device.path])
    for drive in fs.drives:
        if drive.signature:
            system.run(["wipefs", "--quiet", "--all", drive.path])
    _settle(system)
    seen = {drive.path: drive for drive in observe(system).drives}
    for drive in fs.drives:
        now = seen.get(drive.path)
        if now is None or now.signature or now.uses:
            cause = (
                "it is gone" if now is None else "; ".join([*now.uses, *([str(now.signature)] * bool(now.signature))])
            )
            raise HostError(f"{drive.path} was taken while this ran: {cause}", "run again", subject=fs.label)


def _array_path(system: System, fs: FileSystem) -> tuple[str, int]:
    """Return the path of the array of the drives, and its chunk in bytes. Raises HostError."""
    names = {drive.name for drive in fs.drives}
    for array in observe(system).arrays:
        if array.members == names and array.level == "raid0":
            return array.device.path, array.chunk_bytes
    raise HostError(f"there is no array of {', '.join(sorted(names))}", "see the kernel's log", subject=fs.label)


def _check_made(systems: Sequence[FileSystem], new_labels: Sequence[str]) -> None:
    """Compare what was made with what is read back. Raises HostError."""
    for fs in systems:
        xfs = fs.device.xfs if fs.device else None
        wanted = len(fs.drives) * fs.array.chunk_bytes if fs.array else 0
        if fs.action != plan.HELD or xfs is None:
            raise HostError(f"it was made, but reads back as {fs.before}", "see the kernel's log", subject=fs.label)
        if fs.label in new_labels and xfs.stripe_width != wanted:
            cause = f"its stripe width reads back as {xfs.stripe_width} bytes, not {wanted}"
            raise HostError(cause, "look at the version of mkfs.xfs", subject=fs.label)


def _fact(fs: FileSystem) -> dict[str, Any]:
    xfs = fs.device.xfs if fs.device else None
    return {
        "label": fs.label,
        "path": fs.path,
        "device": fs.device.path if fs.device else "",
        "drives": [drive.address for drive in fs.drives],
        "uuid": xfs.uuid if xfs else "",
        "stripe_unit_bytes": xfs.stripe_unit if xfs else 0,
        "stripe_width_bytes": xfs.stripe_width if xfs else 0,
    }


def apply(system: System, settings: dict[str, Any], say: retry.Say, wait: retry.Wait = time.sleep) -> list[str]:
    """Bring the file systems about from saved settings, and return the failure if there is one."""
    return retry.until_applied({"": lambda: ensure(system, read_request(settings).local)}, say, wait)


def main(arguments: list[str]) -> int:
    """Return exit status 0 if all file systems are there."""
    return retry.run("storage_client", arguments[0], System(), apply)
