# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record of the state before the first change: the role's ``absent`` restores from it.

``Remembering`` is a System that records the state of each object before it changes the object for the first time. The
entry is written before the change, so that a run that is killed in between leaves an entry that restores nothing. The
first entry is kept, because later runs find the state that an earlier run has made.
"""

from __future__ import annotations

import base64
import json
import os
from hashlib import sha256
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware, vfio_binding
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import vfs

RECORD = "/var/lib/sailloft/gpu_host_before.json"
# Files that do not survive a reboot, and those that are removed with the unit (at_boot/persistence.py).
NOT_NOTED = ("/run/", "/etc/sailloft/", "/usr/lib/sailloft/", "/etc/systemd/system/sailloft-", "/var/lib/sailloft/")
DRIVERCTL_ORDER = "/etc/systemd/system/driverctl@.service.d/sailloft.conf"
# Kernel files that trigger an action and have no state.
ORDERS = ("/proc/sys/vm/compact_memory",)


def entries(system: System) -> list[dict[str, Any]]:
    """Return the record, in the order of the changes. Raises HostError if it cannot be read."""
    text = system.read(RECORD)
    try:
        return json.loads(text) if text else []
    except ValueError as error:
        raise HostError(f"{RECORD} is not JSON ({error})", "restore the host manually, and remove the file") from error


def as_bytes(noted: list[dict[str, Any]]) -> bytes:
    """Return the content of the record's file."""
    return (json.dumps(noted, indent=1, sort_keys=True) + "\n").encode()


class Remembering(System):
    """A System that records changes before ``inner`` makes them."""

    def __init__(self, inner: System) -> None:
        super().__init__(inner.root)
        self.inner = inner

    def machine(self) -> str:
        """Return the processor architecture of the inner system."""
        return self.inner.machine()

    def poke_bytes(self, path: str, data: bytes, offset: int) -> None:
        """Record the text, the register or the VFs, then write."""
        if path.endswith(vfs.FILES):
            self._note_vfs(path.split("/")[-2])
        elif path not in ORDERS:
            try:
                old_content = self.inner.read_bytes(path)
            except HostError:
                old_content = None  # it cannot be read, so nothing can be restored
            if old_content is not None and path.endswith("/config"):
                self._note(
                    kind="register", path=path, offset=offset, hex=old_content[offset : offset + len(data)].hex()
                )
            elif old_content is not None:
                self._note(kind="text", path=path, text=old_content.decode(errors="replace").strip())
        self.inner.poke_bytes(path, data, offset)

    def replace(self, path: str, content: bytes) -> None:
        """Record the file, then replace it."""
        if not path.startswith(NOT_NOTED) and path != DRIVERCTL_ORDER:
            old_content = self.inner.read_bytes(path)
            digest = sha256(content).hexdigest()
            former = None if old_content is None else base64.b64encode(old_content).decode()
            self._note(kind="file", path=path, base64=former, written=[digest])
            self._note_written(path, digest)
        self.inner.replace(path, content)

    def remove(self, path: str) -> None:
        """Remove a file without recording it: only files of the role are removed."""
        self.inner.remove(path)

    def run(self, argv: list[str], stdin: str | None = None, timeout_s: float | None = None) -> str:
        """Record the state that a command will change, then run it."""
        if argv[:2] == ["driverctl", "set-override"] or argv[:2] == ["driverctl", "unset-override"]:
            path = f"{vfio_binding.OVERRIDES}/pci-{argv[2]}"
            bound = self.inner.link_name(f"/sys/bus/pci/devices/{argv[2]}/driver")
            self._note(kind="override", path=path, address=argv[2], driver=self.inner.read(path), bound=bound)
        for address in vfs.changed_by(self.inner, argv, stdin):
            self._note_vfs(address)
        if argv[:1] == ["mount"]:
            self._note(kind="mount", path=argv[-1])
        if argv[:1] == ["mstconfig"] and "set" in argv:
            self._note_firmware(argv[2], [word.partition("=")[0] for word in argv[argv.index("set") + 1 :]])
        return self.inner.run(argv, stdin, timeout_s)

    def _note_firmware(self, address: str, names: list[str]) -> None:
        seen = nic_firmware.query(self.inner, address)
        for name in names:
            if name in seen:
                self._note(kind="firmware", path=f"{address} {name}", address=address, value=seen[name].next_boot.text)

    def _note_vfs(self, address: str) -> None:
        """Record the VFs of a physical function, unless they are already recorded."""
        if all((entry["kind"], entry["path"]) != ("vfs", address) for entry in entries(self.inner)):
            state = vfs.read(self.inner, address)
            if state is not None:
                self._note(kind="vfs", path=address, state=state)

    def _note_written(self, path: str, digest: str) -> None:
        """Add a digest to those written to a file: a restore replaces the file only if it has one of them."""
        recorded = entries(self.inner)
        for entry in recorded:
            if entry["path"] == path and digest not in entry.get("written", [digest]):
                entry["written"].append(digest)
                self._write(recorded)

    def _note(self, **entry: Any) -> None:
        recorded = entries(self.inner)
        if all(_key(entry) != _key(earlier) for earlier in recorded):
            self._write([*recorded, entry])

    def _write(self, noted: list[dict[str, Any]]) -> None:
        self.inner.replace(RECORD, as_bytes(noted))


def _key(entry: dict[str, Any]) -> tuple[str, str, int | None]:
    # A binding is the same object, whether driverctl or this code writes its file.
    kind = "file" if entry["kind"] == "override" else entry["kind"]
    return kind, os.path.normpath(entry["path"]), entry.get("offset")
