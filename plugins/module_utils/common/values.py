# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The types of values that users write: each function returns a checked value or raises InvalidValueError.

Every text that is written to a file, a command or an XML document is checked here, on input, so that no later code
has to.
"""

from __future__ import annotations

import re
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

# Linux: PATH_MAX of linux/limits.h counts the closing NUL.
PATH_BYTES_MAX = 4095
# XML 1.0, section 2.2, allows no control characters except tab, line feed and carriage return, and no setting needs
# those. U+FFFE and U+FFFF are not characters. Lone surrogates cannot be written as UTF-8.
FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", re.IGNORECASE)

# Returns the checked value, or raises InvalidValueError.
Check = Callable[[Any], Any]


class InvalidValueError(SailloftError):
    """A value that its setting cannot have: ``cause`` names value and cause."""


def text(value: Any, longest: int = 4096) -> str:
    """Return ``value`` if it is one line of text of 1 to ``longest`` characters that every format can carry."""
    if not isinstance(value, str):
        raise InvalidValueError(f"{value!r} is not text", "write it in quotes")
    if not value:
        raise InvalidValueError("the text is empty", "give it a value, or leave the setting out if it is optional")
    forbidden = FORBIDDEN.search(value)
    if forbidden:
        raise InvalidValueError(
            f"{value[:80]!r} contains {forbidden.group()!r}, which is not a printable character", "remove it"
        )
    if len(value) > longest:
        raise InvalidValueError(f"{value[:80]!r}... has {len(value)} characters", f"use {longest} at most")
    return value


def path(value: Any) -> str:
    """Return ``value`` if it is the absolute path of a file: no ``.`` or ``..`` in it, no slash at its end."""
    plain_text = text(value, PATH_BYTES_MAX)
    if not plain_text.startswith("/"):
        raise InvalidValueError(f"{plain_text!r} is not an absolute path", "begin it with '/'")
    parts = plain_text[1:].split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidValueError(
            f"{plain_text!r} is not the plain path of a file", "write it without '//', '.', '..' or a trailing '/'"
        )
    if len(plain_text.encode()) > PATH_BYTES_MAX:
        raise InvalidValueError(f"{plain_text[:80]!r}... has more than {PATH_BYTES_MAX} bytes", "use a shorter path")
    return plain_text


def integer(value: Any, minimum: int, maximum: int, unit: str = "") -> int:
    """Return ``value`` if it is a whole number from ``minimum`` to ``maximum``; ``unit`` is for the message."""
    # bool is an int to Python, but "count: yes" is a mistake.
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        unit_text = f" {unit}" if unit else ""
        raise InvalidValueError(f"{value!r} is not valid", f"use a whole number from {minimum} to {maximum}{unit_text}")
    return value


def number(value: Any, minimum: float, maximum: float) -> float:
    """Return ``value`` if it is a number from ``minimum`` to ``maximum``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value <= maximum:
        raise InvalidValueError(f"{value!r} is not valid", f"use a number from {minimum} to {maximum}")
    return value


def unicast_mac(value: Any) -> str:
    """Return ``value`` in lower case if it is the MAC address of one interface (IEEE 802: bit 0 of byte 0 is clear)."""
    address = text(value)
    if not MAC.fullmatch(address):
        raise InvalidValueError(f"{address!r} is not a MAC address", "write it like 52:54:00:12:34:56")
    if int(address[:2], 16) & 1:
        raise InvalidValueError(
            f"{address} is a multicast address", "use one whose first byte is even, like 52:54:00:12:34:56"
        )
    if address == "00:00:00:00:00:00":
        raise InvalidValueError(f"{address} is not the address of an interface", "use one like 52:54:00:12:34:56")
    return address.lower()


def one_of(value: Any, choices: tuple[Any, ...]) -> Any:
    """Return ``value`` if it is one of ``choices``, texts or numbers."""
    # True and 1.0 are 1 to Python.
    if value not in choices or isinstance(value, (bool, float)):
        raise InvalidValueError(f"{value!r} is unknown", f"use one of: {', '.join(repr(item) for item in choices)}")
    return value


def flag(value: Any) -> bool:
    """Return ``value`` if it is true or false."""
    if not isinstance(value, bool):
        raise InvalidValueError(f"{value!r} is not valid", "use true or false")
    return value


def items(value: Any) -> list[Any]:
    """Return ``value`` as a list if it is a list or a tuple."""
    if not isinstance(value, (list, tuple)):
        raise InvalidValueError(f"{value!r} is not a list", "begin each element with '-'")
    return list(value)


def each(check: Check) -> Check:
    """Return the check for a list whose elements ``check`` checks; its error has the element's number, from 0."""

    def checked(value: Any) -> list[Any]:
        elements = []
        for index, item in enumerate(items(value)):
            try:
                elements.append(check(item))
            except InvalidValueError as error:
                raise InvalidValueError(f"element {index}: {error.cause}", error.remedy) from error
        return elements

    return checked


def texts(value: Any) -> list[str]:
    """Return ``value`` if it is a list of texts, each valid for ``text``."""
    return each(text)(value)


def distinct(check: Check) -> Check:
    """Return the check for a list of different elements, which ``check`` checks."""

    def checked(value: Any) -> list[Any]:
        elements = each(check)(value)
        for element in elements:
            if elements.count(element) > 1:
                raise InvalidValueError(f"{element} is listed twice", "list it once")
        return elements

    return checked


def by_name(value: Any) -> dict[str, Any]:
    """Return ``value`` if it is a dictionary whose keys are texts. A wrong one is not shown: it may contain secrets."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidValueError("not a dictionary whose names are texts", "write it as name: value pairs")
    return value


def within(minimum: int, maximum: int, unit: str = "") -> Check:
    """Return the check for a whole number from ``minimum`` to ``maximum``."""
    return lambda value: integer(value, minimum, maximum, unit)


def matching(pattern: re.Pattern[str], remedy: str = "look for a typing error or a missing quote") -> Check:
    """Return the check for a text that ``pattern`` matches as a whole."""

    def checked(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InvalidValueError(f"{value!r} is not valid", remedy)
        return value

    return checked


def among(*choices: Any) -> Check:
    """Return the check for one of ``choices``, texts or numbers."""
    return lambda value: one_of(value, choices)
