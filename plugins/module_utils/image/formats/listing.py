# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The listing of a layer: its contents, path by path."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import sha256_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import file_capabilities

KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "fifo",
}


def is_whiteout(status: os.stat_result) -> bool:
    """Return whether the entry marks a file that the layer removes (overlayfs: a character device 0:0)."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def listing(tree: Path) -> dict[str, dict[str, Any]]:
    """Return path ("/etc/passwd") -> its properties, except times, for everything below ``tree``."""
    listed: dict[str, dict[str, Any]] = {}

    def walk(folder: str, path: str) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{path}/{entry.name}"
                status = entry.stat(follow_symlinks=False)
                listed[name] = properties(entry.path, status)
                if stat.S_ISDIR(status.st_mode):
                    walk(entry.path, name)

    walk(os.fspath(tree), "")
    return listed


def properties(path: str, status: os.stat_result) -> dict[str, Any]:
    """Return the properties of one path, except times."""
    if is_whiteout(status):
        return {"type": "whiteout"}
    entry: dict[str, Any] = {
        "type": KINDS[stat.S_IFMT(status.st_mode)],
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "owner": status.st_uid,
        "group": status.st_gid,
    }
    if entry["type"] == "file":
        entry["size_bytes"] = status.st_size
        entry["sha256"] = sha256_of(path)
        capabilities = file_capabilities.read(path)
        if capabilities:
            entry["capabilities"] = capabilities
    elif entry["type"] == "link":
        entry["target"] = os.readlink(path)
    return entry
