# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring a node to its storage, or compare it: file systems on drives, mounts, caches; in an image from its boot on."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import private, write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit as boot_unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System, root_remedy
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import UnitState, unit_states
from ansible_collections.sailloft.fleet.plugins.module_utils.storage import drives, file_systems, units
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import (
    LocalStorage,
    NfsMount,
    S3Mount,
    StorageRequest,
    read_request,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.units import WantedUnit

MODULE = "storage_client"
UNITS = "/etc/systemd/system"
# Units that have not read their files yet, because a run was killed.
MARKS = "/run/sailloft-storage"
# rclone's changelog: --vfs-cache-min-free-space came with 1.62.
RCLONE_MIN_FREE = (1, 62)
LIST_LIMIT_S = 60.0
NFS_VOLUMES = "/proc/fs/nfsfs/volumes"


def options() -> dict[str, Any]:
    """Return the options of the module storage_client as an argument_spec."""
    dictionaries: dict[str, Any] = {"type": "list", "elements": "dict", "default": []}
    return {
        "local": dictionaries,
        "nfs": dictionaries,
        "s3": dictionaries,
        "s3_keys": {"type": "dict", "default": {}, "no_log": True},
    }


def ensure(
    system: System, params: Mapping[str, Any], in_image: bool, check: bool = False, python: str = sys.executable
) -> Outcome:
    """Bring the node to the options of the module. Raises HostError, for invalid ones before a change.

    Facts: ``file_systems``, of local drives.
    """
    request = read_request({name: params[name] for name in options()})
    boot_unit.check_systemd(system, MODULE, not in_image)
    if in_image and request.keys:
        raise RequestError(f"{MODULE}: s3_keys in an image would be secrets that everyone reads", "use node_identity")
    outcome = Outcome(facts={"file_systems": []})
    if not in_image:
        for storage in request.local:
            _ids(storage)
        _check_rclone(system, request, check)
    if not in_image and request.local:
        outcome = file_systems.ensure(system, request.local, check)
    outcome = outcome.and_then(_at_boot(system, params["local"], request, in_image, check, python))
    return outcome.and_then(_Pass(system, request, in_image, outcome.facts["file_systems"]).ensure(check))


def _at_boot(
    system: System, local: Sequence[Any], request: StorageRequest, in_image: bool, check: bool, python: str
) -> Outcome:
    """Install the service that brings the file systems about before they are mounted, or remove it."""
    mounted = [units.mount_unit(storage.path_of(label)) for storage in request.local for label in storage.labels]
    service = boot_unit.BootService(
        module=MODULE,
        start=file_systems.__name__,
        settings="/etc/sailloft/storage_client.json",
        code="/usr/lib/sailloft/storage_client.pyz",
        unit=units.BOOT_UNIT,
        description="file systems of local drives",
        after=(),
        before=tuple(mounted),
    )
    if request.local:
        outcome = boot_unit.ensure(system, service, {"local": list(local)}, check, python, running=not in_image)
    else:
        outcome = boot_unit.remove(system, service, check)
    outcome.facts = {}
    return outcome


def _check_rclone(system: System, request: StorageRequest, check: bool) -> None:
    """Refuse a limit that this rclone does not have. Raises HostError."""
    limited = [s3.name for s3 in request.s3 if s3.min_free_gib]
    if not limited or (check and not system.exists("/usr/bin/rclone")):
        return
    version = re.match(r"rclone v(\d+)\.(\d+)", system.run(["rclone", "version"]))
    if version and (int(version[1]), int(version[2])) < RCLONE_MIN_FREE:
        cause = f"{version[0]} has no --vfs-cache-min-free-space, which came with 1.62"
        raise HostError(cause, "install a newer rclone, or leave min_free_gib out", subject=f"{MODULE}: {limited[0]}")


def _ids(storage: LocalStorage) -> tuple[int, int]:
    """Return the numbers of owner and group. Raises HostError."""
    try:
        owner = int(storage.owner) if storage.owner.isdecimal() else pwd.getpwnam(storage.owner).pw_uid
        group = int(storage.group) if storage.group.isdecimal() else grp.getgrnam(storage.group).gr_gid
    except KeyError as error:
        raise HostError(
            f"{error.args[0]}", "nothing was changed; make the account first", subject=f"{MODULE}: {storage.name}"
        ) from error
    return owner, group


@dataclass
class _Pass:
    """One comparison of the units and their files, and the changes that it asks for."""

    system: System
    request: StorageRequest
    in_image: bool
    facts: Sequence[Mapping[str, Any]]

    def ensure(self, check: bool) -> Outcome:
        """Compare, and bring units, files, mounts and their directories about. Raises HostError."""
        outcome = Outcome()
        wanted = units.wanted(self.request)
        stale = self._stale({unit.file for unit in wanted})
        secrets = units.secret_files(self.request)
        texts = {**units.config_files(self.request), **secrets, **{unit.file: unit.text for unit in wanted}}
        for path in stale:
            outcome.differ(path, self._text(path), None)
        for path, text in texts.items():
            self._compare_file(path, text, path in secrets, outcome)
        states = dict(zip(wanted, self._states(wanted)))
        starts = [unit for unit, state in states.items() if self._compare(unit, state, outcome)]
        rights = [] if self.in_image else self._compare_rights(outcome)
        if check or not outcome.changed:
            return outcome
        self._remove(stale)
        for unit in starts:
            # The run after one that is killed from here on starts it again.
            self.system.replace(f"{MARKS}/{unit.name}", b"")
        for path in (path for path in texts if path in outcome.after):
            self._write(path, texts[path].encode(), path in secrets)
        root = ["--root=/"] if self.in_image else []
        if not self.in_image:
            self.system.run(["systemctl", "daemon-reload"])
        for unit in wanted:
            if not self.system.exists(unit.wants):
                self.system.run(["systemctl", *root, "enable", unit.name])
        for unit in starts:
            self.system.run(["systemctl", "restart", unit.name])
            self.system.remove(f"{MARKS}/{unit.name}")
        self._bring_rights(rights)
        self._prove(wanted)
        return outcome

    def _stale(self, wanted: set[str]) -> list[str]:
        """Return the files of units and keys that a former run wrote and that are not wanted any more."""
        ours = [f"{UNITS}/{name}" for name in self.system.names(UNITS) if name.endswith((".mount", ".service"))]
        ours = [path for path in ours if path not in wanted and path != f"{UNITS}/{units.BOOT_UNIT}"]
        return [path for path in ours if (self.system.read_bytes(path) or b"").startswith(units.HEAD.encode())]

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            name = os.path.basename(path)
            self.system.run(["systemctl", *(["--root=/"] if self.in_image else ["--now"]), "disable", name])
            if name.startswith("sailloft-s3-"):
                self.system.remove(units.S3_KEYS.format(name[len("sailloft-s3-") : -len(".service")]))
            if name == units.CACHE_UNIT:
                self.system.remove(units.CACHE_CONFIG)
            self.system.remove(path)

    def _text(self, path: str) -> str | None:
        content = self.system.read_bytes(path)
        return None if content is None else content.decode(errors="replace")

    def _compare_file(self, path: str, text: str, is_secret: bool, outcome: Outcome) -> None:
        old = self._text(path)
        if is_secret and old is not None and stat.S_IMODE(os.stat(self.system.path(path)).st_mode) != 0o600:
            old = ""  # written anew, with its permissions
        if old != text:
            shown = (old and "other keys, not shown", "the given keys, not shown") if is_secret else (old, text)
            outcome.differ(path, *shown)

    def _write(self, path: str, content: bytes, is_secret: bool) -> None:
        if not is_secret:
            self.system.replace(path, content)
            return
        target = self.system.path(path)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            write_atomic(target, content, private)
        except OSError as error:
            raise HostError(
                f"cannot write {path}: {error.strerror}", root_remedy(error, "look at its file system")
            ) from error

    def _states(self, wanted: Sequence[WantedUnit]) -> Sequence[UnitState | None]:
        if self.in_image or not wanted:
            return [None] * len(wanted)
        return unit_states(self.system, [unit.name for unit in wanted])

    def _compare(self, unit: WantedUnit, state: UnitState | None, outcome: Outcome) -> bool:
        """Record how a unit differs, and return whether it must be started or restarted."""
        changed = any(path in outcome.after for path in (unit.file, *unit.reads))
        if not self.system.exists(unit.wants):
            outcome.differ(f"{unit.name} enabled", False, True)
        if state is None:
            return False
        if state.active_state != "active":
            outcome.differ(f"{unit.name} active", False, True)
            return True
        cause = self._other_mount(unit)
        if not cause and not changed and self.system.exists(f"{MARKS}/{unit.name}"):
            cause = "files that it has not read"
        if cause:
            outcome.differ(f"{unit.name} as wanted", cause, True)
        return changed or bool(cause)

    def _other_mount(self, unit: WantedUnit) -> str:
        """Return how a mount that is active is not the wanted one; "" if it is."""
        for fact in self.facts:
            if units.mount_unit(fact["path"]) == unit.name:
                mounted = drives.is_mounted(self.system, fact["device"], fact["path"])
                return "" if mounted else f"{fact['device']} is not what is mounted"
        for nfs in self.request.nfs:
            if units.mount_unit(nfs.path) == unit.name:
                return self._other_nfs(nfs)
        for s3 in self.request.s3:
            if units.S3_UNIT.format(s3.name) == unit.name:
                return self._unreadable(s3)
        return ""

    def _unreadable(self, s3: S3Mount) -> str:
        """Return why a bucket cannot be listed: rclone mounts it with wrong keys, too."""
        try:
            self.system.run(["ls", "-A", "-U", self.system.path(s3.path)], timeout_s=LIST_LIMIT_S)
        except HostError as error:
            return error.cause
        return ""

    def _other_nfs(self, nfs: NfsMount) -> str:
        """Compare an NFS mount with the kernel's lists: proc(5), mountinfo; fs/nfs/client.c, the column FSC."""
        number, source, mount_options = "", "nothing", ""
        for line in (self.system.read("/proc/self/mountinfo") or "").splitlines():
            mount, _dash, file_system = line.partition(" - ")
            if mount.split()[4] == nfs.path:
                number, (_kind, source, mount_options) = mount.split()[2], file_system.split()[:3]
        missing = [option for option in ("proto=rdma", "fsc") if option in nfs.mount_options]
        missing = [option for option in missing if option not in mount_options.split(",")]
        if source != nfs.source or missing:
            return f"{source} is mounted" + (f", without {', '.join(missing)}" if missing else "")
        rows = [line.split() for line in (self.system.read(NFS_VOLUMES) or "").splitlines()]
        if nfs.cache and not any(row[3:4] == [number] and row[-1] == "yes" for row in rows):
            return "mounted with fsc, but without a cache: has this kernel FS-Cache for NFS?"
        return ""

    def _compare_rights(self, outcome: Outcome) -> list[tuple[str, tuple[int, int, int]]]:
        """Record the directories of mounted file systems with other rights, and return them with the wanted ones."""
        differing = []
        for storage in self.request.local:
            wanted = (int(storage.mode, 8), *_ids(storage))
            for fact in self.facts:
                if fact["label"] in storage.labels and drives.is_mounted(self.system, fact["device"], fact["path"]):
                    now = os.stat(self.system.path(fact["path"]))
                    present = (stat.S_IMODE(now.st_mode), now.st_uid, now.st_gid)
                    if present != wanted:
                        outcome.differ(f"{fact['path']} rights", _shown(present), _shown(wanted))
                        differing.append((fact["path"], wanted))
        return differing

    def _bring_rights(self, rights: Sequence[tuple[str, tuple[int, int, int]]]) -> None:
        for path, (mode, owner, group) in rights:
            os.chown(self.system.path(path), owner, group)
            os.chmod(self.system.path(path), mode)

    def _prove(self, wanted: Sequence[WantedUnit]) -> None:
        """Read everything back. Raises HostError for the first unit that is not as wanted."""
        differences = Outcome()
        for unit, state in zip(wanted, self._states(wanted)):
            self._compare(unit, state, differences)
        if not self.in_image:
            self._compare_rights(differences)
        for name, value in differences.before.items():
            raise HostError(
                f"it was brought about, but {name} reads back as {value}", "see the journal", subject=MODULE
            )


def _shown(rights: tuple[int, int, int]) -> str:
    mode, owner, group = rights
    return f"{mode:04o} {owner}:{group}"
