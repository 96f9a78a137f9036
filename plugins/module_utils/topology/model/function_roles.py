# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The roles of PCI functions beyond their class: one table for planner, host settings, GPUDirect and GPU nodes. Pure.

- physical or virtual, and whether virtual functions of it exist
- the ConnectX functions through which the NVSwitches of NVLink 5 boards are managed
- GPUs that NVIDIA's open kernel modules cannot drive
- GPUs whose memory is not reachable through their BARs

Sources of the device ids: pci.ids; NVIDIA/gpu-admin-tools, gpu/devid_chips.py and gpu/devid_properties.py, at 44f261a7.
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.pci import vpd
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

NVIDIA, AMD, MELLANOX = 0x10DE, 0x1002, 0x15B3
MANAGEMENT = "nvswitch_management"
# NVSwitches of NVLink 5 are no PCI functions. Their host interface is a ConnectX whose VPD has this field (NVIDIA
# "Shared NVSwitch GPU passthrough virtualization integration guide" for HGX, release 19.0, section 2.5.2, as quoted in
# kata-containers/pcilibs-rs, src/nvlink.rs). Not all functions of the device have the field: the guide's example has
# two of four (two for subnet managers, two others), siderolabs/extensions#893 shows four of four.
MANAGEMENT_FIELD = b"SMDL=SW_MNG"
# A plain ConnectX-7 has the same device id.
CONNECTX7 = 0x1021
# The chips GB100 and GB102, GB110 and GB112 (Blackwell), GR100 and GR102 (Rubin).
NVLINK5_CHIPS = (range(0x2900, 0x2A00), range(0x3180, 0x3280), range(0x3000, 0x3100))
# GPUs that are made for HGX boards with NVLink 5 only.
HGX_B200, HGX_B300 = frozenset({0x2901}), frozenset({0x3182})
# TU102 is the first chip with a GPU System Processor, which the open kernel modules need (NVIDIA Driver Installation
# Guide, "Kernel Modules"); all ids of Volta and older are lower (pci.ids: GV100 ends at 1dff).
FIRST_TURING = 0x1E00
# GH100, and AD102 with all newer chips. In their compute setting they have a BAR as large as their memory. Display mode
# (NVIDIA Display Mode Selector) and a BIOS without resizable BARs leave them one of 256 MiB. Older GPUs are not judged:
# a T4 has never more, and whether P2P of GA10x needs more is not known here.
LARGE_BAR_CHIPS = (range(0x22F0, 0x2380), range(0x2680, 0x10000))
SMALL_BAR_BYTES = 256 << 20
LARGE_BARS = (
    "turn on Above 4G Decoding and resizable BARs in the BIOS; a GPU in a display mode needs compute mode (NVIDIA "
    "Display Mode Selector)"
)


def is_virtual(function: Function) -> bool:
    """Return True for an SR-IOV virtual function."""
    return function.physical_function is not None


def is_physical(function: Function) -> bool:
    """Return True for a physical function that has no virtual functions now."""
    return function.physical_function is None and not (function.sriov and function.sriov.now)


IS_FUNCTION = {"vf": is_virtual, "pf": is_physical}


def has_nvlink5(function: Function) -> bool:
    """Return True for a GPU whose board can have NVSwitches that a ConnectX manages."""
    return function.kind == "gpu" and is_nvlink5_chip(function.vendor_id, function.device_id)


def is_nvlink5_chip(vendor_id: int, device_id: int) -> bool:
    """Return True for the PCI ids of a GPU with NVLink 5 or later."""
    return vendor_id == NVIDIA and any(device_id in chip for chip in NVLINK5_CHIPS)


def manages_nvswitches(data: bytes) -> bool | None:
    """Return True if a function with this VPD manages NVSwitches; None if it is no complete VPD."""
    fields = vpd.keywords(data)
    if fields is None:
        return None
    values = (value for name, value in fields.items() if name.startswith("V"))
    return any(MANAGEMENT_FIELD in value.rstrip(b"\0 ").split(b":") for value in values)


def mark_management(functions: Iterable[Function]) -> None:
    """Set the kind of the functions that manage NVSwitches: all of a device of which one has the field in VPD.

    Its virtual functions have the kind too, so that they are no NICs: whether the NVSwitches obey them is not known.
    """
    devices = [item for item in functions if item.vendor_id == MELLANOX]
    slots = {_slot(item.address) for item in devices if item.manages_nvswitches and not is_virtual(item)}
    for item in devices:
        if _slot(item.physical_function or item.address) in slots and item.kind == "nic":
            item.kind = MANAGEMENT


def _slot(address: str) -> str:
    return address.rpartition(".")[0]


def possible_management(host: Host) -> list[Function]:
    """Return the ConnectX-7 functions beside NVLink 5 GPUs whose VPD was not read, and their virtual functions.

    Each could manage NVSwitches.
    """
    if not any(has_nvlink5(item) for item in host.functions):
        return []
    unread = {
        item.address
        for item in host.functions
        if (item.vendor_id, item.device_id) == (MELLANOX, CONNECTX7)
        and item.kind == "nic"
        and item.manages_nvswitches is None
        and not is_virtual(item)
    }
    return [item for item in host.functions if (item.physical_function or item.address) in unread]


def has_nvswitches(host: Host) -> bool:
    """Return True if NVSwitches join GPUs of the host: as PCI functions, through ConnectX, or on a known HGX board."""
    boards = HGX_B200 | HGX_B300
    return has_switches(host.functions) or any(
        item.kind == "gpu" and item.vendor_id == NVIDIA and item.device_id in boards for item in host.functions
    )


def has_switches(functions: Iterable[Function]) -> bool:
    """Return True if the NVSwitches are reached from here, as PCI functions or through ConnectX."""
    return any(item.kind in ("nvswitch", MANAGEMENT) for item in functions)


def lacks_open_modules(vendor_id: int, device_id: int) -> bool:
    """Return True for an NVIDIA GPU that is older than Turing. Id 0 is not known, and does not count."""
    return vendor_id == NVIDIA and 0 < device_id < FIRST_TURING


def unreachable_memory_reason(function: Function) -> str | None:
    """Return why other devices cannot reach the memory of a GPU by PCIe; None if they can or it is not known."""
    if function.kind != "gpu" or is_virtual(function) or function.vendor_id not in (NVIDIA, AMD):
        return None
    if function.unassigned_bars:
        return f"neither firmware nor kernel assigned an address to its BAR {_listed(function.unassigned_bars)}"
    largest = max((item.size_bytes for item in function.bars if item.kind == "memory"), default=0)
    if function.vendor_id == NVIDIA and not any(function.device_id in chip for chip in LARGE_BAR_CHIPS):
        return None
    if 0 < largest <= SMALL_BAR_BYTES:
        return f"its largest BAR has {largest >> 20} MiB, which cannot hold its memory"
    return None


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
