# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading what a user wrote: settings by name, each checked, with refusals that name the thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.error import FabricError


class Record:
    """A dictionary of the user's, and what it is called in a refusal. A setting that is null counts as left out."""

    def __init__(self, subject: str, data: Any) -> None:
        """Raises FabricError where ``data`` is no dictionary."""
        self.subject = subject
        if not isinstance(data, Mapping):
            raise self.refuse("not a dictionary", "write it as settings by name")
        self.data = {name: value for name, value in data.items() if value is not None}

    def refuse(self, why: str, mend: str) -> FabricError:
        """The error to raise."""
        return FabricError(self.subject, why, mend)

    def only(self, *known: str) -> None:
        """Refuse settings of other names."""
        for name in self.data:
            if name not in known:
                raise self.refuse(f"unknown setting {name!r}", f"there are {', '.join(sorted(known))}")

    def need(self, *settings: str) -> None:
        """Refuse where one of these is left out."""
        for name in settings:
            if name not in self.data:
                raise self.refuse(f"{name} is missing", "give it")

    def number(self, setting: str, default: int, least: int, most: int) -> int:
        """A whole number in that range; true and "3" are none."""
        value = self.data.get(setting, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refuse(
                f"{setting} {value!r} is not a whole number of {least} to {most}", "give one in that range"
            )
        return value

    def text(self, setting: str, default: str) -> str:
        """A text."""
        value = self.data.get(setting, default)
        if not isinstance(value, str):
            raise self.refuse(f"{setting} {value!r} is not a text", "put it in quotes")
        return value
