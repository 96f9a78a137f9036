# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The base class of the packages' errors about what was given to them."""

from __future__ import annotations


class GivenError(Exception):
    """A request that cannot be fulfilled, or input that is invalid: "SUBJECT: CAUSE; NEXT STEP"."""

    def __init__(self, subject: str, why: str, mend: str) -> None:
        """Set the parts: ``subject`` names the thing, ``why`` the cause, ``mend`` the next step."""
        super().__init__(subject, why, mend)
        self.subject = subject
        self.why = why
        self.mend = mend

    def __str__(self) -> str:
        return f"{self.subject}: {self.why}; {self.mend}"
