# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The loader and the shared libraries that a program needs to start, from its ELF headers.

Constants and layout: System V ABI, chapters 4 and 5 (``/usr/include/elf.h``). Only 64-bit little-endian files are
supported, since all machines that the images are for use them. ldd is not used: it runs the program's loader with the
libraries of the build host.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC_64_LITTLE = b"\x7fELF\x02\x01"
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NULL, DT_NEEDED, DT_STRTAB = 0, 1, 5


@dataclass(frozen=True)
class Needs:
    """The needs of a program: ``loader`` is a path (empty if the program is static), ``libraries`` are names."""

    loader: str
    libraries: tuple[str, ...]


def needs(data: bytes) -> Needs:
    """Return the needs of the program or library in these bytes. Raises ValueError if they are not a whole ELF file."""
    if not data.startswith(MAGIC_64_LITTLE):
        raise ValueError("not a 64-bit little-endian ELF file")
    try:
        return _needs(data)
    except (struct.error, IndexError) as error:
        raise ValueError("the file is truncated") from error


def _needs(data: bytes) -> Needs:
    headers_at, header_bytes, headers = (
        struct.unpack_from("<Q", data, 0x20)[0],
        *struct.unpack_from("<HH", data, 0x36),
    )
    segments = []
    for header_at in range(headers_at, headers_at + header_bytes * headers, header_bytes):
        kind, _flags, offset, address, _physical, file_bytes = struct.unpack_from("<IIQQQQ", data, header_at)
        if offset + file_bytes > len(data):
            raise ValueError("the file is truncated")
        segments.append((kind, offset, address, file_bytes))
    loader = next((_text(data, offset) for kind, offset, _address, _bytes in segments if kind == PT_INTERP), "")
    entries: list[tuple[int, int]] = []
    for kind, offset, _address, file_bytes in segments:
        if kind == PT_DYNAMIC:
            entries = list(struct.iter_unpack("<qQ", data[offset : offset + file_bytes]))
    tags = [tag for tag, _value in entries]
    entries = entries[: tags.index(DT_NULL)] if DT_NULL in tags else entries
    strings = [value for tag, value in entries if tag == DT_STRTAB]
    if not strings:
        return Needs(loader, ())
    strings_at = next(
        strings[0] - address + offset
        for kind, offset, address, file_bytes in segments
        if kind == PT_LOAD and address <= strings[0] < address + file_bytes
    )
    return Needs(loader, tuple(_text(data, strings_at + value) for tag, value in entries if tag == DT_NEEDED))


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()
