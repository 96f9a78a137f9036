# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import base64
import hashlib

import pytest
from gpu_nodes import FINGERPRINT, KEY
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import openpgp


def test_the_fingerprint_is_the_one_that_gpg_shows():
    assert openpgp.fingerprints(KEY) == [FINGERPRINT]
    assert openpgp.fingerprints(f"said before\n{KEY}\n{KEY}") == [FINGERPRINT, FINGERPRINT]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", Mentions("armored")),
        (KEY.replace("PUBLIC", "PRIVATE"), Mentions("armored")),
        (KEY.replace("=W6oG\n", "").replace("AOuy", "****"), Mentions("armored")),
        (KEY.replace("=W6oG\n", "").replace("mDME", "mP8E"), Mentions("packet")),
    ],
)
def test_an_incomplete_or_invalid_key_is_refused(key, why):
    with pytest.raises(openpgp.KeyFormatError) as error:
        openpgp.fingerprints(key)
    assert str(error.value) == why


def armored(data):
    """Return bytes as an armored key without a checksum."""
    body = base64.b64encode(data).decode()
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{body}\n-----END PGP PUBLIC KEY BLOCK-----\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        # RFC 9580, section 4.2: an old-format packet of length type 3 has no length, and neither has a new-format
        # packet with a first octet of 224 to 254 (partial length).
        (b"\x9b\x00\x00", Mentions("length")),
        (b"\xc6\xe0\x00", Mentions("length")),
        (b"\xc6", Mentions("length")),
        (b"\x98\x05\x04", Mentions("packet")),
        (b"\x98\x01\x03", Mentions("4", "version")),
        (b"\x18\x00\x00", Mentions("packet")),
    ],
)
def test_a_damaged_packet_is_refused_with_the_reason(data, why):
    with pytest.raises(openpgp.KeyFormatError) as error:
        openpgp.fingerprints(armored(data))
    assert str(error.value) == why


@pytest.mark.parametrize(
    "head", [b"\x98\xff", b"\x99\x00\xff", b"\x9a\x00\x00\x00\xff", b"\xc6\xc0\x3f", b"\xc6\xff\x00\x00\x00\xff"]
)
def test_every_length_encoding_gives_the_same_fingerprint(head):
    body = b"\x04" + bytes(254)
    wanted = hashlib.sha1(b"\x99\x00\xff" + body).hexdigest().upper()
    assert openpgp.fingerprints(armored(head + body)) == [wanted]


@pytest.mark.parametrize("head", [b"\x98\xbf", b"\xc6\xbf"])
def test_a_short_key_is_read_in_both_packet_formats(head):
    """191 octets are the longest with a one-octet length in the new format; a packet of another kind follows."""
    body = b"\x04" + bytes(190)
    wanted = hashlib.sha1(b"\x99\x00\xbf" + body).hexdigest().upper()
    assert openpgp.fingerprints(armored(head + body + b"\xcd\x03abc")) == [wanted]


@pytest.mark.parametrize(
    "head", [b"\x99\x03\xe8", b"\x9a\x00\x00\x03\xe8", b"\xc6\xc3\x28", b"\xc6\xff\x00\x00\x03\xe8"]
)
def test_the_length_of_a_long_key_is_read_in_every_encoding(head):
    body = b"\x04" + bytes(range(256)) * 4
    body = body[:1000]
    wanted = hashlib.sha1(b"\x99\x03\xe8" + body).hexdigest().upper()
    assert openpgp.fingerprints(armored(head + body + b"\xcd\x01a")) == [wanted]


@pytest.mark.parametrize("first", [0xE0, 0xFE])
def test_a_partial_length_is_refused(first):
    with pytest.raises(openpgp.KeyFormatError, match="length"):
        openpgp.fingerprints(armored(bytes([0xC6, first]) + bytes(300)))


@pytest.mark.parametrize("head", [b"\x94", b"\x9c", b"\xc5", b"\xc7", b"\xce"])
def test_packets_of_other_kinds_have_no_fingerprint(head):
    """Secret keys and subkeys have other tags; the key that follows is the only one that counts."""
    other = head + b"\x02\x04x"
    key = b"\x98\x02\x04y"
    assert openpgp.fingerprints(armored(other + key + other)) == [
        hashlib.sha1(b"\x99\x00\x02\x04y").hexdigest().upper()
    ]


def test_a_packet_may_end_at_the_end_of_the_data_but_not_beyond():
    assert len(openpgp.fingerprints(armored(b"\x98\x01\x04"))) == 1
    with pytest.raises(openpgp.KeyFormatError, match="packet"):
        openpgp.fingerprints(armored(b"\x98\x02\x04"))


def test_headers_and_checksum_of_the_armor_are_ignored():
    block = KEY.replace("BLOCK-----\n\n", "BLOCK-----\nVersion: 2\nComment: a: b\n \t\n", 1)
    assert openpgp.fingerprints(block) == [FINGERPRINT]
    assert openpgp.fingerprints(KEY.replace("\n", "\r\n")) == [FINGERPRINT]
    for checksum in ("", "=W6oH\n"):
        assert openpgp.fingerprints(KEY.replace("=W6oG\n", checksum)) == [FINGERPRINT]


def test_text_that_is_not_base64_is_refused():
    with pytest.raises(openpgp.KeyFormatError, match="base64"):
        openpgp.fingerprints(KEY.replace("mDME", "mDM").replace("=W6oG\n", ""))
    with pytest.raises(openpgp.KeyFormatError, match="base64"):
        openpgp.fingerprints(KEY.replace("mDME", "m=DME"))
