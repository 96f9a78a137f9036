# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exception that all code under ``gateways`` raises."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


class GatewayError(SailloftError):
    """A run on gateways is not possible: "SUBJECT: CAUSE; NEXT STEP"."""
