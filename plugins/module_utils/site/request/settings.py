# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read settings of a blueprint. Each value is checked, and an error names file, line and setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import Check
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


class Section(Settings):
    """A dictionary in the blueprint. Its names may be numbers in YAML, for example the speeds of a cable."""

    def __init__(self, source: Source, path: tuple[str, ...], data: Any) -> None:
        """Raise SiteError if ``data`` is not a dictionary."""
        self.source = source
        self.path = path
        super().__init__(SiteError, ".".join(path) or "blueprint", data)
        self.data = {str(name): value for name, value in self.data.items()}

    def refuse(self, cause: str, remedy: str) -> SiteError:
        """Return the error to raise, with the line of the dictionary."""
        return SiteError(cause, remedy, subject=self.subject, where=self.source.where(self.path))

    def refuse_setting(self, setting: str, cause: str, remedy: str) -> SiteError:
        """Return the error to raise for a setting, with its line."""
        path = (*self.path, setting)
        return SiteError(cause, remedy, subject=".".join(path), where=self.source.where(path))

    def refuse_unknown(self, setting: str, remedy: str) -> SiteError:
        """Return the error to raise for a setting of another name, with its line."""
        return self.refuse_setting(setting, "unknown setting", remedy)

    def _value(self, name: str, default: Any, check: Check) -> Any:
        if default is _REQUIRED:
            self.need(name)
        return self.value(name, check, default)

    def text(self, name: str, default: Any = _REQUIRED) -> str:
        """Return a setting that is one line of text."""
        return self._value(name, default, values.text)

    def integer(self, name: str, default: Any = _REQUIRED, minimum: int = 1, maximum: int = 1_000_000) -> int:
        """Return a setting that is a whole number."""
        return self._value(name, default, values.within(minimum, maximum))

    def number(self, name: str, default: Any = _REQUIRED, minimum: float = 0, maximum: float = 1_000_000) -> float:
        """Return a setting that is a number."""
        return self._value(name, default, lambda value: values.number(value, minimum, maximum))

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a setting that is true or false."""
        return self._value(name, default, values.flag)

    def texts(self, name: str, default: Any = ()) -> tuple[str, ...]:
        """Return a setting that is a list of texts or one text."""

        def check(value: Any) -> tuple[str, ...]:
            items = value if isinstance(value, (list, tuple)) else [value]
            return tuple(values.text(item) for item in items)

        return self._value(name, default, check)

    def part(self, setting: str) -> Section:
        """Return the dictionary ``setting``; it is empty where the setting is missing."""
        return Section(self.source, (*self.path, setting), self.data.get(setting, {}))

    def sections(self, name: str) -> Iterator[tuple[str, Section]]:
        """Return the dictionaries in the dictionary ``name``, with their names, in order."""
        sections = self.part(name)
        return ((key, sections.part(key)) for key in sections.data)
