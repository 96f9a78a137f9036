# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The bits of ACS control by name, and those that isolate tenants from each other.

Names: PCI Express Base Specification 7.7.11.3; values: Linux include/uapi/linux/pci_regs.h (PCI_ACS_*).
The default is the value that the published settings of the Vela cluster set on every port (0x5d:
https://github.com/apoorvemohan/HCIR, vela_asplos2025/vmsetup): requests and completions between devices go up to the
IOMMU, but requests that the IOMMU has already translated (ATS) go straight from NIC to GPU.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.pci import registers as r

BITS = {
    "source_validation": r.PCI_ACS_SV,
    "translation_blocking": r.PCI_ACS_TB,
    "request_redirect": r.PCI_ACS_RR,
    "completion_redirect": r.PCI_ACS_CR,
    "upstream_forwarding": r.PCI_ACS_UF,
    "egress_control": r.PCI_ACS_EC,
    "direct_translated": r.PCI_ACS_DT,
}
DEFAULT = ("source_validation", "request_redirect", "completion_redirect", "upstream_forwarding", "direct_translated")
# If one of these is off, a device can reach its neighbour without the IOMMU; direct_translated does not isolate.
ISOLATING = tuple(name for name in BITS if name != "direct_translated")


def mask(names: list[str]) -> int:
    """Return the register value of a list of names. Raises KeyError for an unknown name."""
    value = 0
    for name in names:
        value |= BITS[name]
    return value


def names(value: int) -> list[str]:
    """Return the names of the bits that are on, lowest first."""
    return [name for name, bit in BITS.items() if value & bit]
