# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read and write the files of a proof or a plan. A file is written completely or not at all."""

from __future__ import annotations

import contextlib
import os

from ansible_collections.sailloft.fleet.plugins.module_utils.given.disk import sync_directory
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
    """Write ``text`` to ``path`` atomically: a reader sees the old file or the new one, never a part.

    A missing directory is created. ``private``: only the owner has access to the file and to a directory that is
    created. Raises ProofError if the system refuses.
    """
    folder, name = os.path.split(os.path.abspath(path))
    # The name is always the same, so that the next run replaces what a killed run left behind.
    temporary = os.path.join(folder, f".{name}.new")
    try:
        content = text.encode("utf-8")
        os.makedirs(folder, mode=0o700 if private else 0o777, exist_ok=True)
    except (OSError, ValueError) as error:
        raise _refused("write", path, error) from error
    try:
        with open(temporary, "wb", opener=_private if private else None) as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        sync_directory(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise _refused("write", path, error) from error


def _refused(verb: str, path: str, error: OSError | ValueError) -> ProofError:
    """Return the system's refusal, or Python's refusal of a path or text that cannot be encoded (NUL, a surrogate)."""
    if isinstance(error, OSError):
        return ProofError(f"cannot {verb} {path}: {error.strerror}; give a directory that you own")
    return ProofError(f"cannot {verb} {path!r}: {error}; leave that character out")


def _private(path: str, flags: int) -> int:
    handle = os.open(path, flags, 0o600)
    os.fchmod(handle, 0o600)  # a file that a killed run left may have another mode
    return handle
