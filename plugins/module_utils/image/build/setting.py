# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The places and keys of a build, and the result for one image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Setting:
    """The places where images are built and published.

    ``init`` is the text of the first stage's script, ``open_url`` opens a URL as Ansible's function of that name does.
    """

    store: Path
    cache: Path
    secret_key: Path
    public_key: Path
    password: str | None
    init: str
    check: bool
    open_url: Callable[..., Any]


@dataclass(frozen=True)
class Outcome:
    """The result for one image: ``built`` names the layers that were not in the cache."""

    name: str
    digest: str
    changed: bool
    built: tuple[str, ...]
    diff: tuple[str, ...]
    size_bytes: int
