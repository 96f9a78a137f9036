# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read from a proof on the controller if it holds. Pure."""

from __future__ import annotations

import json

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.world import NodeProof


def proof_of(file: str, text: str, at_s: float) -> NodeProof:
    """Return a proof from its file. One that cannot be read does not hold."""
    try:
        holds = Proof.from_dict(json.loads(text)).holds
    except (ValueError, RecursionError, ProofError):
        holds = False
    return NodeProof(file, at_s, holds)
