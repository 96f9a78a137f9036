# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of disks on this host: one identity for all paths of a file, and the base of a qcow2 image."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass

# docs/interop/qcow2.txt of QEMU: magic, version, offset and size of the backing file's name, at most 1023 bytes.
HEADER = struct.Struct(">4sIQI")
MAGIC = b"QFI\xfb"
NAME_BYTES_MAX = 1023
# Longer chains are not followed, which also ends a loop.
CHAIN_MAX = 64


@dataclass
class ImageFile:
    """A file or block device. ``identity`` is the same for every path that leads to it, through any links.

    ``is_own`` is False for a symbolic link, whose target was made by somebody else. ``base`` is the path that a qcow2
    image names as its base, or None.
    """

    identity: str
    exists: bool
    is_own: bool = True
    base: str | None = None


def observe(paths: Iterable[str]) -> dict[str, ImageFile]:
    """Return the files at ``paths`` and all of their bases, by path."""
    image_files: dict[str, ImageFile] = {}
    for path in paths:
        next_path: str | None = path
        for _step in range(CHAIN_MAX):
            if next_path is None or next_path in image_files:
                break
            image_files[next_path] = _file(next_path)
            next_path = image_files[next_path].base
    return image_files


def _file(path: str) -> ImageFile:
    is_own = not os.path.islink(path)
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ImageFile(f"path {os.path.realpath(path)}", False, is_own)
    if stat.S_ISBLK(status.st_mode):
        return ImageFile(f"device {os.major(status.st_rdev)}:{os.minor(status.st_rdev)}", True, is_own, _base(path))
    regular = stat.S_ISREG(status.st_mode)
    return ImageFile(f"file {status.st_dev}:{status.st_ino}", True, is_own, _base(path) if regular else None)


def _base(path: str) -> str | None:
    try:
        with open(path, "rb") as image:
            head = image.read(HEADER.size)
            if len(head) < HEADER.size:
                return None
            magic, _version, offset, size = HEADER.unpack(head)
            if magic != MAGIC or not offset or not 0 < size <= NAME_BYTES_MAX:
                return None
            image.seek(offset)
            name = os.fsdecode(image.read(size))
    except (OSError, ValueError, OverflowError):
        return None
    # For QEMU (path_has_protocol in block.c), "nbd://..." and "json:..." are not paths.
    if "\0" in name or ":" in name.split("/", 1)[0]:
        return None
    return os.path.normpath(os.path.join(os.path.dirname(path), name))
