# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of a GPU virtual machine and its page, with host and guest drawn side by side. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.domain.evidence import Evidence
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.prove import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import Picture, page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.picture import svg


def report(name: str, evidence: Evidence) -> tuple[Proof, str]:
    """The proof called ``name`` and its HTML page. Raises ProofError and TopologyError."""
    proof = Proof(name, f"GPU virtual machine {name} on {evidence.host_name}", evidence.host_name, prove(evidence))
    pictures = [Picture(f"Host {evidence.host_name}", svg(evidence.host))]
    if evidence.guest:
        pictures.append(Picture(f"Guest {name}", svg(evidence.guest)))
    return proof, page(proof, pictures)
