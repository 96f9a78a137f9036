# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Loaders and libraries of programs, compared with readelf."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import elf

# Programs with and without many libraries, a static one, and a library, which has no loader.
LIBC = next(Path("/lib").glob("*-linux-gnu/libc.so.6"))
LIBM = next(Path("/lib").glob("*-linux-gnu/libm.so.6"))
FILES = [Path("/bin/ls"), Path("/bin/bash"), Path("/usr/bin/busybox"), Path("/usr/bin/readelf").resolve(), LIBC, LIBM]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_loader_and_libraries_are_those_that_readelf_shows(path):
    output = subprocess.run(["readelf", "-ld", "-W", path], capture_output=True, text=True, check=True).stdout
    loader = re.search(r"program interpreter: (\S+)\]", output)
    libraries = tuple(re.findall(r"\(NEEDED\)\s+Shared library: \[(\S+)\]", output))
    assert elf.needs(path.read_bytes()) == elf.Needs(loader[1] if loader else "", libraries)


def test_names_are_read_at_the_file_offset_of_the_segment():
    """A segment's address can differ from its offset in the file, as in large programs."""
    header = b"\x7fELF\x02\x01".ljust(0x20, b"\0") + struct.pack("<Q", 0x40) + bytes(14) + struct.pack("<HH", 56, 2)
    load = struct.pack("<IIQQQQ", elf.PT_LOAD, 4, 0x100, 0x1300, 0x1300, 0x100).ljust(56, b"\0")
    dynamic = struct.pack("<IIQQQQ", elf.PT_DYNAMIC, 4, 0x180, 0x1380, 0x1380, 48).ljust(56, b"\0")
    entries = struct.pack("<qQqQqQ", elf.DT_STRTAB, 0x1300, elf.DT_NEEDED, 1, elf.DT_NULL, 0)
    data = (header.ljust(0x40, b"\0") + load + dynamic).ljust(0x100, b"\0") + b"\0libc.so.6\0"
    data = (data.ljust(0x180, b"\0") + entries).ljust(0x200, b"\0")  # the end of the first segment
    assert elf.needs(data) == elf.needs(data + bytes(99)) == elf.Needs("", ("libc.so.6",))
    with raises(ValueError, "truncated"):
        elf.needs(data[:-1])


def test_a_static_program_needs_no_loader_and_no_libraries():
    assert elf.needs(Path("/usr/bin/busybox").read_bytes()) == elf.Needs("", ())


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x02" + bytes(100)]
)
def test_data_that_is_not_a_64_bit_little_endian_elf_file_is_refused(data):
    """Scripts, 32-bit programs and big-endian programs are refused."""
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
        elf.needs(data)


@pytest.mark.parametrize("length", [6, 0x30, 0x39, 100, 300, 2000, 100000])
def test_a_truncated_file_is_refused(length):
    """A file that ends in its headers, or in the data that they refer to, is not read as one without libraries."""
    data = Path("/bin/ls").read_bytes()
    with raises(ValueError, "truncated"):
        elf.needs(data[:length])
