# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the user's input: settings by name, each checked, with errors that name the setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import valid_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import Check, InvalidValueError


class Settings:
    """A dictionary that the user wrote, and its name in errors. A setting that is null counts as left out.

    ``refusal`` is the error of a package, or a function that makes one of subject, cause and remedy.
    """

    def __init__(self, refusal: Callable[..., SailloftError], subject: str, data: Any) -> None:
        """Raise ``refusal`` if ``data`` is not a dictionary."""
        self.refusal, self.subject = refusal, subject
        if not isinstance(data, Mapping):
            raise self.refuse("not a dictionary", "write it as name: value pairs")
        self.data = {name: value for name, value in data.items() if value is not None}

    def refuse(self, cause: str, remedy: str) -> SailloftError:
        """Return the error to raise."""
        return self.refusal(subject=self.subject, cause=cause, remedy=remedy)

    def refuse_setting(self, setting: str, cause: str, remedy: str) -> SailloftError:
        """Return the error to raise for a setting."""
        return self.refuse(f"{setting}: {cause}", remedy)

    def refuse_unknown(self, setting: str, remedy: str) -> SailloftError:
        """Return the error to raise for a setting of another name."""
        return self.refuse(f"unknown setting {setting!r}", remedy)

    def only(self, *valid_names: str) -> None:
        """Refuse settings of other names."""
        for name in self.data:
            if name not in valid_names:
                raise self.refuse_unknown(name, valid_settings(name, valid_names))

    def need(self, *settings: str) -> None:
        """Refuse the settings where one of these is left out."""
        for name in settings:
            if name not in self.data:
                raise self.refuse(f"{name} is missing", "set it")

    def value(self, setting: str, check: Check, default: Any = None) -> Any:
        """Return a setting after ``check`` (a function of common/values); ``default``, unchecked, if it is left out."""
        if setting not in self.data:
            return default
        try:
            return check(self.data[setting])
        except InvalidValueError as error:
            raise self.refuse_setting(setting, error.cause, error.remedy) from error

    def required(self, setting: str, check: Check) -> Any:
        """Return a setting after ``check``; one that is left out is refused."""
        self.need(setting)
        return self.value(setting, check)

    def load(self, kind: type, checks: Mapping[str, Check], **fixed: Any) -> Any:
        """Return a ``kind``, a dataclass, of the settings in ``checks``, the only valid ones.

        A setting that is left out has the value in ``fixed`` or the default of its field; without both it is refused.
        """
        self.only(*checks)
        for item in fields(kind):
            if item.default is MISSING and item.default_factory is MISSING and item.name not in fixed:
                self.need(item.name)
        settings = {name: self.value(name, check) for name, check in checks.items() if name in self.data}
        return kind(**{**fixed, **settings})

    def part(self, setting: str) -> Settings:
        """Return the settings in the dictionary ``setting``, none if it is left out."""
        return Settings(self.refusal, self._path(setting), self.data.get(setting, {}))

    def parts(self, setting: str) -> list[Settings]:
        """Return the dictionaries in the list ``setting``; an error names the element (``pages[1]``)."""
        return [
            Settings(self.refusal, f"{self._path(setting)}[{index}]", item)
            for index, item in enumerate(self.value(setting, values.items, []))
        ]

    def _path(self, setting: str) -> str:
        return f"{self.subject}.{setting}" if self.subject else setting
