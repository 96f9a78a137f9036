# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cache directory that a user's checkouts share."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """Return the directory in which tests cache files under this name: in SAILLOFT_CACHE, as the Makefile does."""
    home = os.environ.get("XDG_CACHE_HOME") or f"{os.environ['HOME']}/.cache"
    return Path(os.environ.get("SAILLOFT_CACHE") or f"{home}/sailloft") / "tests" / name
