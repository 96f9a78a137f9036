# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one exception that everything under ``domain`` raises and the modules turn into their failure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import SailloftError


class DomainError(SailloftError):
    """A request that cannot be met.

    ``domain`` is the virtual machine ("" where the host or several virtual machines are concerned).
    """

    def __init__(self, cause: str, remedy: str = "", domain: str = "") -> None:
        super().__init__(cause, remedy, f"virtual machine {domain}" if domain else "")
        self.domain = domain
