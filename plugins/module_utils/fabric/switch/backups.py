# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Backups of switches on the controller: a directory for each run, with NAME.SYSTEM and SHA256SUMS.

SHA256SUMS has the form of coreutils' sha256sum, and is written last: without it, a backup is incomplete.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files

SUMS = "SHA256SUMS"
SHOWN_RUNS = 5


def write(folder: str, texts: Mapping[str, str]) -> None:
    """Write ``texts``, by file name, to ``folder``, which only its owner can read. Raises ProofError."""
    for name, text in texts.items():
        files.write(os.path.join(folder, name), text, private=True)
    sums = "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in sorted(texts.items()))
    files.write(os.path.join(folder, SUMS), sums, private=True)


def read(folder: str, systems: Mapping[str, str]) -> dict[str, str]:
    """Return the configurations in ``folder`` of the switches in ``systems`` (name -> system) that it has.

    Raises FabricError where ``folder`` is no complete backup, has none of these switches, or has one that is damaged or
    of another system; and ProofError where a file cannot be read.
    """
    sums = _sums(folder)
    if sums is None:
        raise FabricError(f"not a complete backup, because it has no {SUMS}", _remedy(folder), subject=folder)
    texts = {}
    for name, system in systems.items():
        file = f"{name}.{system}"
        if file in sums:
            texts[name] = _checked(os.path.join(folder, file), sums[file])
        other_file = next(
            (name_in_sums for name_in_sums in sums if name_in_sums.rpartition(".")[0] == name and name_in_sums != file),
            None,
        )
        if other_file:
            raise FabricError(
                f"its backup is {other_file}, but its system is {system}",
                "correct roce_switch_system",
                subject=f"switch {name}",
            )
    if not texts:
        raise FabricError(
            f"it has no backup of {excerpt(list(systems))}",
            f"it has {excerpt(sorted(sums))}; {_remedy(folder)}",
            subject=folder,
        )
    return texts


def _checked(path: str, digest: str) -> str:
    try:
        with open(path, "rb") as stream:
            content = stream.read()
    except OSError as error:
        raise FabricError(f"it cannot be read: {error.strerror}", "take another backup", subject=path) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise FabricError(f"damaged: it does not have the sum in {SUMS}", "take another backup", subject=path)
    return content.decode()  # as it was written


def _sums(folder: str) -> dict[str, str] | None:
    """Return the sums of a backup by file name; None where there is no complete backup."""
    text = files.read(os.path.join(folder, SUMS)) if os.path.isdir(folder) else None
    if text is None:
        return None
    return {name: digest for digest, _blanks, name in (line.partition("  ") for line in text.splitlines())}


def _remedy(folder: str) -> str:
    """Return the advice to name one of the backups in ``folder`` or beside it."""
    for directory in (folder, os.path.dirname(folder.rstrip("/"))):
        names = sorted(os.listdir(directory), reverse=True) if os.path.isdir(directory) else []
        runs = {name: _sums(os.path.join(directory, name)) for name in names}
        backups = [f"{name} ({', '.join(sorted(sums))})" for name, sums in runs.items() if sums]
        if backups:
            return f"name a backup of {directory}: {excerpt(backups, SHOWN_RUNS)}"
    return f"{folder} and the directory above it have no backup"
