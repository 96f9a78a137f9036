# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read where files are on this host: whether they exist, and the type of their file system."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.follow import FilePlace

MOUNTS = "/proc/self/mounts"


def observe(paths: Iterable[str]) -> dict[str, FilePlace]:
    """Return the places of files, block devices and links to them."""
    with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as stream:
        mounted = stream.read()
    types = {}
    for line in mounted.splitlines():
        _source, point, kind, *_others = line.split()
        # Of several file systems at one point, the last one is seen. \040 is a blank (fstab(5)).
        types[point.replace("\\040", " ")] = kind
    return {path: FilePlace(path, os.path.exists(path), _type(os.path.realpath(path), types)) for path in paths}


def _type(path: str, types: dict[str, str]) -> str:
    folder = path
    while folder not in types and folder != "/":
        folder = os.path.dirname(folder)
    return types.get(folder, "")
