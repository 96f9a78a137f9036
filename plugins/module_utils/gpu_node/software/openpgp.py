# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fingerprints of armored OpenPGP public keys. Pure.

GnuPG is not used: a node or a chroot of an image may not have it before the repository whose key this is.

Source: RFC 9580, section 6 for armor, 4.2 for packets, 5.5.2.2 and 5.5.4.2 for version 4 keys and their fingerprints
(SHA-1 over 0x99, the length in two octets, and the packet's body). The armor's checksum is ignored, as section 6.1
requires; the fingerprint protects the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

PUBLIC_KEY = 6
ARMOR = re.compile(
    r"^-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?P<headers>(?:[^\r\n]*: [^\r\n]*\r?\n)*)[ \t]*\r?\n"
    r"(?P<body>[A-Za-z0-9+/=\s]+?)(?:^=[A-Za-z0-9+/]{4}\s*)?^-----END PGP PUBLIC KEY BLOCK-----",
    re.MULTILINE,
)


class KeyFormatError(SailloftError):
    """A text that is no armored public key."""


def fingerprints(armored: str) -> list[str]:
    """Return the fingerprints of the primary keys of all blocks, 40 hexadecimal digits each. Raises KeyFormatError."""
    digests = []
    for block in ARMOR.finditer(armored):
        try:
            data = base64.b64decode("".join(block["body"].split()), validate=True)
        except binascii.Error as error:
            raise KeyFormatError("it is damaged: not base64") from error
        for tag, body in _packets(data):
            if tag == PUBLIC_KEY:
                if body[:1] != b"\x04":
                    raise KeyFormatError("it is not a version 4 key")
                digests.append(hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper())
    if not digests:
        raise KeyFormatError("there is no armored public key in it")
    return digests


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(data):
        head = data[offset]
        if not head & 0x80:
            raise KeyFormatError("it is damaged: no packet where one begins")
        offset += 1
        if head & 0x40:
            tag = head & 0x3F
            first = data[offset : offset + 1]
            if not first or 224 <= first[0] < 255:
                raise KeyFormatError("it is damaged: a packet without length")
            if first[0] < 192:
                length, offset = first[0], offset + 1
            elif first[0] < 224:
                length, offset = (
                    ((first[0] - 192) << 8) + int.from_bytes(data[offset + 1 : offset + 2], "big") + 192,
                    offset + 2,
                )
            else:
                length, offset = int.from_bytes(data[offset + 1 : offset + 5], "big"), offset + 5
        else:
            tag, kind = (head >> 2) & 0x0F, head & 3
            if kind == 3:
                raise KeyFormatError("it is damaged: a packet without length")
            size = 1 << kind
            length, offset = int.from_bytes(data[offset : offset + size], "big"), offset + size
        if offset + length > len(data):
            raise KeyFormatError("it is damaged: it ends within a packet")
        yield tag, data[offset : offset + length]
        offset += length
