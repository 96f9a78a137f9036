# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The PCI bus of a bare-metal GPU node: IOMMU, ACS by port and MaxReadReq, now and at every boot."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage.modes import MULTIPATH_OFF, P2PDMA
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import now_and_at_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import refuse_unsupported
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo.record import Remembering

DEVICES = ["gpu", "nic", "nvme", "nvswitch"]
UNCHANGED = "unchanged"


def ensure(system: System, node: dict[str, Any], in_image: bool, check: bool = False) -> Outcome:
    """Set ``iommu``, ``acs`` and ``max_read_request_bytes`` of ``node``, each unless it is unchanged or 0.

    In an image they are only saved for the boot, without kernel arguments. Facts: ``reboot_required``, and ``notes`` on
    what GPUDirect lacks. Raises HostError.
    """
    refuse_unsupported("gpu_node", system)
    recording = Remembering(system)
    acs_by_port = {"devices": ["gpu", "nic"], "purpose": "bare_metal"} if node["acs"] != UNCHANGED else None
    iommu = node["iommu"] if node["iommu"] != UNCHANGED else None
    size = node["max_read_request_bytes"]
    reads = [{"devices": DEVICES, "max_read_request_bytes": size}] if size else []
    outcome = Outcome(facts={"reboot_required": False})
    # nvme_core may be in the initramfs, whose modprobe.d can be old.
    off = [MULTIPATH_OFF] if node.get("storage") == P2PDMA else []
    if not in_image and (iommu or acs_by_port or off):
        arguments = {"iommu": iommu, "acs_by_port": acs_by_port, "arguments": off}
        outcome = kernel_arguments.ensure(recording, arguments, check)
    reboot_required, notes = outcome.facts["reboot_required"], []
    if reads or acs_by_port:
        tuning = {"settings": reads, **({"acs_by_port": acs_by_port} if acs_by_port else {})}
        saved = now_and_at_boot.ensure(recording, {"now": not in_image, "pci_tuning": tuning}, check)
        notes = saved.facts["outcomes"].get("pci_tuning", {}).get("acs_by_port", {}).get("unmet", [])
        outcome = outcome.and_then(saved)
    outcome.facts = {"reboot_required": reboot_required, "notes": notes}
    return outcome
