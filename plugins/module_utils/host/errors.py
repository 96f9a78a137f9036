# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What cannot be done on a host, as exceptions."""

from __future__ import annotations


class HostError(ValueError):
    """What is wanted cannot be had on this host. The message names the thing, the cause and the next step."""


class RequestError(HostError):
    """A mistake in what is wanted: nothing of a call is done before it is corrected."""


class KernelRefusedError(HostError):
    """The kernel refused a write; ``errno`` says why."""

    def __init__(self, message: str, errno: int | None) -> None:
        super().__init__(message)
        self.errno = errno
