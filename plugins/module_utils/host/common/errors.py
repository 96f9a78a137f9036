# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exceptions for requests that a host cannot fulfil."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class HostError(SailloftError):
    """A request that this host cannot fulfil. The message names the subject, the cause and the next step."""

    @classmethod
    def of(cls, error: SailloftError) -> HostError:
        """Return another error of the library as a HostError."""
        return cls(error.cause, error.remedy, subject=error.subject)


class RequestError(HostError):
    """A mistake in the request: the call changes nothing until it is corrected."""


class KernelRefusedError(HostError):
    """A write that the kernel refused; ``errno`` says why."""

    def __init__(self, cause: str, errno: int | None, remedy: str = "see the kernel's log") -> None:
        super().__init__(cause, remedy)
        self.errno = errno
