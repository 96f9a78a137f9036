# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage's programs and the shared libraries that they need, from a tree of unpacked packages."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import file_inside
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import cpio, elf

# Program, its path in the first stage, its Debian package.
PROGRAMS = (
    ("busybox", "bin/busybox", "busybox-static"),
    ("minisign", "bin/minisign", "minisign"),
    ("dmsetup", "sbin/dmsetup", "dmsetup"),
)
# The server of the debug shell, and the public keys that open it: from the image's own tree, where a layer has both.
DEBUG_PROGRAMS = (("dropbear", "sbin/dropbear", "dropbear-bin"),)
DEBUG_KEYS = "etc/sailloft/debug_keys"
PACKAGES = tuple(package for _name, _place, package in PROGRAMS)
PROGRAM_FOLDERS = ("bin", "usr/bin", "sbin", "usr/sbin")
# The default directories of the dynamic loader: Debian's, which name the architecture, and the common ones.
LIBRARY_FOLDERS = tuple(
    f"{top}{folder}"
    for folder in ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib")
    for top in ("", "usr/")
)


def debug_entries(root: Path) -> list[cpio.Entry]:
    """Return DEBUG_KEYS and DEBUG_PROGRAMS of the image's tree; nothing if it has no keys. Raises ImageError."""
    keys = file_inside(root, DEBUG_KEYS)
    return [cpio.file(DEBUG_KEYS, keys.read_bytes()), *entries(root, DEBUG_PROGRAMS)] if keys else []


def entries(tree: Path, programs: tuple[tuple[str, str, str], ...] = PROGRAMS) -> list[cpio.Entry]:
    """Return the programs, their loader and libraries. Raises ImageError if the tree lacks one."""
    entry_by_place: dict[str, cpio.Entry] = {}
    wanted: list[str] = []
    for program, place, package in programs:
        path = _first(tree, PROGRAM_FOLDERS, program)
        if path is None:
            raise ImageError(
                f"has no {program}", f"unpack Debian's package {package} there", subject=f"first stage {tree}"
            )
        wanted += _add(entry_by_place, place, path)
    while wanted:
        need = wanted.pop()
        place = need.lstrip("/")
        if need.startswith("/"):
            # Since Debian 13 and Ubuntu 24.04, packages have it in /usr; /lib64 is a link in an installed system only.
            path = file_inside(tree, place) or file_inside(tree, f"usr/{place}")
        else:
            path = None
            folder = next((folder for folder in LIBRARY_FOLDERS if file_inside(tree, f"{folder}/{need}")), None)
            if folder:
                place = f"{folder}/{need}"
                path = file_inside(tree, place)
        if path is None:
            raise ImageError(
                f"has no {need}, which its programs need",
                "unpack the package that has it there",
                subject=f"first stage {tree}",
            )
        if place not in entry_by_place:
            wanted += _add(entry_by_place, place, path)
    return list(entry_by_place.values())


def digest(tree: Path) -> str:
    """Return the sha256 of all ``entries``. Raises ImageError."""
    return hashlib.sha256(cpio.archive(entries(tree), 0)).hexdigest()


def _add(entry_by_place: dict[str, cpio.Entry], place: str, path: Path) -> list[str]:
    """Add the file to ``entry_by_place``; return the loader and the libraries that it needs."""
    data = path.read_bytes()
    try:
        needs = elf.needs(data)
    except ValueError as error:
        raise ImageError(
            str(error), "unpack packages of the image's architecture", subject=f"first stage {path}"
        ) from error
    entry_by_place[place] = cpio.file(place, data, executable=True)
    return [*([needs.loader] if needs.loader else []), *needs.libraries]


def _first(tree: Path, folders: tuple[str, ...], name: str) -> Path | None:
    files = (file_inside(tree, f"{folder}/{name}") for folder in folders)
    return next((path for path in files if path), None)
