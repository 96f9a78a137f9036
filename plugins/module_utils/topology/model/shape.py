# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build dataclasses from plain data by their annotations: every value has the type of its field. Pure.

Supported are the annotations that the model uses: int, float, str, bool, other dataclasses of the same module, lists
and dictionaries of these, and each with None. They are read as text (PEP 563), because Python 3.9 cannot evaluate
``int | None``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError

# A bool does not count as a number; an int is accepted as a float.
SCALARS = {"int": (int,), "float": (float, int), "str": (str,), "bool": (bool,)}
# Not allowed in a text that is written to a plan: control characters except tab and line ends (XML 1.0, Char), and
# surrogates (JSON's "\ud800"), which cannot be encoded.
NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


class _WrongError(SailloftError):
    """The error, with the path to the value, innermost step first."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.way: list[str] = []


def build(kind: type, data: Any) -> Any:
    """Build a ``kind`` from ``data``. Raises TopologyError naming the path to the first value of another type."""
    try:
        return _object(kind, data)
    except _WrongError as error:
        way = "".join(reversed(error.way)).lstrip(".")
        raise TopologyError(f"not a complete topology: {f'{way} ' if way else ''}{error}") from error


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
            unknown = sorted(str(name) for name in data.keys() - readers.keys())
            raise _WrongError(f"has unknown keys {unknown}")
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
    if text.startswith("dict[str, "):
        return _dictionary(_reader(text[len("dict[str, ") : -1], module))
    if text in SCALARS:
        return _scalar(text)
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
                known = isinstance(address, str) and address.isprintable()
                error.way.append(f"[{number}] ({address:.20})" if known else f"[{number}]")
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
