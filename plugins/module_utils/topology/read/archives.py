# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Unpack the tar of a recorded /sys and /proc into its own directory, and write nothing outside of it.

A tar that was attached to a bug report is not trusted: every member stays below the directory, and size and number are
checked before anything is written. Python's own filter for this exists only in the last releases of 3.9 to 3.11.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from typing import IO, Literal

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError

# A gathered /sys of a GPU server has about 5000 files and 200 KB in all; one with every file of /sys is below this too.
LIMIT_BYTES = 256 << 20
LIMIT_MEMBERS = 200_000
REMEDY = "nothing in this tar is used; create it again from /sys and /proc only"

# The first bytes of compressed files: RFC 1952; the bzip2 and xz file formats.
COMPRESSED: dict[bytes, Callable[[str, Literal["rb"]], io.BufferedIOBase]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
# POSIX 1003.1 ustar, also for the GNU and pax formats: the magic is at byte 257 of a block of 512.
BLOCK = 512
USTAR = slice(257, 262)
HEAD_BYTES = BLOCK


def is_archive(head: bytes) -> bool:
    """Return True if a file that begins with ``head`` (``HEAD_BYTES`` of it) is compressed or a tar."""
    return head.startswith(tuple(COMPRESSED)) or head[USTAR] == b"ustar"


def unpack(path: str, folder: str) -> None:
    """Unpack the tar at ``path`` (plain, gzip, bzip2 or xz) into ``folder``, which exists and is empty.

    Raises TopologyError if the file is no tar, is truncated, is larger than a recording can be, or has a member that
    is no file, directory or symbolic link, or that leads out of the tree.
    """
    try:
        with tempfile.TemporaryFile() as plain:
            _decompress(path, plain)
            if plain.read(BLOCK).lstrip()[:1] in (b"{", b"<"):
                raise TopologyError(
                    f"{path} is compressed JSON or XML, and only a tar may be compressed", "decompress it"
                )
            plain.seek(0)
            with tarfile.open(fileobj=plain, mode="r:") as archive:
                end = _members(path, archive, folder)
            # tarfile takes a truncated or damaged header for the end; the real end is a block of zeros.
            plain.seek(end)
            if plain.read(BLOCK) != bytes(BLOCK):
                raise TopologyError(f"{path}: the tar is cut short or damaged", "copy it again")
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        raise TopologyError(
            f"{path}: read as a tar of /sys and /proc, but cannot be unpacked: {error}", REMEDY
        ) from error


def _decompress(path: str, plain: IO[bytes]) -> None:
    with open(path, "rb") as stream:
        head = stream.read(HEAD_BYTES)
    opener = next((opener for magic, opener in COMPRESSED.items() if head.startswith(magic)), open)
    with opener(path, "rb") as stream:
        written = 0
        while True:
            part = stream.read(1 << 20)
            if not part:
                break
            written += len(part)
            if written > LIMIT_BYTES:
                raise _too_large(path)
            plain.write(part)
    plain.seek(0)


def _members(path: str, archive: tarfile.TarFile, folder: str) -> int:
    """Write the members and return the offset at which the last one ends."""
    links: set[tuple[str, ...]] = set()
    end = written = 0
    for number, member in enumerate(archive):
        if number >= LIMIT_MEMBERS:
            raise TopologyError(f"{path}: more than {LIMIT_MEMBERS} files: not a recording of a host", REMEDY)
        # A sparse file, or one that only claims its size, is larger than its data in the tar.
        written += member.size
        if written > LIMIT_BYTES:
            raise _too_large(path)
        if member.issparse():
            raise TopologyError(f"{path}: {member.name} is a sparse file", "write the tar without --sparse")
        end = member.offset_data + (-(-member.size // BLOCK) * BLOCK if member.isreg() else 0)
        parts = tuple(part for part in member.name.split("/") if part not in ("", "."))
        parents = [parts[:length] for length in range(1, len(parts))]
        if member.name.startswith("/") or ".." in parts or links.intersection(parents):
            raise TopologyError(f"{path}: {member.name} points outside the tree", REMEDY)
        target = os.path.join(folder, *parts)
        if member.isdir():
            os.makedirs(target, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if member.issym():
            if not _stays(member.linkname, depth=len(parts) - 1):
                raise TopologyError(
                    f"{path}: {member.name} is a link to a place outside the tree: {member.linkname}",
                    REMEDY,
                )
            os.symlink(member.linkname, target)
            links.add(parts)
        elif member.isreg():
            source = archive.extractfile(member)
            # Mode "x" fails if the name exists, and does not follow a link.
            with open(target, "xb") as stream:
                stream.write(source.read() if source else b"")
        else:
            raise TopologyError(f"{path}: {member.name} is not a file, directory or symbolic link", REMEDY)
    return end


def _too_large(path: str) -> TopologyError:
    return TopologyError(f"{path}: more than {LIMIT_BYTES >> 20} MiB when unpacked: not a recording of a host", REMEDY)


def _stays(link: str, depth: int) -> bool:
    """Return True if the target of a link that is ``depth`` directories below the top is below the top.

    ".." is allowed only at the beginning. The directories above the link are no links themselves, so the path's text
    gives the real target.
    """
    steps = [step for step in link.split("/") if step not in ("", ".")]
    up = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    return not link.startswith("/") and up <= depth and ".." not in steps[up:]
