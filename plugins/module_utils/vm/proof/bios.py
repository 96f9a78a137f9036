# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of layer BIOS: those of topology/bios.py, about the devices of one virtual machine. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import bios
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row


def of_bios(evidence: Evidence) -> Iterable[Claim]:
    """Return the claims of topology/bios.py."""
    devices = evidence.planned.chosen.all()
    owners = {function.physical_function for function in devices if function.physical_function}
    subject = bios.Subject(
        evidence.host,
        evidence.host_name,
        devices,
        [evidence.host.function(address) for address in sorted(owners)],
        f"{evidence.planned.name} has no virtual function",
    )
    return [claim for claims in bios.claims(subject).values() for claim in claims]


CLAIMS: tuple[Row[Evidence], ...] = (of_bios,)
