# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the capabilities: config space in, plain data out. None means that there is no such capability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.pci import registers as r
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.config import ConfigSpace, PciError


class LinkRegisters(NamedTuple):
    """Current and maximum gigatransfers per second and lanes; None if the register holds a reserved number."""

    speed_gt_s: float | None
    width: int | None
    max_speed_gt_s: float | None
    max_width: int | None


class Express(NamedTuple):
    """The PCI Express capability. ``offset`` is its place in config space."""

    offset: int
    version: int
    port_type: int  # bits 7:4 of the capabilities register
    device_capabilities: int
    device_control: int
    device_capabilities_2: int | None  # None in version 1
    device_control_2: int | None
    max_payload_supported_bytes: int | None
    max_payload_bytes: int | None
    max_read_request_bytes: int | None
    relaxed_ordering: bool
    link: LinkRegisters | None  # None for a function in the root complex, which has no link


class AcsCapability(NamedTuple):
    """Access Control Services: the bits that the port has and the bits that are on (``registers.PCI_ACS_*``)."""

    offset: int
    capability: int
    control: int


class AtsCapability(NamedTuple):
    """Address Translation Services; the smallest translation unit is 4096 << the number."""

    offset: int
    enabled: bool
    smallest_translation_unit: int


# Not a NamedTuple, because a tuple's ``index`` is a method.
@dataclass(frozen=True)
class VfBar:
    """The place of a VF base address register. Its size can be found only by writing to it."""

    index: int
    offset: int
    kind: str  # "memory" or "io"
    width_bits: int
    prefetchable: bool


class SriovCapability(NamedTuple):
    """Single Root I/O Virtualization of a physical function. Bus addresses of the VFs: see ``vf_routing_ids``."""

    offset: int
    enabled: bool
    initial_vfs: int
    total_vfs: int
    num_vfs: int
    first_vf_offset: int
    vf_stride: int
    vf_device_id: int
    vf_bars: tuple[VfBar, ...]

    def vf_routing_ids(self, routing_id: int) -> list[int]:
        """Return the routing ids (bus << 8 | device << 3 | function) of the enabled VFs of the PF at ``routing_id``.

        Source: PCI Express Base Specification 9.2.1.2 (First VF Offset, VF Stride).
        """
        if not self.enabled:
            return []
        return [routing_id + self.first_vf_offset + index * self.vf_stride for index in range(self.num_vfs)]


def size_bytes(code: int) -> int | None:
    """Return 128 << code, the size for Max_Payload_Size and Max_Read_Request_Size; None for the reserved 6 and 7."""
    return 128 << code if code <= 5 else None


def express(config: ConfigSpace) -> Express | None:
    """Read the PCI Express capability. Raises PciError if it does not fit into config space."""
    offset = config.capabilities().get(r.PCI_CAP_ID_EXP)
    if offset is None:
        return None
    flags = config.read(offset + r.PCI_EXP_FLAGS, 2)
    version = flags & r.PCI_EXP_FLAGS_VERS
    port_type = (flags & r.PCI_EXP_FLAGS_TYPE) >> 4
    has_all_registers = version >= 2
    needed = r.PCI_CAP_EXP_ENDPOINT_SIZEOF_V2 if has_all_registers else r.PCI_EXP_LNKCAP
    if offset + needed > r.PCI_CFG_SPACE_SIZE:
        raise PciError(f"the PCI Express capability at {offset:#x} (version {version}) does not fit below 0x100")
    capabilities = config.read(offset + r.PCI_EXP_DEVCAP, 4)
    control = config.read(offset + r.PCI_EXP_DEVCTL, 2)
    return Express(
        offset=offset,
        version=version,
        port_type=port_type,
        device_capabilities=capabilities,
        device_control=control,
        device_capabilities_2=config.read(offset + r.PCI_EXP_DEVCAP2, 4) if has_all_registers else None,
        device_control_2=config.read(offset + r.PCI_EXP_DEVCTL2, 2) if has_all_registers else None,
        max_payload_supported_bytes=size_bytes(capabilities & r.PCI_EXP_DEVCAP_PAYLOAD),
        max_payload_bytes=size_bytes((control & r.PCI_EXP_DEVCTL_PAYLOAD) >> 5),
        max_read_request_bytes=size_bytes((control & r.PCI_EXP_DEVCTL_READRQ) >> 12),
        relaxed_ordering=bool(control & r.PCI_EXP_DEVCTL_RELAX_EN),
        link=_link(config, offset, version, port_type),
    )


def _link(config: ConfigSpace, offset: int, version: int, port_type: int) -> LinkRegisters | None:
    if port_type in (r.PCI_EXP_TYPE_RC_END, r.PCI_EXP_TYPE_RC_EC):
        return None
    if offset + r.PCI_CAP_EXP_ENDPOINT_SIZEOF_V1 > r.PCI_CFG_SPACE_SIZE:
        raise PciError(f"the PCI Express capability at {offset:#x} has no room for its link registers")
    capabilities = config.read(offset + r.PCI_EXP_LNKCAP, 4)
    status = config.read(offset + r.PCI_EXP_LNKSTA, 2)
    maximum = capabilities & r.PCI_EXP_LNKCAP_SLS
    # Like pcie_get_speed_cap of Linux: the highest bit of the Supported Link Speeds Vector if there is one.
    if version >= 2 and offset + r.PCI_EXP_LNKCAP2 + 4 <= r.PCI_CFG_SPACE_SIZE:
        vector = (config.read(offset + r.PCI_EXP_LNKCAP2, 4) & r.PCI_EXP_LNKCAP2_SPEEDS) >> 1
        maximum = vector.bit_length() or maximum
    return LinkRegisters(
        speed_gt_s=r.LINK_SPEEDS_GT_S.get(status & r.PCI_EXP_LNKSTA_CLS),
        width=((status & r.PCI_EXP_LNKSTA_NLW) >> 4) or None,
        max_speed_gt_s=r.LINK_SPEEDS_GT_S.get(maximum),
        max_width=((capabilities & r.PCI_EXP_LNKCAP_MLW) >> 4) or None,
    )


def acs(config: ConfigSpace) -> AcsCapability | None:
    """Read Access Control Services. Raises PciError if it does not fit into config space."""
    offset = config.extended_capabilities().get(r.PCI_EXT_CAP_ID_ACS)
    if offset is None:
        return None
    return AcsCapability(offset, config.read(offset + r.PCI_ACS_CAP, 2), config.read(offset + r.PCI_ACS_CTRL, 2))


def ats(config: ConfigSpace) -> AtsCapability | None:
    """Read Address Translation Services. Raises PciError if it does not fit into config space."""
    offset = config.extended_capabilities().get(r.PCI_EXT_CAP_ID_ATS)
    if offset is None:
        return None
    control = config.read(offset + r.PCI_ATS_CTRL, 2)
    return AtsCapability(offset, bool(control & r.PCI_ATS_CTRL_ENABLE), control & r.PCI_ATS_CTRL_STU)


def sriov(config: ConfigSpace) -> SriovCapability | None:
    """Read Single Root I/O Virtualization. Raises PciError if it does not fit or a VF BAR lacks its second half."""
    offset = config.extended_capabilities().get(r.PCI_EXT_CAP_ID_SRIOV)
    if offset is None:
        return None
    return SriovCapability(
        offset=offset,
        enabled=bool(config.read(offset + r.PCI_SRIOV_CTRL, 2) & r.PCI_SRIOV_CTRL_VFE),
        initial_vfs=config.read(offset + r.PCI_SRIOV_INITIAL_VF, 2),
        total_vfs=config.read(offset + r.PCI_SRIOV_TOTAL_VF, 2),
        num_vfs=config.read(offset + r.PCI_SRIOV_NUM_VF, 2),
        first_vf_offset=config.read(offset + r.PCI_SRIOV_VF_OFFSET, 2),
        vf_stride=config.read(offset + r.PCI_SRIOV_VF_STRIDE, 2),
        vf_device_id=config.read(offset + r.PCI_SRIOV_VF_DID, 2),
        vf_bars=_vf_bars(config, offset + r.PCI_SRIOV_BAR),
    )


def _vf_bars(config: ConfigSpace, first: int) -> tuple[VfBar, ...]:
    bars = []
    index = 0
    while index < r.PCI_SRIOV_NUM_BARS:
        offset = first + 4 * index
        value = config.read(offset, 4)
        io = bool(value & r.PCI_BASE_ADDRESS_SPACE_IO)
        wide = not io and value & r.PCI_BASE_ADDRESS_MEM_TYPE_MASK == r.PCI_BASE_ADDRESS_MEM_TYPE_64
        if wide and index == r.PCI_SRIOV_NUM_BARS - 1:
            raise PciError(f"the VF BAR at {offset:#x} is 64 bits wide and has no second half")
        if value:
            prefetchable = not io and bool(value & r.PCI_BASE_ADDRESS_MEM_PREFETCH)
            bars.append(VfBar(index, offset, "io" if io else "memory", 64 if wide else 32, prefetchable))
        index += 2 if wide else 1
    return tuple(bars)
