# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exception that all code under ``image`` raises and that the modules report as their failure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class ImageError(SailloftError):
    """A request about an image, a store or a channel cannot be fulfilled."""
