# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading what a user wrote: settings by name, each checked, with refusals that name the thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import GivenError


class Settings:
    """A dictionary of the user's, and what it is called in a refusal. A setting that is null counts as left out."""

    refusal: ClassVar[type[GivenError]]  # what a package raises

    def __init__(self, subject: str, data: Any) -> None:
        """Raises ``refusal`` where ``data`` is no dictionary."""
        self.subject = subject
        if not isinstance(data, Mapping):
            raise self.refuse("not a dictionary", "write it as settings by name")
        self.data = {name: value for name, value in data.items() if value is not None}

    def refuse(self, why: str, mend: str) -> GivenError:
        """The error to raise."""
        return self.refusal(self.subject, why, mend)

    def only(self, *known: str) -> None:
        """Refuse settings of other names."""
        for name in self.data:
            if name not in known:
                raise self.refuse(f"unknown setting {name!r}", f"there are {', '.join(sorted(known))}")
