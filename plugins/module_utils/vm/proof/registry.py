# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rows of the registry of claims: each makes claims from the evidence of a virtual machine, of KVM or vSphere. Pure.

Each layer's file lists its rows in ``CLAIMS``, in the order of the report. A row is a function that makes several
claims, or is made by one of the functions below.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Callable, TypeVar

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

Evidence = TypeVar("Evidence")
Item = TypeVar("Item")
Row = Callable[[Evidence], Iterable[Claim]]


def once(claim: Callable[[Evidence], Claim]) -> Row[Evidence]:
    """Return the row of one claim."""
    return lambda evidence: [claim(evidence)]


def of_each(items: Callable[[Evidence], Iterable[Item]], *claims: Callable[[Evidence, Item], Claim]) -> Row[Evidence]:
    """Return the row of these claims about each of the ``items``: the devices or cells of the evidence."""
    return lambda evidence: [claim(evidence, item) for item in items(evidence) for claim in claims]
