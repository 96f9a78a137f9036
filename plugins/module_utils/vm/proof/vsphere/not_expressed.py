# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims for KVM that vSphere cannot express. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import VsphereEvidence

API = "vSphere Web Services API"


@dataclass(frozen=True)
class NotExpressed:
    """A claim for KVM that vSphere cannot express, with the reason and its cost."""

    layer: str
    claim: str
    wanted: str
    reason: str
    cost: str

    def row(self) -> Row[VsphereEvidence]:
        """Return a row of one claim, which is not applicable."""
        reason = f"{self.reason}; cost: {self.cost}"
        return lambda _evidence: [not_applicable(self.layer, self.claim, self.wanted, API, reason)]
