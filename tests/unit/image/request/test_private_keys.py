# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Private keys that the tools themselves make are seen in a layer; public parts, programs and documentation are not."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import private_keys


def made(command: str, folder: Path) -> bytes:
    """Return the file "key" in ``folder``, which the command of a shell has written."""
    subprocess.run(["sh", "-euc", command], cwd=folder, check=True, capture_output=True)
    return (folder / "key").read_bytes()


EC = "openssl ecparam -name prime256v1 -genkey -noout -out ec"
ED = "openssl genpkey -algorithm ed25519 -out ed"
RSA = "openssl genrsa -traditional -out rsa 1024"
PFX = f"{ED}; openssl req -x509 -key ed -subj /CN=x -out crt; openssl pkcs12 -export -passout pass:x -inkey ed -in crt"
DER = "-outform DER -out key"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (f"{RSA}; cp rsa key", "private key in PEM"),
        (f"{RSA}; openssl rsa -traditional -in rsa -aes128 -passout pass:x -out key", "private key in PEM"),
        (f"{RSA}; openssl pkcs8 -topk8 -in rsa -passout pass:x -out key", "private key in PEM"),
        (f"{EC}; cp ec key", "private key in PEM"),
        (f"{ED}; (printf 'cert = |\\n'; sed 's/^/    /' ed) > key", "private key in PEM"),
        (f"{ED}; sed 's/$/\\r/' ed > key", "private key in PEM"),
        ("ssh-keygen -q -t ed25519 -N '' -f key", "private key in PEM"),
        ("ssh-keygen -q -t rsa -b 2048 -N password -f key", "private key in PEM"),
        (f"{RSA}; openssl rsa -traditional -in rsa {DER}", "private key in DER"),
        (f"{RSA}; openssl pkcs8 -topk8 -nocrypt -in rsa {DER}", "private key in DER"),
        (f"{ED}; openssl pkcs8 -topk8 -nocrypt -in ed {DER}", "private key in DER"),
        (f"{EC}; openssl pkey -traditional -in ec {DER}", "private key in DER"),
        (f"{ED}; openssl pkcs8 -topk8 -in ed -passout pass:x {DER}", "encrypted private key in DER"),
        (
            f"{RSA}; openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in rsa -passout pass:x {DER}",
            "encrypted private key in DER",
        ),
        (f"{PFX} -out key", "PKCS#12 archive"),
        ("minisign -G -W -p public -s key", "secret key of minisign or signify"),
    ],
)
def test_a_key_that_a_tool_made_is_seen(tmp_path, command, kind):
    assert private_keys.kind_of(made(command, tmp_path)) == kind


RANDOM = hashlib.sha256(b"0").digest()
KEY = base64.b64encode(RANDOM)
JWK_KEY = base64.urlsafe_b64encode(RANDOM)[:-1]
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n"
ECDSA = b"\0\0\0\x13ecdsa-sha2-nistp256\0\0\0\x08nistp256\0\0\0\x41" + bytes(65)
# An entry with a certificate, and the algorithm of sun.security.provider.KeyProtector.
TRUSTED = b"\0\0\0\2\0\1b" + bytes(8) + b"\0\5X.509\0\0\0\2\x30\0"
KEY_PROTECTOR = b"\x2b\x06\x01\x04\x01\x2a\x02\x11\x01\x01"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        # As GnuPG 2.2 and 2.4, age 1.1.1, puttygen 0.78, wg 1.0 and ktutil 1.20 write them, with other numbers.
        (b"Created: 20261127T042117\nKey: (private-key (ecc (curve Ed25519)(flags eddsa)(q\n", "of GnuPG's agent"),
        (b"(21:protected-private-key(3:ecc(5:curve7:Ed25519)", "of GnuPG's agent"),
        (b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlFgEZ0ajxBYJKwYBBAHaRw8BAQdA\n", "OpenPGP"),
        (b"# created: 2026-11-27\nAGE-SECRET-KEY-1" + b"Q" * 58 + b"\n", "age"),
        (b"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n", "PuTTY"),
        (b"[Interface]\nPrivateKey = " + base64.b64encode(b"w" * 32), "WireGuard"),
        (b"[wireguard]\nprivate-key=" + base64.b64encode(b"w" * 32), "WireGuard"),
        (b"\x05\x02\0\0\0\x4b\0\x02\0\x0bEXAMPLE.ORG\0\x04host\0\x03a.b\0\0\0\x01", "Kerberos"),
        (b"Private-key-format: v1.3\nAlgorithm: 13 (ECDSAP256SHA256)\n", "DNSSEC"),
        # As GnuPG 2.2, dropbear 2022.83 and OpenJDK 17 write them; the others by their documentation.
        (b"\x94\x58\x04\x67\x46\xa3\xc4\x16\x09\x2b", "OpenPGP"),
        (b"\xc5\x58\x04\x67\x46\xa3\xc4\x16\x09\x2b", "OpenPGP"),
        (b"\0\0\0\x0bssh-ed25519\0\0\0\x40" + bytes(64), "dropbear"),
        (b"\0\0\0\x07ssh-rsa\0\0\0\x03\1\0\1\0\0\1\1\0" + RANDOM * 8 + b"\0\0\1\0", "dropbear"),
        (ECDSA + b"\0\0\0\x20" + RANDOM, "dropbear"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\1\0\1a", "Java"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\2" + TRUSTED + b"\x30\x0e\x06\x0a" + KEY_PROTECTOR, "Java"),
        (b"\xce\xce\xce\xce\0\0\0\2\0\0\0\1\0\0\0\3\0\1a", "Java"),
        (b"\x05\x02\xff\xff\xff\xc4" + bytes(60) + b"\0\0\0\x4b\0\x02\0\x0bexample.org\0\x04host", "Kerberos"),
        (b"\x05\x01\x4b\0\0\0\x03\0\x0b\0EXAMPLE.ORG\x04\0host", "Kerberos"),
        (b"\x30\x80\x02\x01\x03\x30\x80\x06\x09", "PKCS#12"),
        (b"tunnels:\n  wg0:\n    mode: wireguard\n    key: " + KEY + b"\n", "WireGuard"),
        (b'tunnels: {wg0: {mode: wireguard, keys: {private: "' + KEY + b'"}}}', "WireGuard"),
        (b"[wireguard-peer.x]\npreshared-key=" + KEY, "WireGuard"),
        (b"AGE-SECRET-KEY-PQ-1" + b"Q" * 58, "age"),
        (b"# mine\nPuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n", "PuTTY"),
        (b'---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: "x"\nP2/56wAAAi4AAAA3\n', "ssh.com"),
        (b"-----BEGIN OpenVPN Static key V1-----\n8f7a55314e9df74a763ffb294c422c3c\n", "OpenVPN"),
        (b"[client.admin]\n\tkey = AQCj2YpRiAe6CxAA7/ETt7Hcl9IyxyMABk5F6A==\n", "Ceph"),
        (b'key "k" {\n algorithm hmac-sha256;\n secret "' + KEY + b'";\n};', "TSIG"),
        (b"privkey:" + RANDOM.hex().encode(), "Tailscale"),
        (b'{"x": "' + base64.b64encode(b"privkey:" + RANDOM.hex().encode()) + b'"}', "Tailscale"),
        (b'{"kty": "OKP", "crv": "Ed25519", "x": "QGRg", "d": "' + JWK_KEY + b'"}', "JWK"),
        (b'{"kty":"oct","k":"' + JWK_KEY + b'"}', "JWK"),
        (f"\ufeff{PEM}".encode("utf-16-le"), "PEM"),
        (PEM.replace("\n", '\\n"\n "').encode(), "PEM"),
        *(
            (b"  tls.key: " + base64.b64encode(f"-----BEGIN {label}PRIVATE KEY-----\nMIIEvQIBADANBg\n".encode()), "PEM")
            for label in ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ")
        ),
        (json.dumps({"private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n"}).encode(), "PEM"),
    ],
)
def test_a_key_in_another_form_is_seen(content, kind):
    assert kind in private_keys.kind_of(content)


@pytest.mark.parametrize(
    "command",
    [
        f"{ED}; openssl pkey -in ed -pubout -out key",
        f"{RSA}; openssl rsa -in rsa -pubout {DER}",
        f"{RSA}; openssl req -x509 -key rsa -subj /CN=x {DER}",
        f"{ED}; openssl req -x509 -key ed -subj /CN=x -out key",
        "ssh-keygen -q -t ed25519 -N '' -f pair; cp pair.pub key",
        "minisign -G -W -p key -s secret",
    ],
)
def test_a_public_part_is_no_private_key(tmp_path, command):
    assert private_keys.kind_of(made(command, tmp_path)) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'HEADER = "-----BEGIN PRIVATE KEY-----"\n',
        b"-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----\n",
        b"50:-----BEGIN PGP PRIVATE KEY BLOCK-----\n\0\0[50:application/x-magic]",
        b"[Interface]\nPrivateKey = <your key>\n",
        b"untrusted comment: signature\nRUSksgiUwufeAXPY3iudmjfyCp9NYwOWfUEmKnGrrhQ\n",
        b"\x98\x33\x04\x67\x46\xa3\xc4\x16\x09\x2b",
        b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + RANDOM,
        b"\0\0\0\x07ssh-rsa\0\0\0\x03\1\0\1\0\0\1\1\0" + RANDOM * 8,
        ECDSA,
        b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1" + TRUSTED,
        b"tunnels: {wg0: {mode: wireguard, peers: [{keys: {public: " + KEY + b"}}]}}",
        b"[Peer]\nPublicKey = " + KEY,
        b'{"kty": "OKP", "crv": "Ed25519", "x": "' + JWK_KEY + b'"}',
        b"certificate-authority-data: " + base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIBdzCCAR2gAwIBAgIBADAK\n"),
        b'key "<name>" {\n algorithm hmac-sha256;\n secret "<secret>";\n};',
        b"\x7fELF\0-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n",
    ],
)
def test_a_text_about_keys_is_no_private_key(content):
    assert private_keys.kind_of(content) is None


def test_each_file_of_a_tree_is_read_but_no_link_and_no_large_file(tmp_path):
    key = b"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n"
    (tmp_path / "tree/etc/x").mkdir(parents=True)
    (tmp_path / "tree/etc/x/a.ppk").write_bytes(key)
    (tmp_path / "tree/etc/large").write_bytes(key.ljust(private_keys.MOST_BYTES + 1))
    (tmp_path / "tree/etc/text").write_text("text")
    (tmp_path / "outside").write_bytes(key)
    (tmp_path / "tree/link").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "tree/fifo")
    assert private_keys.keys_in(tmp_path / "tree") == {"/etc/x/a.ppk": "private key of PuTTY"}


def test_keys_are_refused_except_those_at_or_below_a_published_path():
    keys = {
        "/opt/test/a.pem": "private key in PEM",
        "/opt/tests.pem": "private key in PEM",
        "/a.p12": "PKCS#12 archive",
    }
    with pytest.raises(ImageError) as caught:
        private_keys.refuse("layer site", keys, ["/opt/test", "/a.p12"])
    assert caught.value.subject == "layer site"
    assert "/opt/tests.pem (private key in PEM)" in caught.value.cause
    assert "/opt/test/" not in caught.value.cause
    assert "/a.p12" not in caught.value.cause
    assert "published_keys" in caught.value.remedy
    private_keys.refuse("layer site", keys, ["/opt", "/a.p12"])
