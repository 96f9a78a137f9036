# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of a GPU virtual machine and its page, with host and guest drawn side by side. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.picture import picture, side_by_side
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host


def report(
    name: str, host_name: str, claims: list[Claim], host: Host, guest: Host | None, devices: dict[str, str]
) -> tuple[Proof, str]:
    """Return the proof called ``name`` and its HTML page; ``devices`` are guest addresses by host address.

    Raises ProofError and TopologyError.
    """
    proof = Proof(name, f"GPU virtual machine {name} on {host_name}", host_name, claims)
    drawing = side_by_side(host, guest, devices) if guest else picture(host, f"Host {host_name}", devices)
    return proof, page(proof, drawing)
