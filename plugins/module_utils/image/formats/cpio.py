# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An initramfs archive in the newc form (Linux Documentation/driver-api/early-userspace/buffer-format.rst).

GNU cpio is not used: it stores the inode numbers and times of its input, so its archives are not reproducible.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass

ALIGNMENT_BYTES = 4
TRAILER = "TRAILER!!!"
# cpio pads archives to whole blocks of 512 bytes; the kernel unpacks such an archive from any source.
BLOCK_BYTES = 512


@dataclass(frozen=True)
class Entry:
    """One file. ``mode`` includes the bits of the file type; ``data`` is a file's content or a link's target."""

    path: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def folder(path: str) -> Entry:
    """Return an entry for a directory that all may read."""
    return Entry(path, stat.S_IFDIR | 0o755)


def file(path: str, data: bytes, executable: bool = False) -> Entry:
    """Return an entry for a file that all may read."""
    return Entry(path, stat.S_IFREG | (0o755 if executable else 0o644), data)


def link(path: str, target: str) -> Entry:
    """Return an entry for a symbolic link."""
    return Entry(path, stat.S_IFLNK | 0o777, target.encode())


def character_device(path: str, major: int, minor: int) -> Entry:
    """Return an entry for a character device that only root may use."""
    return Entry(path, stat.S_IFCHR | 0o600, device=(major, minor))


def archive(entries: Iterable[Entry], epoch: int) -> bytes:
    """Return the archive's bytes: sorted by path, owned by root, all with the time ``epoch`` (s since 1970).

    Missing parent directories of an entry are added. Raises ValueError if two entries have the same path.
    """
    by_path: dict[str, Entry] = {}
    for entry in entries:
        if entry.path in by_path:
            raise ValueError(f"{entry.path} occurs twice")
        by_path[entry.path] = entry
    for path in list(by_path):
        while "/" in path:
            path = path.rpartition("/")[0]
            by_path.setdefault(path, folder(path))
    written = [_record(by_path[path], number, epoch) for number, path in enumerate(sorted(by_path), start=1)]
    written.append(_record(Entry(TRAILER, 0), 0, 0))
    return _padded(b"".join(written), BLOCK_BYTES)


def _record(entry: Entry, number: int, epoch: int) -> bytes:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    # inode, mode, owner, group, links, time, size, device of the file system (2 fields), device number (2 fields), size
    # of the name, no checksum
    fields = (number, entry.mode, 0, 0, links, epoch, len(entry.data), 0, 0, *entry.device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + name, ALIGNMENT_BYTES) + _padded(entry.data, ALIGNMENT_BYTES)


def _padded(data: bytes, to_bytes: int) -> bytes:
    return data + b"\0" * (-len(data) % to_bytes)
