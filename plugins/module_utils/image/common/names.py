# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of the names of images, layers, channels and nodes, and of digests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST

# Names become file names that a web server serves and iPXE requests, so they have no space, slash, or leading dot.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

# A node's name in URLs of a boot server and in kernel arguments.
NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")

# The number of nodes that a message names; the others are only counted.
LISTED = 20


def checked_name(name: Any, kind: str) -> str:
    """Return ``name`` unchanged. ``kind`` is "image", "layer" or "channel". Raises ImageError for an invalid name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ImageError(
            "not a valid name",
            "use at most 63 lower-case letters, digits, '.', '_' and '-', starting with a letter or digit",
            subject=f"{kind} {name!r}",
        )
    return name


def checked_digest(digest: Any, subject: str) -> str:
    """Return ``digest`` unchanged. Raises ImageError, about ``subject``, if it is not an image's digest."""
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise ImageError(
            f"{digest!r} is not a digest",
            "give the 64 hexadecimal digits that node_image_store lists, in full and without a prefix",
            subject=subject,
        )
    return digest


def checked_node(name: Any) -> str:
    """Return ``name`` unchanged. Raises ImageError if it is not a host name."""
    if not isinstance(name, str) or not NODE.fullmatch(name):
        raise ImageError(
            "not a valid host name", "use lower-case letters, digits, '.' and '-'", subject=f"node {name!r}"
        )
    return name


def listed(names: Sequence[str]) -> str:
    """Return the names for a message, at most LISTED of them."""
    return excerpt(names, LISTED)
