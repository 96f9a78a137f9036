# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims for KVM that vSphere cannot express. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import VsphereEvidence

API = "vSphere Web Services API"


def not_expressed(layer: str, claim: str, wanted: str, reason: str, cost: str) -> Row[VsphereEvidence]:
    """Return the row of a claim for KVM that vSphere cannot express, with the reason and its cost."""
    return lambda _evidence: [not_applicable(layer, claim, wanted, API, f"{reason}; cost: {cost}")]
