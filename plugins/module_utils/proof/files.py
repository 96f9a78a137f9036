# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read and write the files of a proof or a plan. A file is written completely or not at all."""

from __future__ import annotations

import os

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import ProofError


def read(path: str) -> str | None:
    """Return the text at ``path``, None if there is no file. Raises ProofError if the system refuses."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _refused("read", path, error) from error


def write(path: str, text: str, private: bool = False) -> None:
    """Write ``text`` to ``path`` as ``write_bytes``; one that cannot be encoded is refused, too."""
    try:
        content = text.encode("utf-8")
    except ValueError as error:
        raise _refused("write", path, error) from error
    write_bytes(path, content, private)


def write_bytes(path: str, content: bytes, private: bool = False) -> None:
    """Write ``content`` to ``path`` atomically: a reader sees the old file or the new one, never a part.

    A missing directory is created. ``private``: only the owner has access to the file and to a directory that is
    created. Raises ProofError if the system refuses.
    """
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700 if private else 0o777, exist_ok=True)
        if private:
            disk.write_atomic(path, content, disk.private)
        else:
            disk.write_atomic(path, content, lambda _handle: None, mode=0o666)
    except (OSError, ValueError) as error:
        raise _refused("write", path, error) from error


def touch(path: str) -> None:
    """Set the time of a file to now. Raises ProofError if the system refuses."""
    try:
        os.utime(path)
    except OSError as error:
        raise _refused("write", path, error) from error


def _refused(verb: str, path: str, error: OSError | ValueError) -> ProofError:
    """Return the system's refusal, or Python's refusal of a path or text that cannot be encoded (NUL, a surrogate)."""
    if isinstance(error, OSError):
        return ProofError(f"cannot {verb} {path}: {error.strerror}; give a directory that you own")
    return ProofError(f"cannot {verb} {path!r}: {error}; leave that character out")
