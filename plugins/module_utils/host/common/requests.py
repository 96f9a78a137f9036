# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read requests: typed values from plain data, with an error that says which one is wrong."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given import values
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError


def record(data: Any, where: str, required: dict[str, type], optional: dict[str, type]) -> dict[str, Any]:
    """Return a mapping with exactly these keys and types; an optional value that is None counts as not given.

    Types are ``int``, ``bool``, ``str``, ``list``, ``dict`` or ``object`` (anything). Raises RequestError.
    """
    if not isinstance(data, dict):
        raise RequestError(f"{where}: wanted a mapping, got {data!r}")
    known = {**required, **optional}
    unknown = sorted(str(key) for key in data if key not in known)
    if unknown:
        raise RequestError(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    given = {key: value for key, value in data.items() if value is not None}
    for key in required:
        if key not in given:
            raise RequestError(f"{where}: {key} is missing")
    for key, value in given.items():
        # bool is an int to Python, but "count: yes" is a mistake.
        if not isinstance(value, known[key]) or (known[key] is int and isinstance(value, bool)):
            raise RequestError(f"{where}: {key} is {value!r}, wanted {known[key].__name__}")
        if known[key] is str and isinstance(value, str):
            _text(value, f"{where}.{key}")
    return given


def strings(value: Any, where: str) -> list[str]:
    """Return a list of strings. Raises RequestError."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise RequestError(f"{where}: wanted a list of strings, got {value!r}")
    return [_text(item, f"{where}[{number}]") for number, item in enumerate(value)]


def _text(value: str, where: str) -> str:
    try:
        return values.text(value)
    except values.InvalidValueError as error:
        raise RequestError(f"{where}: {error}") from error


def within(value: int, low: int, high: int, where: str) -> int:
    """Return ``value`` if low <= value <= high. Raises RequestError."""
    if not low <= value <= high:
        raise RequestError(f"{where} is {value}, wanted {low} to {high}")
    return value
