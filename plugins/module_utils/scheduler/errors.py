# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exception that all code under ``scheduler`` raises."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class SchedulerError(SailloftError):
    """A request for a scheduler cannot be fulfilled, or the text that was read is invalid."""
