# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ACS bits that each port needs for GPUDirect, by topology and role of the port: one table. Pure.

Source of the rows: NVIDIA's own tool ``rdma_topo`` in rdma-core 65.0 (linux-rdma/rdma-core, kernel-boot/rdma_topo),
functions ``compute_acs`` and ``check`` of its three complexes. The tool recognises only the switches inside ConnectX
and BlueField boards. The rules depend on the role of a port alone, so they apply below any switch (0x5d, the first row,
is the value that IBM published for the switches of its HGX boards: apoorvemohan/HCIR, vela_asplos2025/vmsetup). One bit
is ours: translation blocking is off at a NIC's port. The tool leaves it, Linux leaves it off (except for untrusted
devices and pci=noats), and with it a port refuses the translated requests that the row is for (PCI Express Base
Specification, ACS Translation Blocking).

A mask is written as for the kernel argument ``pci=config_acs=``: bit 6 (direct translated P2P) first, bit 0 (source
validation) last; "1" on, "0" off, "x" unchanged (Linux Documentation/admin-guide/kernel-parameters.txt).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

VIRTUAL_MACHINES, BARE_METAL = "virtual_machines", "bare_metal"
PURPOSES = (VIRTUAL_MACHINES, BARE_METAL)

# In this order: a NIC and a GPU share a switch; a ConnectX-8 data-direct function is below the GPU's switch; they share
# no switch.
INLINE, DMA_DIRECT, NUMA = "inline", "dma_direct", "numa"

MASK = re.compile(r"[01x]{7}")


@dataclass(frozen=True)
class Mask:
    """The bits to turn on and off; the others stay."""

    text: str

    def __post_init__(self) -> None:
        if not MASK.fullmatch(self.text):
            raise ValueError(f"{self.text!r} is not a mask of seven ACS bits")

    @property
    def on(self) -> int:
        """Return the bits to turn on."""
        return int(self.text.replace("x", "0"), 2)

    @property
    def off(self) -> int:
        """Return the bits to turn off."""
        return int("".join("1" if bit == "0" else "0" for bit in self.text), 2)

    def applied(self, control: int, capability: int) -> int:
        """Return ``control`` changed by the mask; bits that the port does not have are not turned on."""
        return (control & ~self.off) | (self.on & capability)

    def lacking(self, capability: int) -> int:
        """Return the bits to turn on that the port does not have."""
        return self.on & ~capability

    def holds(self, control: int, capability: int) -> bool:
        """Return True if the mask would not change ``control``; bits that the port does not have are ignored."""
        return self.applied(control, capability) == control


# The bits that Linux itself sets if the IOMMU is on (pci_std_enable_acs in drivers/pci/pci.c): 0x1d.
KERNEL_DEFAULT = Mask("xx111x1")
# NVIDIA Vera's root ports have completion redirect read-only and off (``kernel_acs_isolated`` of rdma_topo).
VERA_DEFAULT = Mask("xx101x1")
VERA_ROOT_PORTS = {(0x10DE, 0x2F95), (0x10DE, 0x2F96)}


@dataclass(frozen=True)
class AcsRule:
    """A row: the masks of a port of this role, and the reason."""

    topology: str
    role: str
    virtual_machines: Mask
    bare_metal: Mask
    why: str

    def mask(self, purpose: str) -> Mask:
        """Return the mask for one of ``PURPOSES``."""
        return self.virtual_machines if purpose == VIRTUAL_MACHINES else self.bare_metal


OFF = Mask("xx000x0")
RULES = (
    AcsRule(INLINE, "nic_port", Mask("1x11101"), OFF, "requests of the NIC that the IOMMU has translated go straight"),
    AcsRule(INLINE, "gpu_port", KERNEL_DEFAULT, OFF, "requests of the GPU go through the IOMMU"),
    AcsRule(INLINE, "root_port", KERNEL_DEFAULT, OFF, "the root port keeps its slots apart"),
    AcsRule(INLINE, "other_port", KERNEL_DEFAULT, OFF, "other devices of the switch are kept apart"),
    AcsRule(
        DMA_DIRECT, "dma_port", Mask("xx110x1"), Mask("xx110x1"), "requests of the data-direct function go straight"
    ),
    AcsRule(DMA_DIRECT, "gpu_port", Mask("xx101x1"), Mask("xx101x1"), "completions of the GPU go straight"),
    AcsRule(DMA_DIRECT, "root_port", Mask("xx111x0"), Mask("xx111x0"), "one IOMMU group for all below it"),
    AcsRule(DMA_DIRECT, "other_port", KERNEL_DEFAULT, KERNEL_DEFAULT, "other devices of the switch are kept apart"),
    AcsRule(NUMA, "root_port", KERNEL_DEFAULT, KERNEL_DEFAULT, "traffic goes through the root complex in any case"),
    AcsRule(NUMA, "other_port", KERNEL_DEFAULT, KERNEL_DEFAULT, "no NIC shares this switch with a GPU"),
)
BY_ROLE = {(rule.topology, rule.role): rule for rule in RULES}


@dataclass(frozen=True)
class ExpectedPair:
    """The expected state of NIC and GPU; None allows any. ``groups`` is "different", "same" or "none or same"."""

    nic_ats: bool | None
    groups: str


# Source: ``check`` of each complex in ``rdma_topo``.
EXPECTED = {
    (INLINE, VIRTUAL_MACHINES): ExpectedPair(True, "different"),
    (INLINE, BARE_METAL): ExpectedPair(False, "none or same"),
    (DMA_DIRECT, VIRTUAL_MACHINES): ExpectedPair(None, "same"),
    (DMA_DIRECT, BARE_METAL): ExpectedPair(None, "same"),
    (NUMA, VIRTUAL_MACHINES): ExpectedPair(False, "different"),
    (NUMA, BARE_METAL): ExpectedPair(False, "different"),
}
