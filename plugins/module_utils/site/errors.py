# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exception that all code under ``site`` raises."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class SiteError(SailloftError):
    """A blueprint that is invalid: "FILE:LINE: SETTING: RULE THAT IS BROKEN; NEXT STEP"."""

    def __init__(self, cause: str, remedy: str, *, subject: str, where: str = "") -> None:
        """Set the parts; ``where`` is "FILE:LINE", empty where the input has no file."""
        super().__init__(cause, remedy, subject=f"{where}: {subject}" if where else subject)
