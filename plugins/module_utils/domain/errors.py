# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one exception that everything under ``domain`` raises and the modules turn into their failure."""

from __future__ import annotations


class DomainError(ValueError):
    """A wish that cannot be had. The message names the virtual machine, the thing, the cause and the next step."""
