# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of a GPU virtual machine and its page, with host and guest drawn side by side. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.picture import picture, side_by_side
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.claims import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence


def report(name: str, evidence: Evidence) -> tuple[Proof, str]:
    """Return the proof called ``name`` and its HTML page. Raises ProofError and TopologyError."""
    proof = Proof(name, f"GPU virtual machine {name} on {evidence.host_name}", evidence.host_name, prove(evidence))
    devices = evidence.planned.guest_addresses()
    if evidence.guest:
        drawing = side_by_side(evidence.host, evidence.guest, devices)
    else:
        drawing = picture(evidence.host, f"Host {evidence.host_name}", devices)
    return proof, page(proof, drawing)
