# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the user's input: settings by name, each checked, with errors that name the setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import SailloftError


class Settings:
    """A dictionary of the user's, and its name in an error. A setting that is null counts as left out."""

    refusal: ClassVar[type[SailloftError]]  # what a package raises

    def __init__(self, subject: str, data: Any) -> None:
        """Raise ``refusal`` if ``data`` is no dictionary."""
        self.subject = subject
        if not isinstance(data, Mapping):
            raise self.refuse("not a dictionary", "write it as settings by name")
        self.data = {name: value for name, value in data.items() if value is not None}

    def refuse(self, cause: str, remedy: str) -> SailloftError:
        """Return the error to raise."""
        return self.refusal(self.subject, cause, remedy)

    def only(self, *known: str) -> None:
        """Refuse settings of other names."""
        for name in self.data:
            if name not in known:
                raise self.refuse(f"unknown setting {name!r}", f"there are {', '.join(sorted(known))}")
