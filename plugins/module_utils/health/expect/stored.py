# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The stored form of what a node must have: JSON with one device, port or setting a line. Pure.

The same input gives the same bytes, and a changed device is one changed line, so that a diff can be read.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Expected

FORMAT = "sailloft-health-expected/1"
REMEDY = "write it again with the role node_health"


def text(expected: Expected) -> str:
    """Return the content of the file."""
    data = {"format": FORMAT, **asdict(expected)}
    return "{\n" + ",\n".join(f'"{name}": {_lines(data[name])}' for name in sorted(data)) + "\n}\n"


def load(content: str) -> Expected:
    """Return what a node must have from the file's content. Raises StoredError."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoredError(f"not the stored form of what a node must have: {error}", REMEDY) from error
    expected: Expected = stored.load(Expected, data, FORMAT, "list of what a node must have", REMEDY)
    return expected


def _lines(value: Any) -> str:
    """Return a value as JSON, the elements of a list or an object one a line."""
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"{json.dumps(key)}: {_short(value[key])}" for key in sorted(value)) + "\n}"
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join(map(_short, value)) + "\n]"
    return _short(value)


def _short(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
