# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signing keys with a password that minisign opens in an instant: its own take 3 s and 1 GiB at each use."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
import subprocess
from pathlib import Path

# The least work of scrypt that libsodium accepts (pickparams in crypto_pwhash_scryptsalsa208sha256.c), as minisign
# stores it in the key, and the parameters that follow from it.
OPERATIONS, MEMORY_BYTES = 32768, 16 << 20
SCRYPT = {"n": 1024, "r": 8, "p": 1}


def make_guarded_pair(public: Path, secret: Path, password: str) -> None:
    """Write a key pair whose secret key has a password.

    The secret key is minisign's SeckeyStruct: the names of signature, key derivation and checksum (2 bytes each), salt
    (32), operations and memory (8 each), and then, encrypted: number (8), key (64) and checksum (32).
    """
    subprocess.run(["minisign", "-G", "-W", "-p", public, "-s", secret], check=True, capture_output=True)
    comment, encoded = secret.read_text().splitlines()
    plain, salt = base64.b64decode(encoded), os.urandom(32)
    key = plain[54:126] + hashlib.blake2b(plain[:2] + plain[54:126], digest_size=32).digest()
    stream = hashlib.scrypt(password.encode(), salt=salt, dklen=len(key), **SCRYPT)
    work = struct.pack("<QQ", OPERATIONS, MEMORY_BYTES)
    hidden = bytes(left ^ right for left, right in zip(key, stream))
    stored = plain[:2] + b"Sc" + plain[4:6] + salt + work + hidden
    secret.write_text(f"{comment}\n{base64.b64encode(stored).decode()}\n")
