# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find private keys in a layer, which everyone who reaches a boot server can read.

Files of at most MOST_BYTES are read. Keys in archives, compressed files and programs are not seen, and neither are
random bytes without a form (keys of munge or LUKS, a bare key of WireGuard), passwords and tokens.

detect-secrets (PyPI) and gitleaks (not in Debian) would not do: they read text only, and know headers, not keys.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# The largest usual file is a chain of certificates with its key.
MOST_BYTES = 1 << 16
# The first bytes of files that are not searched: gzip, xz, zstd, ELF.
SKIPPED = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x7fELF")
# BER (X.690): the tag of a sequence; then a length in one to four bytes, or none.
SEQUENCE = rb"\x30(?:[\x00-\x80]|\x81.|\x82..|\x83...)"
# The beginning of a PEM file in base64, as in kubeconfig, secrets of Kubernetes and cloud-init, in groups of 3 bytes.
LABELS = (b"", b"RSA ", b"EC ", b"DSA ", b"OPENSSH ", b"ENCRYPTED ", b"PGP ")
HEADERS = [b"-----BEGIN " + label + b"PRIVATE KEY" for label in LABELS]
PEM_IN_BASE64 = b"|".join(re.escape(b64encode(header[: len(header) // 3 * 3])) for header in HEADERS)
# keytab.txt of MIT Kerberos: size of the entry, number of names, size of the realm, realm. Version 1 has the byte order
# of the machine. A negative size is that of a hole.
KEYTAB_ENTRY = rb"(?:\0\0..\0[\x00-\x09]\0[\x01-\x7f]|..\0\0[\x01-\x09]\0[\x01-\x7f]\0)[!-~]{2}"
# What a file looks like, a text that it then contains, and the form of the key there; without a text, the form is that
# of the file's beginning. Programs and documentation have the header of a PEM file without a key after it.
KINDS = tuple(
    (kind, text, re.compile(form, re.DOTALL))
    for kind, text, form in (
        # RFC 7468, RFC 1421 (headers of an encrypted key), PROTOCOL.key of OpenSSH; "\n" is that of JSON.
        (
            "private key in PEM",
            b"PRIVATE KEY-----",
            rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----(?:[\s\"'+]|\\[rn])*"
            rb"(?:[A-Z][\w-]*: [^\n\\]*(?:\s|\\[rn])+)*[A-Za-z0-9+/]{16}",
        ),
        ("private key in PEM, in base64", b"LS0tLS1CRUdJTi", rb"(?:" + PEM_IN_BASE64 + rb")[A-Za-z0-9+/\s]{16}"),
        # RFC 9580, 6.2. The database of shared-mime-info has the header alone.
        (
            "OpenPGP private key",
            b"PGP PRIVATE KEY BLOCK-----",
            rb"-----BEGIN PGP PRIVATE KEY BLOCK-----\s+(?:[A-Z]\w*: [^\n]*\s+)*[A-Za-z0-9+/]{16}",
        ),
        # RFC 9580, 4.2, 5.5.2, 9.1: tag 5 and length in the old and the new form; version, time, algorithm.
        (
            "OpenPGP private key",
            b"",
            rb"(?:\x94.|\x95..|\x96....|\xc5(?:[\x00-\xbf]|[\xc0-\xdf].|\xff....))"
            rb"[\x03-\x06].{4}[\x01-\x03\x10-\x13\x16\x19-\x1c]",
        ),
        # agent/keyformat.txt of GnuPG: the files in private-keys-v1.d.
        (
            "private key of GnuPG's agent",
            b"private-key",
            rb"\A(?:[A-Z][\w-]*: [^\n]*\n)*?(?:Key: ?\((?:protected-)?private-key|\(\d+:(?:protected-)?private-key)",
        ),
        # sshpubk.c of PuTTY: its own form, and that of ssh.com, whose data begins with 0x3f6ff9eb.
        (
            "private key of PuTTY",
            b"PuTTY-User-Key-File-",
            rb"(?:\A|\n)PuTTY-User-Key-File-\d: [^\n]+\nEncryption: ",
        ),
        (
            "private key of ssh.com",
            b"SSH2 ENCRYPTED PRIVATE KEY",
            rb"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\s.*?\nP2/56w",
        ),
        # dropbearkey(1), RFC 4253, 6.6: the public key's blob, which is followed by the private numbers.
        (
            "private key of dropbear",
            b"",
            rb"\0\0\0(?:\x0bssh-ed25519\0\0\0\x40"
            rb"|\x07ssh-rsa\0\0\0(?:\x01.|\x03...)\0\0(?:\0\x81.{129}|\x01\x01.{257}|\x01\x81.{385}|\x02\x01.{513})\0\0"
            rb"|\x13ecdsa-sha2-nistp(?:256\0\0\0\x08nistp256\0\0\0\x41.{65}|384\0\0\0\x08nistp384\0\0\0\x61.{97}"
            rb"|521\0\0\0\x08nistp521\0\0\0\x85.{133})\0\0)",
        ),
        # The first bytes of a secret key: of minisign(1), with and without a password, and of signify(1).
        ("secret key of minisign or signify", b"untrusted comment:", rb"\Auntrusted [^\n]*\nRW(?:RTY0Iy|QAAEIy|RCS)"),
        # age(1)
        ("identity of age", b"AGE-SECRET-KEY-", rb"AGE-SECRET-KEY-(?:PQ-)?1[02-9AC-HJ-NP-Z]{58}"),
        # wg(8) and systemd.netdev(5), nm-settings-keyfile(5), netplan(5)
        ("key of WireGuard", b"Key", rb"(?:Private|Preshared)Key *= *[A-Za-z0-9+/]{43}="),
        ("key of WireGuard", b"-key=", rb"(?:private|preshared)-key=[A-Za-z0-9+/]{43}="),
        ("key of WireGuard", b"tunnels", rb"\b(?:key|private|shared)[\"']?: *[\"']?[A-Za-z0-9+/]{43}="),
        ("key of Tailscale", b"p", rb"privkey:[0-9a-f]{64}|cHJpdmtleTo[A-Za-z0-9+/]{80}"),
        # openvpn(8): genkey
        (
            "secret key of OpenVPN",
            b"-----BEGIN OpenVPN",
            rb"-----BEGIN OpenVPN (?:Static key V1|tls-crypt-v2 (?:client|server) key)-----\s+[A-Za-z0-9+/]{16}",
        ),
        # RFC 7518, 6: private keys of elliptic curves and RSA have "d", symmetric ones "k".
        ("private key in JWK", b'"kty"', rb"\"(?:d\"\s*:\s*\"|k\"\s*:\s*\")[A-Za-z0-9_-]{22,}"),
        # CryptoKey in src/auth/Crypto.h of Ceph: type 1, time, 16 bytes.
        ("key of Ceph", b"AQ", rb"(?<![\w+/])AQ[A-D][A-Za-z0-9+/]{10}[BRhx]AA[A-Za-z0-9+/]{22}=="),
        # named.conf(5)
        ("TSIG key", b"hmac-", rb"algorithm\s+\"?hmac-[a-z0-9-]+\"?;\s*secret\s+\"?[A-Za-z0-9+/]{20}"),
        # dnssec-keygen(8)
        ("private key of DNSSEC", b"Private-key-format:", rb"\APrivate-key-format: v"),
        # RFC 8017 A.1.2 (version 0, a number), RFC 5958 (version 0 or 1, an algorithm), RFC 5915 (version 1, bytes).
        (
            "private key in DER",
            b"",
            SEQUENCE + rb"\x02\x01(?:\x00\x02[\x81\x82]|[\x00\x01]\x30[\x05-\x20]\x06|\x01\x04[\x1c-\x42])",
        ),
        # RFC 5958, 3: the algorithm is one of PKCS#5 or PKCS#12.
        (
            "encrypted private key in DER",
            b"",
            SEQUENCE * 2 + rb"\x06.\x2a\x86\x48\x86\xf7\x0d\x01(?:\x05|\x0c\x01)",
        ),
        # RFC 7292, 4: version 3.
        ("PKCS#12 archive", b"", SEQUENCE + rb"\x02\x01\x03\x30"),
        # JavaKeyStore.java and JceKeyStore.java of OpenJDK: number, version, entries. Those of a certificate alone have
        # the tag 2; a key's have the algorithm of KeyProtector.java.
        (
            "Java keystore with a private key",
            b"",
            rb"(?:\xfe\xed\xfe\xed|\xce\xce\xce\xce)\0\0\0[\x01\x02]"
            rb"(?:.{4}\0\0\0[\x01\x03]|.*\x2b\x06\x01\x04\x01\x2a\x02(?:\x11\x01\x01|\x13\x01))",
        ),
        ("keytab of Kerberos", b"", rb"\x05[\x01\x02](?:\xff.*?)?" + KEYTAB_ENTRY),
    )
)
# The byte order marks of UTF-16.
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def kind_of(data: bytes) -> str | None:
    """Return what the content of a file looks like; None if it is no private key."""
    if data.startswith(SKIPPED):
        return None
    if data.startswith(UTF_16):
        data = data.decode("utf-16", "replace").encode()
    rows = (row for row in KINDS if row[1] in data)
    return next((kind for kind, text, form in rows if (form.search(data) if text else form.match(data))), None)


def kind_of_file(path: str) -> str | None:
    """Return the same of a file, of which at most MOST_BYTES are read. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return kind_of(os.read(descriptor, MOST_BYTES))
    finally:
        os.close(descriptor)


def keys_in(tree: Path) -> dict[str, str]:
    """Return path ("/etc/ssl/private/a.key") -> what it looks like, for the files below ``tree``. Raises OSError."""
    return {path: kind for path, place in _files(os.fspath(tree), "") if (kind := kind_of_file(place))}


def refuse(subject: str, keys: Mapping[str, str], published: Collection[str]) -> None:
    """Raise ImageError for ``keys`` (path -> what it looks like), except those at or below a path of ``published``."""
    secret = [
        f"{path} ({keys[path]})"
        for path in sorted(keys)
        if not any(path == name or path.startswith(f"{name}/") for name in published)
    ]
    if secret:
        raise ImageError(
            f"everyone who reaches a boot server could read {excerpt(secret)}",
            "remove it and deliver it with node_identity, or list it in published_keys if it is no secret",
            subject=subject,
        )


def _files(folder: str, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path in the image, path on this machine) of the regular files that may be keys by their size."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{path}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, name)
            elif entry.is_file(follow_symlinks=False) and 0 < entry.stat(follow_symlinks=False).st_size <= MOST_BYTES:
                yield name, entry.path
