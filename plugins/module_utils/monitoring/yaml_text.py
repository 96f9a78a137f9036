# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write plain data as YAML: dictionaries and lists in blocks, texts in quotes where YAML needs them."""

from __future__ import annotations

import json
import re
from typing import Any

# Texts that need no quotes: no number, no word of YAML, nothing with a meaning in it.
PLAIN = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[A-Za-z_/][\w/.-]*", re.IGNORECASE | re.ASCII)
HEADER = "# Written by sailloft.fleet.monitoring_plan: change the inventory instead.\n"


def to_yaml(data: Any) -> str:
    """Return the file's text."""
    return HEADER + "".join(f"{line}\n" for line in _lines(data))


def _lines(data: Any) -> list[str]:
    if isinstance(data, dict) and data:
        return [line for key, value in data.items() for line in _entry(f"{_scalar(key)}:", value)]
    if isinstance(data, list) and data:
        items = [_lines(item) for item in data]
        return [("- " if index == 0 else "  ") + line for item in items for index, line in enumerate(item)]
    return [_scalar(data)]


def _entry(start: str, value: Any) -> list[str]:
    lines = _lines(value)
    if isinstance(value, (dict, list)) and value:
        return [start, *(f"  {line}" for line in lines)]
    return [f"{start} {lines[0]}"]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    if isinstance(value, str) and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value)
