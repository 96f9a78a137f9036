# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All claims of a virtual machine on vSphere, in the layers of proof/claims.py, from what was read about it. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere import guest, host, machine
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import VsphereEvidence

FILES = (host.CLAIMS, machine.CLAIMS, guest.CLAIMS)


def prove(evidence: VsphereEvidence) -> list[Claim]:
    """Return all claims, by layer. Raises TopologyError where the plan names a device that the host lacks."""
    return [claim for rows in FILES for row in rows for claim in row(evidence)]
