# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The findings of checks, which are claims that do not hold or cannot be made. Pure.

A missing value is never correct. It is ``unseen`` where the device's kind gives the reason (``reasons``: field of
PortQos or Nic -> why it cannot be read), and a ``fault`` where there is none. The part of the path adds layer, place
and source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, not_applicable

Reasons = Mapping[str, str]


def fault(claim: str, wanted: Any, seen: Any, consequence: str) -> Claim:
    """Return the finding for a setting that is not as it must be."""
    return Claim("", claim, wanted, seen, False, "", consequence)


def unseen(claim: str, wanted: Any, reason: str) -> Claim:
    """Return the finding for a setting that cannot be read on this kind of device."""
    return not_applicable("", claim, wanted, "", reason)


def missing(field: str, reasons: Reasons, claim: str, wanted: Any, consequence: str) -> Claim:
    """Return the finding for a ``field`` that was not read."""
    return unseen(claim, wanted, reasons[field]) if field in reasons else fault(claim, wanted, None, consequence)
