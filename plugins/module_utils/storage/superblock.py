# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the superblock of an XFS: label, UUID and stripe. Offsets: Linux fs/xfs/libxfs/xfs_format.h, struct xfs_dsb."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

MAGIC, BYTES = b"XFSB", 512


@dataclass(frozen=True)
class XfsSuperblock:
    """The first superblock. ``is_complete``: mkfs has ended. Stripe unit and width in bytes, 0 for none."""

    label: str
    uuid: str
    is_complete: bool
    stripe_unit: int
    stripe_width: int


def parse(content: bytes) -> XfsSuperblock | None:
    """Return the superblock at the beginning of a device; None if this is none."""
    if len(content) < BYTES or content[:4] != MAGIC:
        return None
    (block_bytes,) = struct.unpack_from(">I", content, 4)
    unit, width = struct.unpack_from(">II", content, 184)
    return XfsSuperblock(
        label=content[108:120].rstrip(b"\0").decode(errors="replace"),
        uuid=str(uuid.UUID(bytes=content[32:48])),
        is_complete=content[126] == 0,
        stripe_unit=unit * block_bytes,
        stripe_width=width * block_bytes,
    )
