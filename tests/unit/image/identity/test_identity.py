# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tests of bundles that need no TPM; tests/identity has the others."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity, tools

SCRIPT = (Path(__file__).parents[4] / "roles" / "node_identity" / "files" / "sailloft-identity").read_text()
EK = (len(identity.EK_TEMPLATE) + 256).to_bytes(2, "big") + identity.EK_TEMPLATE + b"\xa7" * 256
FILE = {"path": "/etc/token", "content": "5ecret", "mode": "0600", "owner": "root", "group": "root"}
BUNDLE = identity.Bundle("bm01", "0" * 64, "1" * 64, b"credential", b"secrets")
SIGNATURE = b"untrusted comment: a\nb\ntrusted comment: c\nd\n"


def of_script(name):
    """Return the first value that the node's script assigns to a shell variable."""
    return "".join(shlex.split(re.search(rf"^{name}=((?:'[^']*')|\S+)", SCRIPT, re.MULTILINE)[1]))


def test_the_script_and_the_library_have_the_same_constants():
    assert of_script("format") == identity.FORMAT
    assert of_script("trusted_comment") == identity.COMMENTS.trusted
    assert of_script("cipher").split() == list(tools.CIPHER)
    assert int(of_script("limit_bytes")) == identity.LARGEST_BUNDLE_BYTES


def test_the_key_of_the_credentials_is_derived_from_a_public_text():
    """The private key is the digest of a text that says so, and the public key belongs to this private key."""
    key = base64.b64decode(of_script("activated_key"))
    private = hashlib.sha256(identity.ACTIVATED_KEY_TEXT).digest()
    public = b"\x04" + identity.ACTIVATED_KEY_X + identity.ACTIVATED_KEY_Y
    # RFC 5915: version 1, the private part, P-256, the public part.
    assert key == (
        bytes.fromhex("30770201010420") + private + bytes.fromhex("a00a06082a8648ce3d030107a144034200") + public
    )
    assert shutil.which("openssl")
    shown = subprocess.run(
        ["openssl", "pkey", "-inform", "DER", "-check", "-noout"], input=key, capture_output=True, check=True
    )
    assert b"Key is valid" in shown.stdout + shown.stderr


def test_the_name_of_the_key_of_the_credentials_is_that_of_its_public_area():
    """TPM 2.0 library, part 2: TPMT_PUBLIC of an ECC key; part 1, "Names": the algorithm and the digest."""
    area = bytes.fromhex("0023 000b 00040440 0000 0010 0010 0003 0010 0020")
    area += identity.ACTIVATED_KEY_X + bytes.fromhex("0020") + identity.ACTIVATED_KEY_Y
    assert identity.activated_name() == "000b" + hashlib.sha256(area).hexdigest()


def test_the_template_is_l_1_of_the_endorsement_key_profile():
    """TCG EK Credential Profile for TPM Family 2.0, B.3.3: RSA 2048 with AES-128-CFB."""
    assert identity.EK_TEMPLATE.hex() == (
        "0001000b000300b20020"
        "837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa"
        "0006008000430010080000000000" + "0100"
    )


def test_an_endorsement_key_is_read():
    assert identity.read_ek(base64.b64encode(EK).decode() + "\n", "node bm01") == EK


@pytest.mark.parametrize(
    "data",
    [
        b"",
        EK[:-1],
        EK + b"\0",
        # An unrestricted key, a key without a policy, and a key that can be copied out of the TPM.
        EK.replace(bytes.fromhex("000300b2"), bytes.fromhex("000200b2"), 1),
        EK.replace(identity.EK_POLICY, bytes(32), 1),
        EK.replace(bytes.fromhex("000300b2"), bytes.fromhex("000300b0"), 1),
    ],
)
def test_data_that_is_not_an_endorsement_key_is_refused(data):
    with raises(ImageError, "node bm01", "RSA 2048", "endorsement key"):
        identity.read_ek(base64.b64encode(data).decode(), "node bm01")


@pytest.mark.parametrize("text", ["@", None, 7, "AAA"])
def test_text_that_is_not_base64_is_refused(text):
    with raises(ImageError, "bm01", "endorsement key", "base64"):
        identity.read_ek(text, "node bm01")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"path": "etc/token"}, "is not an absolute path"),
        ({"path": "/etc/../token"}, "is not an absolute path"),
        ({"path": "/etc/a token"}, "is not an absolute path"),
        ({"path": "/etc/token\n0600"}, "is not an absolute path"),
        ({"path": "/proc/sysrq-trigger"}, "in a file system of the kernel"),
        ({"mode": "4755"}, "is not three octal digits"),
        ({"mode": "384"}, "is not three octal digits"),
        ({"owner": "root root"}, "is not a valid name"),
        ({"group": ""}, "is not a valid name"),
        ({"content": "\ud800"}, "is not UTF-8 text"),
    ],
)
def test_an_invalid_file_is_refused_without_showing_its_content(change, why):
    with pytest.raises(ImageError, match=why) as caught:
        identity.read_secrets([{**FILE, **change}], "node bm01")
    assert str(caught.value).startswith("node bm01: ")
    assert FILE["content"] not in str(caught.value)


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ({}, "/etc/token is given twice"),
        ({"path": "/etc/token/a"}, "/etc/token is both a file and a parent directory of"),
    ],
)
def test_two_files_that_exclude_each_other_are_refused(second, why):
    with pytest.raises(ImageError, match=why):
        identity.read_secrets([FILE, {**FILE, **second}], "node bm01")


def test_a_payload_has_one_line_per_file():
    secrets = identity.read_secrets([FILE, {**FILE, "path": "/a", "content": "", "mode": "640"}], "node bm01")
    assert identity.payload(secrets) == b"0640 root root /a -\n0600 root root /etc/token NWVjcmV0\n"


def test_the_digest_depends_on_all_inputs_of_a_bundle():
    secrets = identity.read_secrets([FILE], "")
    other = EK[:-1] + b"\0"
    digests = {
        identity.digest(key, node, ek, files)
        for key in (b"k" * 32, b"l" * 32)
        for node in ("bm01", "bm02")
        for ek in (EK, other)
        for files in (secrets, ())
    }
    assert len(digests) == 16


@given(st.binary(max_size=99), st.binary(max_size=99))
def test_a_rendered_bundle_is_read_back(credential, secrets):
    bundle = identity.Bundle("bm01", "0" * 64, "1" * 64, credential, secrets)
    text = identity.render(bundle)
    assert identity.parse(text + SIGNATURE, "") == (bundle, text, SIGNATURE)


@pytest.mark.parametrize("at", range(len(identity.render(BUNDLE).split(b"\n")) - 1))
def test_text_that_is_not_a_bundle_is_refused(at):
    lines = identity.render(BUNDLE).split(b"\n")
    lines[at] = b"x" + lines[at]
    for text in (
        b"\n".join(lines) + SIGNATURE,
        identity.render(BUNDLE),
        b"",
        identity.render(BUNDLE) + SIGNATURE + b"x",
    ):
        with raises(ImageError, "bm01", "bundle", "sailloft-identity/2"):
            identity.parse(text, "node bm01")


@pytest.mark.parametrize("changed", [{"node": "bm 01"}, {"ek": "0" * 63}, {"digest": "1" * 63}])
def test_a_bundle_with_an_invalid_name_or_digest_is_refused(changed):
    with raises(ImageError, "bm01", "bundle", "sailloft-identity/2"):
        identity.parse(identity.render(replace(BUNDLE, **changed)) + SIGNATURE, "node bm01")


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_not_accepted_as_a_certificate(data):
    found = identity.certificate_of(data)
    assert found is None or (found[0] == 0x30 and data.startswith(found))
    assert identity.certificate_is_of(data, EK) is False


def der(tag, content):
    """Return a DER element; its length is written in 1, 2 or 3 bytes."""
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    more = size.to_bytes(2 if size > 0xFF else 1, "big")
    return bytes([tag, 0x80 | len(more)]) + more + content


def certificate(version=True, bits=0x03, modulus=EK[-256:], exponent=b"\x01\x00\x01", unused=b"\0"):
    """Return a certificate with the parts that are read: RFC 5280, section 4.1."""
    key = der(0x30, der(0x02, b"\0" + modulus) + der(0x02, exponent))
    fields = [der(0xA0, b"\x02\x01\x02")] if version else []
    fields += [der(0x02, b"\x07"), *[der(0x30, b"x" * size) for size in (3, 130, 2, 300)]]
    fields.append(der(0x30, der(0x30, b"rsa") + der(bits, unused + key)))
    return der(0x30, der(0x30, b"".join(fields)) + b"signature")


@pytest.mark.parametrize("version", [True, False])
def test_a_certificate_of_the_key_is_recognized(version):
    assert identity.certificate_is_of(certificate(version), EK) is True


@pytest.mark.parametrize(
    "changes",
    [{"bits": 0x04}, {"modulus": b"\xa8" * 256}, {"exponent": b"\x03"}, {"unused": b"\x01"}, {"unused": b""}],
)
def test_a_certificate_of_another_key_is_not_recognized(changes):
    assert identity.certificate_is_of(certificate(**changes), EK) is False


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (b"\x30\x01a", b"\x30\x01a"),
        (b"\x30\x01abc", b"\x30\x01a"),
        (b"\x30\x81\x01ab", b"\x30\x81\x01a"),
        (b"\x30\x84\0\0\0\x01a", b"\x30\x84\0\0\0\x01a"),
        (b"\x30\x85\0\0\0\0\x01a", None),
        (b"\x30\x80a", None),
        (b"\x30\x02a", None),
        (b"\x30\x00", None),
        (b"\x31\x01a", None),
        (b"\x30", None),
        (b"", None),
    ],
)
def test_the_certificate_at_the_start_of_stored_data_is_found(stored, found):
    assert identity.certificate_of(stored) == found
