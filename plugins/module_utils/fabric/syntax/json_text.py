# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decode JSON that a switch printed; text that is no JSON, or has a key twice, raises ValueError."""

from __future__ import annotations

import json
from typing import Any


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key!r} is there twice, and which of both applies is undefined")
        members[key] = value
    return members


DECODER = json.JSONDecoder(object_pairs_hook=_members)
