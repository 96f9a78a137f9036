# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read stored data: build dataclasses from JSON, every value of the type of its field's annotation. Pure.

Stored formats grow: an unknown key is ignored, and a missing one gets the default of its field. Supported are the
annotations int, float, str, bool, Any, other dataclasses of the same module, lists, tuples and dictionaries of these,
and each with None. They are read as text (PEP 563), because Python 3.9 cannot evaluate ``int | None``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

# A bool does not count as a number; an int is accepted as a float.
SCALARS = {"int": (int,), "float": (float, int), "str": (str,), "bool": (bool,)}
# Not allowed in a text that is written to a plan: control characters except tab and line ends (XML 1.0, Char), and
# surrogates (JSON's "\ud800"), which cannot be encoded.
NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


class StoredError(SailloftError):
    """Stored data that cannot be read. The cause begins with the path to the first wrong value."""


class _WrongError(SailloftError):
    """The error, with the path to the value, innermost step first."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.way: list[str] = []


def load(kind: type, data: Any, expected: str, name: str, remedy: str) -> Any:
    """Build a ``kind`` from ``data``, whose key "format" must be ``expected``, like "sailloft-proof/1".

    ``name`` is what errors call the data ("proof"), and ``remedy`` is the way to write it again. Raises StoredError.
    """
    if isinstance(data, dict) and data.get("format") == expected:
        try:
            return build(kind, {key: value for key, value in data.items() if key != "format"})
        except StoredError as error:
            raise StoredError(f"not a complete {name}: {error.cause}", remedy) from error
    written = data.get("format") if isinstance(data, dict) else type(data).__name__
    if isinstance(written, str) and written.partition("/")[0] == expected.partition("/")[0]:
        remedy = f"use the version of the collection that wrote it, or {remedy}"
    raise StoredError(f"not a {name}: its format is {written!r:.60}, expected {expected!r}", remedy)


def build(kind: type, data: Any) -> Any:
    """Build a ``kind`` from ``data``. Raises StoredError naming the path to the first value of another type."""
    try:
        return _object(kind, data)
    except _WrongError as error:
        path = "".join(reversed(error.way)).lstrip(".")
        raise StoredError(f"{path} {error}".lstrip()) from error


def _object(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise _WrongError(f"is {data!r:.60}, expected an object with the keys of {kind.__name__}")
    scalars, readers, required = _fields(kind)
    values = {}
    for key, value in data.items():
        if type(value) in scalars.get(key, ()) and (not isinstance(value, str) or value.isprintable()):
            values[key] = value
            continue
        reader = readers.get(key)
        if reader is None:
            continue
        try:
            values[key] = reader(value)
        except _WrongError as error:
            error.way.append(f".{key}")
            raise
    for key in required:
        if key not in values:
            raise _WrongError(f"{key!r} is missing")
    return kind(**values)


@cache
def _fields(kind: type) -> tuple[dict[str, tuple[type, ...]], dict[str, Callable[[Any], Any]], tuple[str, ...]]:
    """Return the scalar types by field, the readers by field, and the fields without a default."""
    scalars, readers, required = {}, {}, []
    for item in fields(kind):
        text = str(item.type)
        bare = text.replace(" | None", "")
        if bare in SCALARS:
            scalars[item.name] = SCALARS[bare] + ((type(None),) if bare != text else ())
        readers[item.name] = _reader(text, kind.__module__)
        if item.default is MISSING and item.default_factory is MISSING:
            required.append(item.name)
    return scalars, readers, tuple(required)


def _reader(text: str, module: str) -> Callable[[Any], Any]:
    if text.endswith(" | None"):
        inner = _reader(text[: -len(" | None")], module)
        return lambda value: None if value is None else inner(value)
    if text.startswith("list["):
        return _list(_reader(text[len("list[") : -1], module))
    if text.startswith("tuple["):
        read_items = _list(_reader(text[len("tuple[") : -len(", ...]")], module))
        return lambda value: tuple(read_items(value))
    if text.startswith("dict[str, "):
        return _dictionary(_reader(text[len("dict[str, ") : -1], module))
    if text in SCALARS:
        return _scalar(text)
    if text == "Any":
        return lambda value: value
    kind = getattr(sys.modules[module], text)
    return lambda value: _object(kind, value)


def _scalar(name: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        # Filters get Ansible's own subclasses of int and str, which are accepted. bool, a subclass of int, is not.
        if not isinstance(value, SCALARS[name]) or (isinstance(value, bool) and name != "bool"):
            raise _WrongError(f"is {value!r:.60}, expected {name}")
        if isinstance(value, str) and NO_TEXT.search(value):
            raise _WrongError(f"is {value!r:.60}, which contains an invalid character")
        return value

    return read


def _list(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _WrongError(f"is {value!r:.60}, expected a list")
        items = []
        for number, item in enumerate(value):
            try:
                items.append(inner(item))
            except _WrongError as error:
                address = item.get("address") if isinstance(item, dict) else None
                is_printable = isinstance(address, str) and address.isprintable()
                error.way.append(f"[{number}] ({address:.20})" if is_printable else f"[{number}]")
                raise
        return items

    return read


def _dictionary(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise _WrongError(f"is {value!r:.60}, expected an object")
        items = {}
        for key, item in value.items():
            try:
                items[key] = inner(item)
            except _WrongError as error:
                error.way.append(f"[{key!r}]")
                raise
        return items

    return read
