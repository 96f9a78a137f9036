# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cache folder that a user's checkouts share."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """Return the folder in which tests cache files under this name: in SAILLOFT_CACHE, which the Makefile uses, too."""
    home = os.environ.get("XDG_CACHE_HOME") or f"{os.environ['HOME']}/.cache"
    return Path(os.environ.get("SAILLOFT_CACHE") or f"{home}/sailloft") / "tests" / name
