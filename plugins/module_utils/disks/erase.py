# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Erase disks, and read back that they are: by the log of a sanitize, and by marks that were written before.

NVMe commands are nvme-cli's. Its binary output has the form of the NVM Express Base Specification 2.0: Identify
Controller (figure 275) and the Sanitize Status log page (figure 239).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import subprocess
import time
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.disks.found import DiskError, NodeDisk
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

# linux/fs.h
BLKRRPART, BLKFLSBUF = 0x125F, 0x1261
MARK_BYTES = 4096
POLL_S = 5.0
# Sanitize Action (SANACT) by the bit of Sanitize Capabilities (SANICAP) that offers it, in the order of choice: block
# erase, crypto erase.
SANITIZE_ACTIONS = ((0x2, 2), (0x1, 4))
SERIAL = slice(4, 24)  # Serial Number (SN), padded with spaces
FORMAT_OFFERED = 0x2  # Optional Admin Command Support (OACS), bit 1
# Sanitize Status (SSTAT), bits 2:0.
NEVER, COMPLETED, IN_PROGRESS, FAILED, COMPLETED_ALLOCATED = range(5)
WHAT = {NEVER: "none was ever started", IN_PROGRESS: "it is in progress", FAILED: "it failed"}


@dataclass(frozen=True)
class NvmeAbilities:
    """The abilities of a controller: the sanitize action, 0 for none, and format."""

    sanitize: int
    format: bool


def abilities(identify: bytes) -> NvmeAbilities:
    """Return what Identify Controller (4096 bytes) says. Raises DiskError."""
    if len(identify) != 4096:
        raise DiskError(f"its Identify Controller has {len(identify)} bytes, not 4096", "update nvme-cli")
    (offered,) = struct.unpack_from("<H", identify, 256)
    (sanitize,) = struct.unpack_from("<I", identify, 328)
    action = next((action for bit, action in SANITIZE_ACTIONS if sanitize & bit), 0)
    return NvmeAbilities(action, bool(offered & FORMAT_OFFERED))


def sanitize_status(log: bytes) -> tuple[int, int]:
    """Return (status, percent) of the Sanitize Status log page. Raises DiskError."""
    if len(log) < 4:
        raise DiskError(f"its sanitize log has {len(log)} bytes", "update nvme-cli")
    progress, status = struct.unpack_from("<HH", log)
    return status & 0x7, progress * 100 // 0x10000


class Eraser:
    """Erases disks of this host, with a time limit in seconds for each."""

    def __init__(self, system: System, timeout_s: float) -> None:
        self.system, self.timeout_s = system, timeout_s

    def method(self, disk: NodeDisk, wanted: str) -> str:
        """Return the method for a disk: the wanted one, or for auto the strongest that it offers. Raises DiskError."""
        if not disk.is_nvme:
            if wanted in ("sanitize", "format"):
                raise DiskError(f"{disk.path} is no NVMe disk", "nothing was erased; use the method discard or zero")
            return "discard" if wanted == "auto" else wanted
        offered = abilities(self.binary(["nvme", "id-ctrl", "--raw-binary", disk.path]))
        possible = {"sanitize": bool(offered.sanitize), "format": offered.format, "discard": True, "zero": True}
        method = next(name for name, is_offered in possible.items() if is_offered) if wanted == "auto" else wanted
        if not possible[method]:
            raise DiskError(f"{disk.path} does not offer {method}", "nothing was erased; use another method, or auto")
        return method

    def erase(self, disks: list[NodeDisk], method: str) -> None:
        """Erase disks of one controller, or a single one, and read it back. Raises DiskError and HostError."""
        first = disks[0]
        if method == "sanitize":
            identify = self.binary(["nvme", "id-ctrl", "--raw-binary", _controller(first)])
            action = abilities(identify).sanitize
            # With multipath, a namespace may have another number than its controller.
            if identify[SERIAL].decode("ascii", "replace").strip() != first.serial:
                cause = f"{_controller(first)} is not the controller of {first.path}"
                raise DiskError(cause, "it is not erased; use the method format")
            # One that a killed run began goes on by itself.
            self.wait_for_sanitize(first, is_ours=False)
        marks = {disk.path: _mark(disk) for disk in disks}
        if method == "sanitize":
            self.system.run(["nvme", "sanitize", _controller(first), f"--sanact={action}"])
            self.wait_for_sanitize(first, is_ours=True)
        for disk in disks:
            if method == "format":
                limit = f"--timeout={int(self.timeout_s * 1000)}"
                self.system.run(["nvme", "format", disk.path, "--ses=1", "--force", limit], timeout_s=self.timeout_s)
            elif method in ("discard", "zero"):
                options = ["--zeroout"] if method == "zero" else []
                self.system.run(["blkdiscard", *options, disk.path], timeout_s=self.timeout_s)
            check_erased(disk, marks[disk.path], method)

    def wait_for_sanitize(self, disk: NodeDisk, is_ours: bool) -> None:
        """Wait for the end of a sanitize; one that was not ``is_ours`` here may never have been. Raises DiskError."""
        end = time.monotonic() + self.timeout_s
        while True:
            status, percent = sanitize_status(self.binary(["nvme", "sanitize-log", "--raw-binary", _controller(disk)]))
            if status in (COMPLETED, COMPLETED_ALLOCATED) or (not is_ours and status in (NEVER, FAILED)):
                return
            if status != IN_PROGRESS:
                cause = f"{disk.path}: its log says of the sanitize that {WHAT.get(status, f'its status is {status}')}"
                raise DiskError(cause, "it is not erased; read nvme sanitize-log, and run again or replace the disk")
            if time.monotonic() > end:
                cause = f"{disk.path}: the sanitize is at {percent} % after {self.timeout_s:g} s"
                raise DiskError(cause, "it goes on by itself; run again to wait for its end")
            time.sleep(POLL_S)

    def binary(self, argv: list[str]) -> bytes:
        """Return the output of a command. Raises DiskError."""
        try:
            process = subprocess.run(argv, capture_output=True, check=False, timeout=60)
        except FileNotFoundError as error:
            raise DiskError("nvme is not installed on this host", "add nvme-cli to the image") from error
        except subprocess.TimeoutExpired as error:
            raise DiskError(f"'{' '.join(argv)}' did not finish in 60 s", "the disk may be broken") from error
        if process.returncode:
            error_lines = process.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
            raise DiskError(
                f"'{' '.join(argv)}' failed: {error_lines[0]}", "nothing was erased; correct what it reports"
            )
        return process.stdout


def _controller(disk: NodeDisk) -> str:
    """Return the controller's device of a namespace: /dev/nvme0 of nvme0n1."""
    return f"/dev/{disk.name.rsplit('n', 1)[0]}"


def _mark(disk: NodeDisk) -> list[tuple[int, bytes]]:
    """Write random marks at the beginning, middle and end of a disk that nothing else uses. Raises DiskError."""
    blocks = disk.size_bytes // MARK_BYTES
    marks = [(block * MARK_BYTES, secrets.token_bytes(MARK_BYTES)) for block in sorted({0, blocks // 2, blocks - 1})]
    try:
        handle = os.open(disk.path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        try:
            for offset, content in marks:
                os.pwrite(handle, content, offset)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise DiskError(f"{disk.path} cannot be written: {error.strerror}", "it is not erased") from error
    return marks


def check_erased(disk: NodeDisk, marks: list[tuple[int, bytes]], method: str) -> None:
    """Check that the disk shows no mark, and forget its old partitions. Raises DiskError."""
    try:
        handle = os.open(disk.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
        try:
            fcntl.ioctl(handle, BLKFLSBUF, 0)
            remaining_offsets = [offset for offset, content in marks if os.pread(handle, MARK_BYTES, offset) == content]
            if not disk.name.startswith("loop"):  # without partitions it has no table to read again
                fcntl.ioctl(handle, BLKRRPART, 0)
        finally:
            os.close(handle)
    except OSError as error:
        raise DiskError(f"{disk.path} cannot be read back: {error.strerror}", "it may not be erased") from error
    if remaining_offsets:
        raise DiskError(
            f"{disk.path} still shows what was written at {', '.join(map(str, remaining_offsets))} before its {method}",
            "it is not erased; use the method zero, or destroy the disk",
        )
