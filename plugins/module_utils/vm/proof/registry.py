# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rows of the registry of claims: each makes claims from the evidence. Pure.

Each layer's file lists its rows in ``CLAIMS``, in the order of the report. A row is a function that makes several
claims, or is made by one of the functions below.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import Passed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence

Row = Callable[[Evidence], Iterable[Claim]]


def once(claim: Callable[[Evidence], Claim]) -> Row:
    """Return the row of one claim."""
    return lambda evidence: [claim(evidence)]


def of_devices(*claims: Callable[[Evidence, Passed], Claim]) -> Row:
    """Return the row of these claims about each passed-through device."""
    return lambda evidence: [claim(evidence, device) for device in evidence.planned.passed() for claim in claims]


def of_cells(*claims: Callable[[Evidence, Cell], Claim]) -> Row:
    """Return the row of these claims about each cell of the plan."""
    return lambda evidence: [claim(evidence, cell) for cell in evidence.planned.processors.cells for claim in claims]
