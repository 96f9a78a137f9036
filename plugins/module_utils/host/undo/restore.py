# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Restore the former state of a host from its record, the last change first.

An object that no longer exists (a device, a kernel file) needs no restore. An object that cannot be restored keeps its
entry, so that the next call tries it again.
"""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host import guests
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import persistence, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware, vfio_binding
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import boot_loader
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import record, vfs

NUMBER_IN_BRACKETS = re.compile(r"\(([^()]+)\)$")


def ensure(system: System, check: bool = False) -> Outcome:
    """Restore every entry of the record, and remove the boot service. Raises HostError while guests run.

    ``pending`` in the outcome lists what waits for a reboot. Failures are in ``failed``, after all other entries were
    restored.
    """
    running = guests.read(system)
    if running:
        raise HostError(
            f"guests run on this host: {'; '.join(map(str, running))}", "shut them down, then restore its settings"
        )
    # The service is removed first, so that no boot applies the settings again.
    outcome = unit.remove(system, persistence.SERVICE, check)
    noted = record.entries(system)
    failures: list[str] = []
    remaining: list[dict[str, Any]] = []
    for entry in reversed(noted):
        now = _now(system, entry)
        if now is None or now == _before(entry):
            continue
        outcome.differ(_name(entry), _shown(now), _shown(_before(entry)))
        if entry["kind"] == "firmware":
            outcome.pending.append(f"firmware: {entry['path']} is {_before(entry)} again at the next boot")
        if check:
            continue
        try:
            _restore(system, entry)
        except HostError as error:
            failures.append(str(error))
            remaining.insert(0, entry)
    _after_files(system, [entry["path"] for entry in noted if _name(entry) in outcome.after], outcome, check)
    if system.exists(record.RECORD) and not check:
        if remaining:
            system.replace(record.RECORD, record.as_bytes(remaining))
        else:
            system.remove(record.RECORD)
    outcome.failed = "\n".join(failures)
    outcome.facts = {"failures": failures, "reboot_required": bool(outcome.pending)}
    return outcome


def _name(entry: dict[str, Any]) -> str:
    if entry["kind"] == "vfs":
        return f"VFs of {entry['path']}"
    return f"{entry['path']} at {entry['offset']:#x}" if "offset" in entry else str(entry["path"])


def _before(entry: dict[str, Any]) -> Any:
    """Return the state in the entry; False: the object did not exist."""
    kind = entry["kind"]
    if kind == "file":
        return False if entry["base64"] is None else base64.b64decode(entry["base64"])
    if kind == "override":
        return entry["driver"] or False
    if kind == "text":
        return _chosen(entry["text"])
    if kind == "vfs":
        return entry["state"]
    return {"register": entry.get("hex"), "mount": False, "firmware": entry.get("value")}[kind]


def _now(system: System, entry: dict[str, Any]) -> Any:
    """Return the current state in the form of ``_before``; None: the object is gone, or cannot be read."""
    kind, path = entry["kind"], entry["path"]
    if kind == "file":
        content = system.read_bytes(path)
        return False if content is None else content
    if kind == "override":
        # driverctl binds the device before it saves the file: a kill in between leaves a bound device without a file.
        bound = system.link_name(f"/sys/bus/pci/devices/{entry['address']}/driver")
        return system.read(path) or (bound if bound == vfio_binding.DRIVER != entry["bound"] else False)
    if kind == "vfs":
        return vfs.read(system, path)
    if kind == "mount":
        mounted = [line.split()[1] for line in (system.read("/proc/mounts") or "").splitlines() if line.split()[1:]]
        return path in mounted
    if kind == "firmware":
        try:
            seen = nic_firmware.query(system, entry["address"])
        except HostError:
            return None
        name = path.split()[1]
        return seen[name].next_boot.text if name in seen else None
    content = system.read_bytes(path)
    if content is None:
        return None
    if kind == "register":
        return content[entry["offset"] : entry["offset"] + len(entry["hex"]) // 2].hex()
    return _chosen(content.decode(errors="replace").strip())


def _restore(system: System, entry: dict[str, Any]) -> None:
    kind, path, old_value = entry["kind"], entry["path"], _before(entry)
    if kind == "file" and sha256(system.read_bytes(path) or b"").hexdigest() not in entry["written"]:
        raise HostError(
            f"{path} was changed by others since it was written",
            f"restore it manually; its former content is in {record.RECORD}",
        )
    if kind == "file" and old_value is False:
        system.remove(path)
    elif kind == "file":
        system.replace(path, old_value)
    elif kind == "override":
        arguments = ["set-override", entry["address"], old_value] if old_value else ["unset-override", entry["address"]]
        system.run(["driverctl", *arguments])
    elif kind == "mount":
        system.run(["umount", path])
    elif kind == "firmware":
        number = NUMBER_IN_BRACKETS.search(old_value)
        value = number[1] if number else old_value
        system.run(["mstconfig", "-d", entry["address"], "-y", "set", f"{path.split()[1]}={value}"])
    elif kind == "register":
        system.poke_bytes(path, bytes.fromhex(old_value), entry["offset"])
    elif kind == "vfs":
        vfs.restore(system, path, old_value)
    else:
        system.poke(path, old_value)


def _after_files(system: System, paths: list[str], outcome: Outcome, check: bool) -> None:
    """Have the boot loader read its files again."""
    of_boot = (boot_loader.DROP_IN, boot_loader.DEFAULTS, boot_loader.FOR_NEW_KERNELS, boot_loader.ENVIRONMENT)
    if any(path in of_boot or path.startswith(boot_loader.ENTRIES) for path in paths):
        outcome.pending.append("the running kernel keeps its arguments until the next boot: reboot")
        loader = boot_loader.find(system, needed=False)
        if loader and not check:
            loader.generate(system)


def _chosen(text: str) -> str:
    """Return the word in brackets if a file shows all choices ("always [madvise] never"), else the whole text."""
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else text


def _shown(state: Any) -> Any:
    if isinstance(state, bytes):
        return state.decode(errors="replace")
    return None if state is False else state
