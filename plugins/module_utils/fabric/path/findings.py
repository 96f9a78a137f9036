# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The result of a check: a fault, or something that cannot be read.

A missing value is never correct. It is ``Unseen`` where the device's kind gives the reason (``reasons``: field of
PortQos or Nic -> why it cannot be read), and a ``Fault`` where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union


@dataclass(frozen=True)
class Fault:
    """One setting that is not as it must be. The caller that knows the place fills in ``where`` ("leaf1 swp1, in")."""

    what: str
    wanted: Any
    seen: Any
    consequence: str
    where: str = ""


@dataclass(frozen=True)
class Unseen:
    """One setting that cannot be read on this kind of device. ``where`` as in Fault."""

    what: str
    wanted: Any
    reason: str
    where: str = ""


Finding = Union[Fault, Unseen]
Reasons = Mapping[str, str]


def missing(field: str, reasons: Reasons, what: str, wanted: Any, consequence: str) -> Finding:
    """Return the finding for a ``field`` that was not read."""
    if field in reasons:
        return Unseen(what, wanted, reasons[field])
    return Fault(what, wanted, None, consequence)
