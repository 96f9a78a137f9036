# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signatures by minisign, which has a small verifier for the first stage, a key of one line and no key ring."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import (
    fd_content,
    fd_path,
    unnamed_files,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import require, search_path

# A public key has 42 bytes: algorithm, key number, Ed25519 key. A secret key is longer; it must not get into images.
PUBLIC_KEY = re.compile(r"RW[A-Za-z0-9+/]{54}")
COMMAND_S = 300
# The environment's variable by which a command of the site gets the trusted comment of the signature.
TRUSTED_COMMENT = "TRUSTED_COMMENT"
TRUSTED_LINE = b"trusted comment: "
# What minisign prints before the reason of a failure.
PROMPTS = (
    r"Key encryption for \[.*?\] is going to be removed\.|Password:"
    r"|Deriving a key from the password and decrypting the secret key\.\.\.|\bdone\b"
)


class Comments(NamedTuple):
    """minisign's comments. The trusted one is signed too; minisign's own default would have the time in it."""

    trusted: str
    untrusted: str


MANIFEST = Comments("sailloft image manifest", "signature of a sailloft image manifest")


# The options of modules that sign; the doc fragment signer describes them.
OPTIONS: dict[str, dict[str, Any]] = {
    "signing_key": {"type": "path", "no_log": False},
    "signing_password": {"type": "str", "no_log": True},
    "signing_command": {"type": "list", "elements": "str", "default": []},
    "public_key": {"type": "path", "required": True},
}


@dataclass(frozen=True)
class Signer:
    """The site's signer: minisign's keys in files of this host.

    ``password`` is that of the secret key, None for one without. ``command`` is one of the site that signs instead: it
    prints the signature of its standard input; then there need be no secret key.
    """

    secret_key: str
    public_key: str
    password: str | None = field(default=None, repr=False)
    command: tuple[str, ...] = ()

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Signer:
        """Build an instance from ``OPTIONS``. Raises ImageError if there is neither a key nor a command."""
        key, command = options["signing_key"] or "", tuple(options["signing_command"])
        if not key and not command:
            raise ImageError("neither a key nor a signing_command was given", "give one of them", subject="signing_key")
        return cls(key, options["public_key"], options["signing_password"], command)

    @property
    def key(self) -> str:
        """The public key itself. Raises ImageError."""
        return read_public_key(Path(self.public_key))

    def sign(self, messages: Sequence[bytes], comments: Comments) -> list[bytes]:
        """Return the signature of each message, with these comments unless a command writes its own. Raises ImageError.

        The same message and key file give the same bytes.
        """
        if self.command:
            return [_printed_signature(message, self.command, self.key, comments) for message in messages]
        return signatures(messages, Path(self.secret_key), self.key, self.password, comments)


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


def _printed_signature(data: bytes, command: Sequence[str], public_key: str, comments: Comments) -> bytes:
    signature = printed_by(command, data, {TRUSTED_COMMENT: comments.trusted})
    remedy = "have it print what minisign -S writes, with the key of the public key's pair"
    _verify(data, signature, public_key, f"signing command {command[0]}", remedy)
    return signature


def printed_by(command: Sequence[str], data: bytes, variables: Mapping[str, str] | None = None) -> bytes:
    """Return what a command of the site that signs prints for ``data`` on its standard input. Raises ImageError.

    So the key can be in another machine: a security module, a vault. ``variables`` are added to its environment.
    """
    subject, remedy = f"signing command {command[0]}", "run it on the build host, and see what it says"
    try:
        environment = {**os.environ, **(variables or {})}
        process = subprocess.run(
            command, input=data, capture_output=True, check=False, timeout=COMMAND_S, env=environment
        )
    except OSError as error:
        raise ImageError(error.strerror or str(error), "correct its path", subject=subject) from error
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"printed no signature in {COMMAND_S} s", remedy, subject=subject) from error
    if process.returncode:
        output = " ".join(process.stderr.decode(errors="replace").split()) or "it gave no reason"
        raise ImageError(f"ended with status {process.returncode}: {output[:600]}", remedy, subject=subject)
    return process.stdout


def signatures(
    messages: Sequence[bytes], secret_key: Path, public_key: str, password: str | None, comments: Comments
) -> list[bytes]:
    """Return minisign's signature of each message: the same message and key give the same bytes.

    ``password`` is the secret key's, None for a key without one. The first signature is verified with ``public_key``.
    Raises ImageError.
    """
    require("minisign")
    subject = f"signing key {secret_key}"
    remedy = "check the file and its password"
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
                command = ["-S", "-s", fd_path(key), "-t", comments.trusted, "-c", comments.untrusted]
                command += ["-m", fd_path(text), "-x", fd_path(signature)]
                _minisign(command, subject, None, remedy, [key, text, signature])
                results.append(fd_content(signature))
    remedy = "check that the public key belongs to the signing key: nodes refuse other signatures"
    _verify(messages[0], results[0], public_key, subject, remedy)
    return results


def trusted_comment(signature: bytes) -> str:
    """Return the comment that minisign's signature signs too; empty if there is none."""
    lines = [line for line in signature.split(b"\n") if line.startswith(TRUSTED_LINE)]
    return lines[0][len(TRUSTED_LINE) :].decode(errors="replace") if lines else ""


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
