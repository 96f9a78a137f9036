# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of a GPU virtual machine: one for each optimisation that the paper names, layer by layer. Pure.

The five layers and their content are those of arXiv 2407.05467, section 2.1.2. A claim compares the wanted value with
the value that was read where it takes effect: the hypervisor's config space and /sys, the arguments and the memory map
of the running QEMU process, the guest's own /sys. A missing observation makes its claim fail. A claim that this machine
cannot meet is not applicable, with the reason.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import (
    bios,
    gpudirect,
    guest_os,
    guest_xml,
    hypervisor,
    nic_firmware,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence

LAYERS = (bios.CLAIMS, nic_firmware.CLAIMS, hypervisor.CLAIMS, guest_xml.CLAIMS, guest_os.CLAIMS, gpudirect.CLAIMS)


def prove(evidence: Evidence) -> list[Claim]:
    """Return all claims, by layer. Raises TopologyError where the plan names a device that the host lacks."""
    return [claim for rows in LAYERS for row in rows for claim in row(evidence)]
