# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one exception that everything under ``domain`` raises and the modules turn into their failure."""

from __future__ import annotations


class DomainError(ValueError):
    """A request that cannot be met.

    ``why`` names the thing and the cause, ``remedy`` the next step ("" where there is none to name), ``domain`` the
    virtual machine ("" where the host or several virtual machines are concerned). The message is made of them.
    """

    def __init__(self, why: str, remedy: str = "", domain: str = "") -> None:
        self.why, self.remedy, self.domain = why, remedy, domain
        subject = f"virtual machine {domain}: " if domain else ""
        super().__init__(f"{subject}{why}; {remedy}" if remedy else f"{subject}{why}")
