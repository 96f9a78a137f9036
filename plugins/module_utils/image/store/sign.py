# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signatures by minisign, which has a small verifier for the first stage, a key of one line and no key ring."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import require, search_path

# A public key has 42 bytes: algorithm, key number, Ed25519 key. A secret key is longer; it must not get into images.
PUBLIC_KEY = re.compile(r"RW[A-Za-z0-9+/]{54}")
# This comment is signed too; minisign's own default contains the time and would give different bytes each time.
TRUSTED_COMMENT = "sailloft image manifest"
UNTRUSTED_COMMENT = "signature of a sailloft image manifest"
MEMORY = "/dev/shm"


def read_public_key(path: Path) -> str:
    """Return the key itself: the second line of the file that ``minisign -G`` wrote. Raises ImageError."""
    try:
        lines = path.read_text(errors="replace").split("\n")
    except OSError as error:
        raise ImageError(
            f"public key {path}", error.strerror or str(error), "make a key pair with minisign -G, or correct the path"
        ) from error
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("untrusted comment:")]
    if len(keys) != 1 or not PUBLIC_KEY.fullmatch(keys[0]):
        raise ImageError(
            f"public key {path}", "is not a minisign public key", "give what minisign -G wrote to its -p file"
        )
    return keys[0]


def sign(data: bytes, secret_key: Path, public_key: str, password: str | None) -> bytes:
    """Return the signature of a manifest, as ``signatures`` makes it."""
    return signatures([data], secret_key, public_key, password, (TRUSTED_COMMENT, UNTRUSTED_COMMENT))[0]


def signatures(
    messages: Sequence[bytes], secret_key: Path, public_key: str, password: str | None, comments: tuple[str, str]
) -> list[bytes]:
    """Return minisign's signature of each message, made by one call: the same message and key give the same bytes.

    ``password`` is the secret key's, None for a key without one; ``comments`` are the trusted and the untrusted one.
    The first signature is verified with ``public_key``. Raises ImageError.
    """
    require("minisign")
    subject = f"signing key {secret_key}"
    # In memory, because a message and its signature may be secret.
    with tempfile.TemporaryDirectory(prefix="sailloft-", dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        places = [Path(folder, str(at)) for at in range(len(messages))]
        for place, message in zip(places, messages):
            place.write_bytes(message)
        trusted, untrusted = comments
        _minisign(
            ["-S", "-s", secret_key, "-t", trusted, "-c", untrusted, "-m", *places],
            subject,
            password,
            "check the file and its password",
        )
        made = [place.with_name(f"{place.name}.minisig") for place in places]
        _minisign(
            ["-V", "-q", "-P", public_key, "-m", places[0], "-x", made[0]],
            subject,
            None,
            "check that the public key belongs to the signing key: nodes refuse other signatures",
        )
        return [place.read_bytes() for place in made]


def verifies(data: bytes, signature: bytes, public_key: str) -> bool:
    """Return whether ``signature`` is a signature of ``data`` by the owner of ``public_key``."""
    require("minisign")
    with tempfile.TemporaryDirectory() as folder:
        message, place = Path(folder, "manifest.json"), Path(folder, "manifest.json.minisig")
        message.write_bytes(data)
        place.write_bytes(signature)
        try:
            _minisign(["-V", "-q", "-P", public_key, "-m", message, "-x", place], "signature", None, "")
        except ImageError:
            return False
    return True


def _minisign(arguments: list[str | os.PathLike[str]], subject: str, password: str | None, remedy: str) -> None:
    done = subprocess.run(
        ["minisign", *arguments],
        check=False,
        input="" if password is None else f"{password}\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={"PATH": search_path(), "LC_ALL": "C.UTF-8"},
    )
    if done.returncode:
        output = re.sub(
            r"Password:|Deriving a key from the password and decrypting the secret key\.\.\.|\bdone\b", "", done.stdout
        )
        output = " ".join(output.split()) or "minisign gave no reason"
        if "get_password" in output:
            output = "it has a password, but none was given"
        raise ImageError(subject, output, remedy)
