# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of layer NIC firmware. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    Evidence,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row

# PCI vendor of the NICs whose firmware the paper configures: NVIDIA (Mellanox).
CONNECTX_VENDOR = 0x15B3

# The paper's settings of the NIC firmware, by mlxconfig's names.
NIC_FIRMWARE = {
    "PCI_WR_ORDERING": "relaxed PCI ordering only where memory requests it",
    "MAX_ACC_OUT_READ": "more outstanding read bytes",
    "RDMA_SELECTIVE_REPEAT_EN": "selective repeat is on",
    "ATS_ENABLED": "ATS is as the topology needs it",
}


def of_firmware(evidence: Evidence) -> list[Claim]:
    """Return a claim for each setting of each NVIDIA ConnectX NIC's firmware."""
    nics = sorted(
        {
            _firmware_owner(evidence.host, function)
            for function in evidence.host.functions
            if function.kind == "nic" and function.vendor_id == CONNECTX_VENDOR
        }
    )
    if not nics:
        reason = (
            f"{evidence.host_name} has no NVIDIA ConnectX NIC (PCI vendor 15b3), whose firmware these are settings of"
        )
        return [
            not_applicable("nic_firmware", f"{text} ({key})", "set", "mstconfig query", reason)
            for key, text in NIC_FIRMWARE.items()
        ]
    claims = []
    for nic in nics:
        settings = evidence.nic_firmware.get(nic, {})
        for key in sorted({*NIC_FIRMWARE, *settings}):
            text = NIC_FIRMWARE.get(key, "as requested")
            if settings and key not in settings:
                reason = (
                    "not requested on this NIC: the table of its family has no value, or its firmware no such setting"
                )
                source = f"{evidence.host_name} mstconfig query {nic}"
                claims.append(not_applicable("nic_firmware", f"NIC {nic}: {text} ({key})", "set", source, reason))
                continue
            setting = settings.get(key, {})
            claims.append(
                compare(
                    "nic_firmware",
                    f"NIC {nic}: {text} ({key})",
                    setting.get("wanted", "set"),
                    setting.get("seen"),
                    f"{evidence.host_name} mstconfig query {nic}",
                )
            )
    return claims


def _firmware_owner(host: Host, function: Function) -> str:
    """Return the address under which a NIC's firmware is listed: that of its first function."""
    address = function.physical_function or function.address
    first = f"{address[:-1]}0"
    return first if first in host.by_address() else address


CLAIMS: tuple[Row[Evidence], ...] = (of_firmware,)
