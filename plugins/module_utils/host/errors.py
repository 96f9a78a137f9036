# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one exception that everything under ``host`` raises and the modules turn into their failure."""

from __future__ import annotations


class HostError(ValueError):
    """What is wanted cannot be had on this host. The message names the thing, the cause and the next step."""
