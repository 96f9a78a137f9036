# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exception that all code in ``vm`` raises, and that the modules report as their failure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class DomainError(SailloftError):
    """A request that cannot be met.

    ``domain`` is the virtual machine ("" if the error concerns the host or several virtual machines).
    """

    def __init__(self, cause: str, remedy: str = "", *, domain: str = "") -> None:
        super().__init__(cause, remedy, subject=f"virtual machine {domain}" if domain else "")
        self.domain = domain
