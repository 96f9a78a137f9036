# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a user's record of settings that are numbers and texts."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError


class FabricSettings(Settings):
    """A record of settings. Raises FabricError."""

    refusal = FabricError

    def number(self, setting: str, default: int, minimum: int, maximum: int) -> int:
        """Return a whole number from ``minimum`` to ``maximum``; true and "3" are refused."""
        value = self.data.get(setting, default)
        try:
            return values.whole(value, minimum, maximum)
        except values.InvalidValueError:
            raise self.refuse(
                f"{setting} {value!r} is not a whole number from {minimum} to {maximum}", "give one in that range"
            ) from None

    def text(self, setting: str, default: str) -> str:
        """Return a text of one line, without control characters; ``default``, which is one, if there is none."""
        value = self.data.get(setting, default)
        if not isinstance(value, str):
            raise self.refuse(f"{setting} {value!r} is not a string", "put it in quotes")
        try:
            return values.text(value)
        except values.InvalidValueError as error:
            raise self.refuse_setting(setting, error.cause, error.remedy) from None
