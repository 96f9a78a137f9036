# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exception that all code under ``fabric`` raises, and that the modules turn into their failure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class FabricError(SailloftError):
    """A request for a fabric, a switch or a NIC cannot be fulfilled, or the text that was read is invalid."""
