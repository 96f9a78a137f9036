# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one exception that everything under ``fabric`` raises and the modules turn into their failure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import GivenError


class FabricError(GivenError):
    """What is wanted of a fabric, a switch or a NIC cannot be had, or what was read is none."""
