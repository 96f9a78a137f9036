# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Small programs of 64-bit firmware, in the form in which ukify makes them: sections in their order, aligned."""

from __future__ import annotations

import struct

ALIGNED = 512


def program(**sections: bytes) -> bytes:
    """Return a program with these sections, each named with a dot: ``program(linux=b"...")``."""
    header = struct.pack("<2s58xI", b"MZ", 64)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, len(sections), 0, 0, 0, 240, 0x22E)
    optional = struct.pack("<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", 0x20B, 0, 0, 512, 0, 0, 4096, 4096, 1 << 32, 4096, ALIGNED,
                           0, 0, 0, 0, 0, 0, 0, 1 << 20, 1024, 0, 10, 0, 0, 0, 0, 0, 0, 16)  # fmt: skip
    table, body = b"", b""
    for number, (name, content) in enumerate(sections.items(), 1):
        data = content + bytes(-len(content) % ALIGNED)
        place = (len(content), number << 16, len(data), 1024 + len(body))
        table += struct.pack("<8sIIIIIIHHI", b"." + name.encode(), *place, 0, 0, 0, 0, 0x40000040)
        body += data
    return (header + coff + optional + bytes(128) + table).ljust(1024, b"\0") + body


def boot_program(image: str, **changed: bytes) -> bytes:
    """Return a program with the sections of an image's, of which some may be ``changed``."""
    sections = {
        "text": b"stub",
        "sbat": b"sbat,1,SBAT Version\n",
        "osrel": b"ID=debian\n",
        "cmdline": f"console=ttyS0 sailloft.image={image} sailloft.signed=1".encode(),
        "uname": b"6.1.0-31-cloud-amd64",
        "linux": program(text=b"kernel"),
        "initrd": b"first stage" * 100,
    }
    return program(**{**sections, **changed})
