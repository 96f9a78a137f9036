# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cache of built layers: only one build uses it at a time, and entries unused for a month are removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

UNUSED_S = 30 * 86400  # entries that were not used for this time are removed from the cache


@contextlib.contextmanager
def locked(cache: Path, names: str) -> Iterator[None]:
    """Lock the cache for this build. Raises ImageError, which names the other build, if it is locked already."""
    cache.mkdir(parents=True, exist_ok=True)
    handle = os.open(cache / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 1000).decode(errors="replace").strip() or "another process"
            raise ImageError(
                f"{holder} is building in it", "wait until it has finished, or end it", subject=f"cache {cache}"
            ) from None
        os.ftruncate(handle, 0)
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        os.write(handle, f"process {os.getpid()} on {platform.node()} ({names}, since {started})\n".encode())
        yield
    finally:
        os.close(handle)


def remove(folder: Path) -> None:
    """Remove a directory, if it exists."""
    if folder.exists():
        shutil.rmtree(folder)


def sweep(cache: Path) -> None:
    """Remove the cache entries that no build has used for UNUSED_S seconds."""
    oldest = time.time() - UNUSED_S
    for pattern in ("layers/*", "apt/*", "dnf/*", "first-stages/*", "logs/*", "boot-tools/*", "ukis/*", "oci/*"):
        for path in cache.glob(pattern):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
