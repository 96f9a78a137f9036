# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Logs of what firmware has measured, in the TCG's binary form (PC Client Platform Firmware Profile, 10.2)."""

from __future__ import annotations

import hashlib
import struct

SHA1, SHA256 = 0x0004, 0x000B


def first_event() -> bytes:
    """Return the event that names the kinds of digests."""
    data = b"Spec ID Event03\0" + struct.pack("<IBBBBI", 0, 0, 2, 0, 2, 2) + struct.pack("<HHHH", SHA1, 20, SHA256, 32)
    data += b"\0"
    return struct.pack("<II20sI", 0, 3, bytes(20), len(data)) + data


def event(pcr: int, kind: int, data: bytes, digest: str = "") -> bytes:
    """Return an event whose digest is that of its data, or ``digest``."""
    sha256 = bytes.fromhex(digest) if digest else hashlib.sha256(data).digest()
    digests = struct.pack("<H20sH32s", SHA1, hashlib.sha1(data).digest(), SHA256, sha256)
    return struct.pack("<III", pcr, kind, 2) + digests + struct.pack("<I", len(data)) + data
