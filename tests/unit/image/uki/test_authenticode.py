# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signatures of programs of UEFI firmware, by the real osslsigncode."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import authenticode

TIME_S = 1700000000
needs_signer = pytest.mark.skipif(not shutil.which("osslsigncode"), reason="no osslsigncode (bindep.txt)")


def program(content: bytes = b"kernel") -> bytes:
    """Return a 64-bit program with one section."""
    header = struct.pack("<2s58xI", b"MZ", 64)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 1, 0, 0, 0, 240, 0x22E)
    optional = struct.pack("<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", 0x20B, 0, 0, 512, 0, 0, 4096, 4096, 1 << 32, 4096, 512,
                           0, 0, 0, 0, 0, 0, 0, 8192, 512, 0, 10, 0, 0, 0, 0, 0, 0, 16)  # fmt: skip
    section = struct.pack("<8sIIIIIIHHI", b".linux", 512, 4096, 512, 512, 0, 0, 0, 0, 0x40000040)
    return (header + coff + optional + bytes(128) + section).ljust(512, b"\0") + content.ljust(512, b"\0")


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    """A directory with the pairs site.key and site.crt, and other.key and other.crt."""
    folder = tmp_path_factory.mktemp("pair")
    for name in ("site", "other"):
        command = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-noenc", "-subj", f"/CN={name}"]
        files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"]
        subprocess.run([*command, *files], check=True, capture_output=True)
    return folder


def signed(pair: Path, name: str = "site", data: bytes = b"") -> bytes:
    given = data or program()
    return authenticode.sign_by_key(given, pair / f"{name}.key", pair / f"{name}.crt", TIME_S)


@needs_signer
def test_the_same_program_and_key_give_the_same_signed_bytes(pair):
    once = signed(pair)
    assert once == signed(pair)
    assert len(once) > len(program())
    assert authenticode.unsigned(once) == authenticode.unsigned(program())


@needs_signer
def test_only_the_same_program_with_a_signature_of_the_site_is_signed(pair):
    certificate = pair / "site.crt"
    once = signed(pair)
    assert authenticode.is_signed(once, program(), certificate)
    assert not authenticode.is_signed(once, program(), pair / "other.crt")
    assert not authenticode.is_signed(program(), program(), certificate)
    assert not authenticode.is_signed(b"", program(), certificate)
    assert not authenticode.is_signed(once, program(b"other"), certificate)
    altered = once.replace(b"kernel", b"kernal")
    assert altered != once
    assert not authenticode.is_signed(altered, program(), certificate)
    assert not authenticode.is_signed(altered, program(b"kernal"), certificate)


@needs_signer
def test_a_key_that_is_not_the_certificates_is_refused(pair):
    with raises(ImageError, f"{pair}/other.key"):
        authenticode.sign_by_key(program(), pair / "other.key", pair / "site.crt", TIME_S)
    with raises(ImageError, f"{pair}/none.key"):
        authenticode.sign_by_key(program(), pair / "none.key", pair / "site.crt", TIME_S)


@needs_signer
def test_a_command_of_the_site_signs_what_it_reads(pair):
    """The command stands for one that reaches a security module."""
    script = "cd $0; cat >in; osslsigncode sign -h sha256 -key site.key -certs site.crt -in in -out out >&2; cat out"
    made = authenticode.sign_by_command(program(), ["sh", "-c", script, str(pair)], pair / "site.crt")
    assert authenticode.is_signed(made, program(), pair / "site.crt")


@needs_signer
@pytest.mark.parametrize("script", ["cat", "echo signed", ":"])
def test_a_command_that_does_not_sign_what_it_reads_is_refused(pair, script):
    with raises(ImageError, "sh", f"{pair}/site.crt"):
        authenticode.sign_by_command(program(), ["sh", "-c", script], pair / "site.crt")


@pytest.mark.parametrize(
    "data", [b"", b"MZ", b"#!ipxe\n" * 40, program()[:70], program().replace(b"\x0b\x02", b"\x0b\x01")]
)
def test_what_is_no_program_of_64_bit_firmware_has_no_content(data):
    assert authenticode.unsigned(data) == b""
