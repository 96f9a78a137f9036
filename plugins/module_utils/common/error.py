# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The base class of all errors that the library raises for its callers."""

from __future__ import annotations

from typing import Any


class SailloftError(Exception):
    """A request that cannot be fulfilled, or input that is invalid: "SUBJECT: CAUSE; REMEDY".

    ``subject`` names the host, device, virtual machine or setting, ``cause`` says what is wrong, ``remedy`` is the next
    step. Subject and remedy are "" where the cause contains them. All subclasses take these arguments; some have a
    keyword besides.
    """

    def __init__(self, cause: str, remedy: str = "", *, subject: str = "") -> None:
        super().__init__(cause, remedy, subject)
        self.subject = subject
        self.cause = cause
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls __init__ with positional arguments.
        return Exception.__new__, (type(self), *self.args), self.__dict__

    def __str__(self) -> str:
        subject = f"{self.subject}: " if self.subject else ""
        return f"{subject}{self.cause}; {self.remedy}" if self.remedy else f"{subject}{self.cause}"

    def result(self) -> dict[str, Any]:
        """Return what a module that fails with this error returns besides its message."""
        return {}
