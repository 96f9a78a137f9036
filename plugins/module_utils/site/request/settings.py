# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read settings of a blueprint. Each value is checked, and an error names file, line and setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given import values
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError

# The line of each setting in the file, by the setting's path.
Lines = Mapping[tuple[str, ...], int]
_REQUIRED: Any = object()


class Source:
    """The file of a blueprint: its name, and the lines of its settings."""

    def __init__(self, file: str = "", lines: Lines | None = None) -> None:
        self.file = file
        self.lines = lines or {}

    def where(self, path: tuple[str, ...]) -> str:
        """Return "FILE:LINE" of a setting or of the nearest one around it; empty without a file."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return f"{self.file}:{self.lines[path[:end]]}"
        return self.file


class Section:
    """A mapping in the blueprint. A setting that is null counts as missing."""

    def __init__(self, source: Source, path: tuple[str, ...], data: Any) -> None:
        self.source = source
        self.path = path
        if not isinstance(data, Mapping):
            raise self.error("not a mapping", "write it as name: value pairs")
        self.data = {str(name): value for name, value in data.items() if value is not None}

    def error(self, cause: str, remedy: str, *setting: str) -> SiteError:
        """Return an error about this section or a ``setting`` below it."""
        path = (*self.path, *setting)
        return SiteError(".".join(path) or "blueprint", cause, remedy, self.source.where(path))

    def only(self, *known: str) -> None:
        """Refuse settings with other names."""
        for name in self.data:
            if name not in known:
                raise self.error("unknown setting", f"valid settings: {', '.join(sorted(known))}", name)

    def _value(self, name: str, default: Any, check: Any) -> Any:
        if name not in self.data:
            if default is _REQUIRED:
                raise self.error(f"{name} is missing", "add it")
            return default
        try:
            return check(self.data[name])
        except values.InvalidValueError as error:
            raise self.error(error.cause, error.remedy, name) from None

    def text(self, name: str, default: Any = _REQUIRED) -> str:
        """Return a setting that is one line of text."""
        return self._value(name, default, values.text)

    def whole(self, name: str, default: Any = _REQUIRED, least: int = 1, most: int = 1_000_000) -> int:
        """Return a setting that is a whole number."""
        return self._value(name, default, lambda value: values.whole(value, least, most))

    def number(self, name: str, default: Any = _REQUIRED, least: float = 0, most: float = 1_000_000) -> float:
        """Return a setting that is a number."""

        def check(value: Any) -> float:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
                raise values.InvalidValueError(f"{value!r} is not valid", f"use a number from {least} to {most}")
            return value

        return self._value(name, default, check)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a setting that is true or false."""

        def check(value: Any) -> bool:
            if not isinstance(value, bool):
                raise values.InvalidValueError(f"{value!r} is not valid", "use true or false")
            return value

        return self._value(name, default, check)

    def texts(self, name: str, default: Any = ()) -> tuple[str, ...]:
        """Return a setting that is a list of texts or one text."""

        def check(value: Any) -> tuple[str, ...]:
            given = value if isinstance(value, (list, tuple)) else [value]
            return tuple(values.text(each) for each in given)

        return self._value(name, default, check)

    def section(self, name: str) -> Section:
        """Return the mapping ``name``; it is empty where the setting is missing."""
        return Section(self.source, (*self.path, name), self.data.get(name, {}))

    def sections(self, name: str) -> Iterator[tuple[str, Section]]:
        """Return the mappings in the mapping ``name``, with their names, in order."""
        below = self.section(name)
        return ((each, below.section(each)) for each in below.data)
