# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exception that all code under ``crash`` raises."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class CrashError(SailloftError):
    """A node that cannot load its crash kernel, or dumps that cannot be read."""
