# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signatures by minisign, which has a small verifier for the first stage, a key of one line and no key ring."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import (
    fd_content,
    fd_path,
    unnamed_files,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import require, search_path

# A public key has 42 bytes: algorithm, key number, Ed25519 key. A secret key is longer; it must not get into images.
PUBLIC_KEY = re.compile(r"RW[A-Za-z0-9+/]{54}")
# This comment is signed too; minisign's own default contains the time and would give different bytes each time.
TRUSTED_COMMENT = "sailloft image manifest"
COMMAND_S = 300
UNTRUSTED_COMMENT = "signature of a sailloft image manifest"
# What minisign prints before the reason of a failure.
PROMPTS = (
    r"Key encryption for \[.*?\] is going to be removed\.|Password:"
    r"|Deriving a key from the password and decrypting the secret key\.\.\.|\bdone\b"
)


def read_public_key(path: Path) -> str:
    """Return the key itself: the second line of the file that ``minisign -G`` wrote. Raises ImageError."""
    try:
        lines = path.read_text(errors="replace").split("\n")
    except OSError as error:
        raise ImageError(
            error.strerror or str(error),
            "make a key pair with minisign -G, or correct the path",
            subject=f"public key {path}",
        ) from error
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("untrusted comment:")]
    if len(keys) != 1 or not PUBLIC_KEY.fullmatch(keys[0]):
        raise ImageError(
            "is not a minisign public key", "give what minisign -G wrote to its -p file", subject=f"public key {path}"
        )
    return keys[0]


def sign(data: bytes, secret_key: Path, public_key: str, password: str | None) -> bytes:
    """Return the signature of a manifest, as ``signatures`` makes it."""
    return signatures([data], secret_key, public_key, password, (TRUSTED_COMMENT, UNTRUSTED_COMMENT))[0]


def sign_by_command(data: bytes, command: Sequence[str], public_key: str) -> bytes:
    """Return the signature that a command of the site prints for its standard input. Raises ImageError."""
    signature = printed_by(command, data)
    remedy = "have it print what minisign -S writes, with the key of the public key's pair"
    _verify(data, signature, public_key, f"signing command {command[0]}", remedy)
    return signature


def printed_by(command: Sequence[str], data: bytes) -> bytes:
    """Return what a command of the site that signs prints for ``data`` on its standard input. Raises ImageError.

    So the key can be in another machine: a security module, a vault.
    """
    subject, remedy = f"signing command {command[0]}", "run it on the build host, and see what it says"
    try:
        process = subprocess.run(command, input=data, capture_output=True, check=False, timeout=COMMAND_S)
    except OSError as error:
        raise ImageError(error.strerror or str(error), "correct its path", subject=subject) from error
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"printed no signature in {COMMAND_S} s", remedy, subject=subject) from error
    if process.returncode:
        output = " ".join(process.stderr.decode(errors="replace").split()) or "it gave no reason"
        raise ImageError(f"ended with status {process.returncode}: {output[:600]}", remedy, subject=subject)
    return process.stdout


def signatures(
    messages: Sequence[bytes], secret_key: Path, public_key: str, password: str | None, comments: tuple[str, str]
) -> list[bytes]:
    """Return minisign's signature of each message: the same message and key give the same bytes.

    ``password`` is the secret key's, None for a key without one; ``comments`` are the trusted and the untrusted one.
    The first signature is verified with ``public_key``. Raises ImageError.
    """
    require("minisign")
    subject = f"signing key {secret_key}"
    remedy = "check the file and its password"
    trusted, untrusted = comments
    results: list[bytes] = []
    try:
        stored = secret_key.read_bytes()
    except OSError as error:
        raise ImageError(error.strerror or str(error), remedy, subject=subject) from error
    # All in memory, because a message and its signature may be secret.
    with unnamed_files(stored) as (key,):
        if password is not None:
            # To decrypt the key, minisign takes a second and 1 GiB of memory, so that is done once for all messages.
            _minisign(["-C", "-W", "-s", fd_path(key)], subject, password, remedy, [key])
        for message in messages:
            with unnamed_files(message, b"") as (text, signature):
                command = ["-S", "-s", fd_path(key), "-t", trusted, "-c", untrusted]
                command += ["-m", fd_path(text), "-x", fd_path(signature)]
                _minisign(command, subject, None, remedy, [key, text, signature])
                results.append(fd_content(signature))
    remedy = "check that the public key belongs to the signing key: nodes refuse other signatures"
    _verify(messages[0], results[0], public_key, subject, remedy)
    return results


def verifies(data: bytes, signature: bytes, public_key: str) -> bool:
    """Return whether ``signature`` is a signature of ``data`` by the owner of ``public_key``."""
    require("minisign")
    try:
        _verify(data, signature, public_key, "signature", "")
    except ImageError:
        return False
    return True


def _verify(data: bytes, signature: bytes, public_key: str, subject: str, remedy: str) -> None:
    with unnamed_files(data, signature) as files:
        message, place = map(fd_path, files)
        _minisign(["-V", "-q", "-P", public_key, "-m", message, "-x", place], subject, None, remedy, files)


def _minisign(
    arguments: Sequence[str | os.PathLike[str]], subject: str, password: str | None, remedy: str, files: Sequence[int]
) -> None:
    process = subprocess.run(
        ["minisign", *arguments],
        check=False,
        input="" if password is None else f"{password}\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=files,
        env={"PATH": search_path(), "LC_ALL": "C.UTF-8"},
    )
    if process.returncode:
        output = re.sub(PROMPTS, "", process.stdout)
        output = " ".join(output.split()) or "minisign gave no reason"
        if "get_password" in output:
            output = "it has a password, but none was given"
        raise ImageError(output, remedy, subject=subject)
