# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write files completely or not at all, and define the one form in which JSON is written and hashed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given.disk import sync_directory

CHUNK_BYTES = 1 << 20
# A hexadecimal sha256 without a prefix; images, blobs and keys are named by it.
DIGEST = re.compile(r"[0-9a-f]{64}")
# The temporary file beside NAME, which is renamed to NAME when it is complete. Its name is always the same, so that the
# next run takes over what a killed run left; it is hidden, so that it is not mistaken for the file itself.
TEMPORARY = ".{}.new"


def canonical_json(data: Any) -> bytes:
    """Return plain data as JSON: sorted keys, indent 2, ASCII, a newline at the end. Raises ValueError for NaN."""
    return (json.dumps(data, sort_keys=True, indent=2, allow_nan=False) + "\n").encode("ascii")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the hexadecimal sha256 of the file's bytes. Raises OSError."""
    found = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
            found.update(chunk)
    return found.hexdigest()


def temporary_of(path: str | os.PathLike[str]) -> str:
    """Return the temporary path for writing ``path`` before the rename: the same directory, a hidden name."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, TEMPORARY.format(name))


def write_synced(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that a web server may read, whatever the umask is; wait until it is on the disk. Raises OSError."""
    with open(path, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fchmod(stream.fileno(), 0o644)
        os.fsync(stream.fileno())


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` to ``path`` atomically (mode 0644): readers get the old or the new file, even after a power loss.

    The directory must exist. If writing fails, the partly written file is removed. Raises OSError.
    """
    temporary = temporary_of(path)
    try:
        write_synced(temporary, data)
        os.replace(temporary, path)
    except OSError:
        remove_if_there(temporary)
        raise
    sync_directory(os.path.dirname(temporary))


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a directory that a web server may read, whatever the umask is. Raises OSError."""
    umask = os.umask(0o022)
    try:
        os.mkdir(path)
    finally:
        os.umask(umask)


def remove_if_there(path: str | os.PathLike[str]) -> None:
    """Remove a file if it exists. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
