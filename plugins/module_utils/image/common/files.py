# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hash, create and remove files, and define the one form in which JSON is written and hashed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any

CHUNK_BYTES = 1 << 20
# A hexadecimal sha256 without a prefix; images, blobs and keys are named by it.
DIGEST = re.compile(r"[0-9a-f]{64}")


def canonical_json(data: Any) -> bytes:
    """Return plain data as JSON: sorted keys, indent 2, ASCII, a newline at the end. Raises ValueError for NaN."""
    return (json.dumps(data, sort_keys=True, indent=2, allow_nan=False) + "\n").encode("ascii")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the hexadecimal sha256 of the file's bytes. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def unnamed_files(*contents: bytes) -> Iterator[list[int]]:
    """Yield the descriptors of one file in memory for each of ``contents``; a process that gets them opens ``fd_path``.

    They have no name in any file system (memfd_create(2)), so that nothing is left of them if this process is killed.
    """
    descriptors: list[int] = []
    try:
        for content in contents:
            descriptors.append(os.memfd_create("sailloft"))
            with open(descriptors[-1], "wb", closefd=False) as stream:
                stream.write(content)
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def fd_path(descriptor: int) -> str:
    """Return the path by which the process opens the file that its ``descriptor`` refers to."""
    return f"/proc/self/fd/{descriptor}"


def fd_content(descriptor: int) -> bytes:
    """Return the whole content of the file that a descriptor refers to. Raises OSError."""
    with open(fd_path(descriptor), "rb") as stream:
        return stream.read()


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
