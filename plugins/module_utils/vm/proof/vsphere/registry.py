# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of a virtual machine on vSphere as rows, like those of proof/registry.py for KVM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import Evidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.plan import PlannedCell

Row = Callable[[Evidence], Iterable[Claim]]
API = "vSphere Web Services API"


@dataclass(frozen=True)
class NotExpressed:
    """A claim for KVM that vSphere cannot express, with the reason and its cost."""

    layer: str
    claim: str
    wanted: str
    why: str
    cost: str

    def row(self) -> Row:
        """Return a row of one claim, which is not applicable."""
        reason = f"{self.why}; cost: {self.cost}"
        return lambda _evidence: [not_applicable(self.layer, self.claim, self.wanted, API, reason)]


def once(claim: Callable[[Evidence], Claim]) -> Row:
    """Return the row of one claim."""
    return lambda evidence: [claim(evidence)]


def of_devices(*claims: Callable[[Evidence, Function], Claim]) -> Row:
    """Return the row of these claims about each passed-through function of the host."""
    return lambda evidence: [claim(evidence, function) for function in evidence.functions() for claim in claims]


def of_cells(*claims: Callable[[Evidence, PlannedCell], Claim]) -> Row:
    """Return the row of these claims about each cell of the plan."""
    return lambda evidence: [claim(evidence, cell) for cell in evidence.plan.cells for claim in claims]
