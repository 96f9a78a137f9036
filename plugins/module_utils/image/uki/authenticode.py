# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sign programs of UEFI firmware, and verify them as firmware with Secure Boot does.

Signer is osslsigncode: it takes the time to write into the signature, so that the same file and RSA key give the same
bytes. sbsign always writes the present time, and faketime would be one more tool.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run, tail
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign

TOOL = "osslsigncode"
# Offsets in bytes (Microsoft's "PE Format"): in the file, that of the PE header; in this, the optional header; in this,
# the checksum, and in the 64-bit form the entry of the table of certificates: its offset in the file, and its size.
PE_OFFSET, OPTIONAL, CHECKSUM, CERTIFICATES = 0x3C, 24, 64, 144
PE32_PLUS = 0x20B
# In the PE header, the number of sections and the size of the optional header; in this, the size of all headers. Then
# comes the table of sections, each with name, size in memory, address, size in the file and its offset there.
SECTIONS, OPTIONAL_BYTES, HEADERS_BYTES = 6, 20, 60
SECTION = struct.Struct("<8sIIII16x")
# Signatures begin at a multiple of this.
ALIGNED_BYTES = 8


def sign_by_key(program: bytes, key: Path, certificate: Path, time_s: int) -> bytes:
    """Return the program with a signature of ``time_s`` (s since 1970). Raises ImageError.

    Only osslsigncode, a process of its own, opens the key.
    """
    subject = f"Secure Boot key {key}"
    with tempfile.TemporaryDirectory() as folder:
        unsigned_program, signed = Path(folder, "given"), Path(folder, "signed")
        unsigned_program.write_bytes(program)
        options = ["-h", "sha256", "-key", f"{key}", "-certs", f"{certificate}", "-time", f"{time_s}"]
        reason = _failure("sign", *options, "-in", f"{unsigned_program}", "-out", f"{signed}")
        if reason:
            raise ImageError(
                reason, "give an RSA key in PEM without password, and its certificate in PEM", subject=subject
            )
        return _verified(signed.read_bytes(), program, certificate, subject)


def sign_by_command(program: bytes, command: Sequence[str], certificate: Path) -> bytes:
    """Return the signed program that a command of the site prints for the one on its input. Raises ImageError."""
    return _verified(sign.printed_by(command, program), program, certificate, f"signing command {command[0]}")


def is_signed(signed: bytes, program: bytes, certificate: Path) -> bool:
    """Return whether ``signed`` is the program with a signature by the owner of the certificate."""
    return not _problem(signed, program, certificate)


def _verified(signed: bytes, program: bytes, certificate: Path, subject: str) -> bytes:
    problem = _problem(signed, program, certificate)
    if problem:
        raise ImageError(problem, f"check that the certificate {certificate} belongs to the key", subject=subject)
    return signed


def _problem(signed: bytes, program: bytes, certificate: Path) -> str | None:
    """Return what is wrong with the signed program, or None."""
    if unsigned(signed) != unsigned(program):
        return "it did not give the program that it got, signed"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "signed")
        place.write_bytes(signed)
        return _failure("verify", "-CAfile", f"{certificate}", "-in", f"{place}")


def _failure(*arguments: str) -> str | None:
    """Run osslsigncode; return its last lines if it fails, or None. Raises ImageError if there is none."""
    run = Run("Secure Boot", lambda _line: None).process([TOOL, *arguments])
    return (tail(run.stdout) or "no output") if run.returncode else None


def unsigned(program: bytes) -> bytes:
    """Return a 64-bit program without its signatures and its checksum, which a signer writes; b"" if it is none."""
    header = int.from_bytes(program[PE_OFFSET : PE_OFFSET + 4], "little")
    optional = header + OPTIONAL
    if (
        program[header : header + 4] != b"PE\0\0"
        or int.from_bytes(program[optional : optional + 2], "little") != PE32_PLUS
    ):
        return b""
    entry = optional + CERTIFICATES
    end = int.from_bytes(program[entry : entry + 4], "little") or len(program)
    content = bytearray(program[:end])
    content[optional + CHECKSUM : optional + CHECKSUM + 4] = bytes(4)
    content[entry : entry + 8] = bytes(8)
    return bytes(content) + bytes(-len(content) % ALIGNED_BYTES)


def sections(program: bytes) -> dict[str, bytes]:
    """Return the content of each section of a program that ``unsigned`` accepts, by its name."""
    sections_by_name = {}
    for name, memory_bytes, _address, file_bytes, offset in _section_table(program):
        sections_by_name[name.rstrip(b"\0").decode("latin-1")] = program[
            offset : offset + min(memory_bytes, file_bytes)
        ]
    return sections_by_name


def digest(program: bytes) -> str:
    """Return the hexadecimal sha256 by which firmware verifies and measures a program; signatures do not change it.

    Source: Microsoft's "Windows Authenticode Portable Executable Signature Format", "Calculating the PE Image Hash".
    """
    optional = _word(program, PE_OFFSET) + OPTIONAL
    checksum, entry = optional + CHECKSUM, optional + CERTIFICATES
    end = _word(program, optional + HEADERS_BYTES)
    hashed = hashlib.sha256(program[:checksum] + program[checksum + 4 : entry] + program[entry + 8 : end])
    for _name, _memory, _address, file_bytes, offset in sorted(_section_table(program), key=lambda row: row[4]):
        hashed.update(program[offset : offset + file_bytes])
        end += file_bytes
    hashed.update(program[end : len(program) - _word(program, entry + 4)])
    return hashed.hexdigest()


def _section_table(program: bytes) -> list[tuple[bytes, int, int, int, int]]:
    header = _word(program, PE_OFFSET)
    count, optional_bytes = (
        int.from_bytes(program[header + offset : header + offset + 2], "little")
        for offset in (SECTIONS, OPTIONAL_BYTES)
    )
    begin = header + OPTIONAL + optional_bytes
    return [row for row in SECTION.iter_unpack(program[begin : begin + count * SECTION.size]) if row[3]]


def _word(program: bytes, offset: int) -> int:
    """Return the number of 32 bits at this offset."""
    return int.from_bytes(program[offset : offset + 4], "little")
