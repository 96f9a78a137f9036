# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the log of repairs and append to it, one run at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.errors import RepairError
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import RepairLine, complete, dump, parse

NAME = "repair-log.jsonl"


class LogFile:
    """A log while no other run writes to it."""

    def __init__(self, path: str, handle: int | None) -> None:
        """Read it. ``handle`` None: nothing is written. Raises RepairError and OSError."""
        self.path = path
        self._handle = handle
        text = _content(path)
        self._bytes = complete(text)
        self.lines = parse(text, path)

    def append(self, lines: Iterable[RepairLine]) -> None:
        """Append lines, and wait until they are on the disk. Raises OSError."""
        new = list(lines)
        if self._handle is None or not new:
            return
        # A part of a line that a killed run left is no decision.
        os.ftruncate(self._handle, self._bytes)
        data = dump(new).encode()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._handle, data[written:])
            os.fsync(self._handle)
        except OSError:
            # Nothing of it is carried out, as on a full disk: the first lines must not say that it was begun.
            os.ftruncate(self._handle, self._bytes)
            raise
        self._bytes += written
        self.lines += new


@contextlib.contextmanager
def opened(folder: str, write: bool = True) -> Iterator[LogFile]:
    """Hold the log of a directory, which is made. Without ``write`` it is only read. Raises RepairError."""
    path = os.path.join(folder, NAME)
    try:
        if not write:
            yield LogFile(path, None)
            return
        os.makedirs(folder, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            disk.sync_directory(folder)
            yield LogFile(path, handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise RepairError(
            f"the log of repairs cannot be used: {error.strerror}", "give a directory that you own", subject=path
        ) from error


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""
