# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read one dictionary of an image's request; errors name its place in the request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError


class Record(Settings):
    """A part of an image's request."""

    refusal = ImageError

    def text(self, setting: str) -> str:
        value = self.data.get(setting)
        if not isinstance(value, str) or not value:
            raise self.refuse(f"{setting} {value!r} is not text", "give text, in quotes if it looks like a number")
        return value

    def texts(self, setting: str, form: re.Pattern[str]) -> tuple[str, ...]:
        values = self.data.get(setting, [])
        if not isinstance(values, (list, tuple)):
            raise self.refuse(f"{setting} is not a list", f"write it as {setting}: [one, another]")
        for value in values:
            if not isinstance(value, str) or not form.fullmatch(value):
                raise self.refuse(
                    f"{setting}: {value!r} is not a valid name", "look for a typing error or a missing quote"
                )
            if values.count(value) > 1:
                raise self.refuse(f"{setting}: {value} is listed twice", "list it once")
        return tuple(values)

    def mapping(self, setting: str) -> dict[str, Any]:
        value = self.data.get(setting, {})
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise self.refuse(f"{setting} is not a dictionary", "write it as values by name")
        return dict(value)

    def records(self, setting: str) -> list[Record]:
        values = self.data.get(setting, [])
        if not isinstance(values, (list, tuple)):
            raise self.refuse(f"{setting} is not a list", f"write it as {setting}: [{{...}}]")
        return [Record(f"{self.subject}: {setting}[{at}]", value) for at, value in enumerate(values)]
