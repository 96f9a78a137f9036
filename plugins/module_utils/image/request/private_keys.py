# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find private keys in a layer, which everyone who reaches a boot server can read.

Files of at most MOST_BYTES are read. Keys in archives, compressed files and programs are not seen, and neither are
random bytes without a form (keys of munge or LUKS), passwords and tokens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.given.texts import some
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# The largest usual file is a chain of certificates with its key.
MOST_BYTES = 1 << 16
# The first bytes of files that are not searched: gzip, xz, zstd, ELF.
SKIPPED = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x7fELF")
# DER (X.690): the tag of a sequence and a length in one to three bytes.
SEQUENCE = rb"\x30(?:[\x00-\x7f]|\x81.|\x82..)"
# What a file looks like, a text that it then contains, and the form of the key there. Programs and documentation have
# the header of a PEM file without a key after it.
KINDS = tuple(
    (kind, text, re.compile(form, re.DOTALL))
    for kind, text, form in (
        # RFC 7468, RFC 1421 (headers of an encrypted key), PROTOCOL.key of OpenSSH; "\n" is that of JSON.
        (
            "private key in PEM",
            b"PRIVATE KEY-----",
            rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----(?:\s|\\[rn])*"
            rb"(?:[A-Z][\w-]*: [^\n\\]*(?:\s|\\[rn])+)*[A-Za-z0-9+/]{16}",
        ),
        # RFC 9580, 6.2. The database of shared-mime-info has the header alone.
        (
            "OpenPGP private key",
            b"PGP PRIVATE KEY BLOCK-----",
            rb"-----BEGIN PGP PRIVATE KEY BLOCK-----\s+(?:[A-Z]\w*: [^\n]*\s+)*[A-Za-z0-9+/]{16}",
        ),
        # agent/keyformat.txt of GnuPG: the files in private-keys-v1.d.
        (
            "private key of GnuPG's agent",
            b"private-key",
            rb"\A(?:[A-Z][\w-]*: [^\n]*\n)*?(?:Key: ?\((?:protected-)?private-key|\(\d+:(?:protected-)?private-key)",
        ),
        # sshpubk.c of PuTTY
        ("private key of PuTTY", b"PuTTY-User-Key-File-", rb"\APuTTY-User-Key-File-\d: "),
        # The first bytes of a secret key: of minisign(1), with and without a password, and of signify(1).
        ("secret key of minisign or signify", b"untrusted comment:", rb"\Auntrusted [^\n]*\nRW(?:RTY0Iy|QAAEIy|RCS)"),
        # age(1)
        ("identity of age", b"AGE-SECRET-KEY-", rb"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
        # wg(8), systemd.netdev(5), and nm-settings-keyfile(5)
        ("private key of WireGuard", b"PrivateKey", rb"PrivateKey *= *[A-Za-z0-9+/]{43}="),
        ("private key of WireGuard", b"private-key=", rb"private-key=[A-Za-z0-9+/]{43}="),
        # kubeconfig: a PEM file in base64.
        ("private key of Kubernetes", b"client-key-data", rb"client-key-data\"?: *\"?LS0tLS1CRUdJTi"),
        # dnssec-keygen(8)
        ("private key of DNSSEC", b"Private-key-format:", rb"\APrivate-key-format: v"),
        # RFC 8017 A.1.2 (version 0, a number), RFC 5958 (version 0 or 1, an algorithm), RFC 5915 (version 1, bytes).
        (
            "private key in DER",
            b"",
            rb"\A" + SEQUENCE + rb"\x02\x01(?:\x00\x02[\x81\x82]|[\x00\x01]\x30[\x05-\x20]\x06|\x01\x04[\x1c-\x42])",
        ),
        # RFC 5958, 3: the algorithm is one of PKCS#5 or PKCS#12.
        (
            "encrypted private key in DER",
            b"",
            rb"\A" + SEQUENCE * 2 + rb"\x06.\x2a\x86\x48\x86\xf7\x0d\x01(?:\x05|\x0c\x01)",
        ),
        # RFC 7292, 4: version 3.
        ("PKCS#12 archive", b"", rb"\A" + SEQUENCE + rb"\x02\x01\x03\x30"),
        # keytab.txt of MIT Kerberos: version, size of the entry, number of names, size of the realm, realm.
        ("keytab of Kerberos", b"", rb"\A\x05\x02\x00\x00..\x00[\x01-\x08]\x00.[A-Z0-9.-]{2}"),
    )
)


def kind_of(data: bytes) -> str | None:
    """Return what the content of a file looks like; None if it is no private key."""
    if data.startswith(SKIPPED):
        return None
    return next((kind for kind, text, form in KINDS if text in data and form.search(data)), None)


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
            subject,
            f"everyone who reaches a boot server could read {some(secret)}",
            "remove it and deliver it with node_identity, or list it in published_keys if it is no secret",
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
