# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write files completely or not at all, and make changes survive a power loss."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

# The temporary file beside NAME, which is renamed to NAME when it is complete. Its name is always the same, so that the
# next run takes over what a killed run left; it is hidden, so that it is not mistaken for the file itself.
TEMPORARY = ".{}.new"
# Sets owner and mode of the open file with this descriptor.
Prepare = Callable[[int], None]


def temporary_of(path: str | os.PathLike[str]) -> str:
    """Return the temporary path for writing ``path`` before the rename: the same directory, a hidden name."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, TEMPORARY.format(name))


def public(handle: int) -> None:
    """Let everyone read the file, whatever the umask is."""
    os.fchmod(handle, 0o644)


def private(handle: int) -> None:
    """Let only the owner read the file; one that a killed run left may have another mode."""
    os.fchmod(handle, 0o600)


def write_synced(path: str | os.PathLike[str], data: bytes, prepare: Prepare = public, mode: int = 0o600) -> None:
    """Write a file and wait until it is on the disk. Raises OSError.

    A new file has ``mode`` (less the umask) until ``prepare`` is called, which is before it has content.
    """
    with os.fdopen(_alone(path, mode), "wb") as stream:
        _fill(stream, data, prepare)


def write_atomic(path: str | os.PathLike[str], data: bytes, prepare: Prepare = public, mode: int = 0o600) -> None:
    """Write ``data`` to ``path`` atomically: readers get the old or the new file, even after a power loss.

    The directory must exist. If writing fails, the partly written file is removed. Of several writers at once, each
    waits for the one before it. Raises OSError.
    """
    temporary = temporary_of(path)
    with os.fdopen(_alone(temporary, mode), "wb") as stream:
        try:
            _fill(stream, data, prepare)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
    sync_directory(os.path.dirname(temporary))


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file, which is made and stays. Without ``wait``, yields False if another holds it.

    The directory must exist. Raises OSError.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


def _alone(path: str | os.PathLike[str], mode: int) -> int:
    """Open a file, new or left by a killed run, and lock it until it is closed. A symbolic link is refused."""
    while True:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, mode)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # The writer before may have renamed or removed the file in the meantime.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.lstat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _fill(stream: BinaryIO, data: bytes, prepare: Prepare) -> None:
    stream.truncate()
    prepare(stream.fileno())
    stream.write(data)
    stream.flush()
    os.fsync(stream.fileno())


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Wait until the directory's entries are on the disk, so that a rename survives a power loss. Raises OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
