# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The error of what a node is expected to have."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class ExpectError(SailloftError):
    """An input from which it does not follow what a node must have."""
