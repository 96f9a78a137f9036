# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The form of a refusal."""

from __future__ import annotations


class GivenError(Exception):
    """What is wanted cannot be had, or what was read is none: "SUBJECT: WHY; MEND"."""

    def __init__(self, subject: str, why: str, mend: str) -> None:
        """``subject`` names the thing, ``why`` the cause, ``mend`` the next step."""
        super().__init__(subject, why, mend)
        self.subject = subject
        self.why = why
        self.mend = mend

    def __str__(self) -> str:
        return f"{self.subject}: {self.why}; {self.mend}"
