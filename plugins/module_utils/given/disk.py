# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make changes of files survive a power loss."""

from __future__ import annotations

import os


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Wait until the directory's entries are on the disk, so that a rename survives a power loss. Raises OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
