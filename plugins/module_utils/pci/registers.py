# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCI config space registers, by the names of Linux ``include/uapi/linux/pci_regs.h``.

Offsets in bytes; each group names the part of the PCI Express Base Specification (6.0) that defines it.
"""

from __future__ import annotations

# Type 0/1 configuration space header (7.5.1).
PCI_STATUS = 0x06
PCI_STATUS_CAP_LIST = 0x10
PCI_HEADER_TYPE = 0x0E
PCI_HEADER_TYPE_MASK = 0x7F
PCI_HEADER_TYPE_BRIDGE = 1
PCI_HEADER_TYPE_CARDBUS = 2
PCI_SECONDARY_BUS = 0x19
PCI_SUBORDINATE_BUS = 0x1A
PCI_CAPABILITY_LIST = 0x34
PCI_CB_CAPABILITY_LIST = 0x14
PCI_STD_HEADER_SIZEOF = 0x40
PCI_CFG_SPACE_SIZE = 256
PCI_CFG_SPACE_EXP_SIZE = 4096

# Capability identifiers (PCI Code and ID Assignment Specification).
PCI_CAP_ID_EXP = 0x10
PCI_EXT_CAP_ID_ACS = 0x0D
PCI_EXT_CAP_ID_ATS = 0x0F
PCI_EXT_CAP_ID_SRIOV = 0x10

# PCI Express capability (7.5.3).
PCI_EXP_FLAGS = 0x02
PCI_EXP_FLAGS_VERS = 0x000F
PCI_EXP_FLAGS_TYPE = 0x00F0
PCI_EXP_DEVCAP = 0x04
PCI_EXP_DEVCAP_PAYLOAD = 0x00000007
PCI_EXP_DEVCTL = 0x08
PCI_EXP_DEVCTL_RELAX_EN = 0x0010
PCI_EXP_DEVCTL_PAYLOAD = 0x00E0
PCI_EXP_DEVCTL_READRQ = 0x7000
PCI_EXP_LNKCAP = 0x0C
PCI_EXP_LNKCAP_SLS = 0x0000000F
PCI_EXP_LNKCAP_MLW = 0x000003F0
PCI_EXP_LNKSTA = 0x12
PCI_EXP_LNKSTA_CLS = 0x000F
PCI_EXP_LNKSTA_NLW = 0x03F0
PCI_EXP_DEVCAP2 = 0x24
PCI_EXP_DEVCAP2_ATOMIC_ROUTE = 0x00000040
PCI_EXP_DEVCAP2_ATOMIC_COMP32 = 0x00000080
PCI_EXP_DEVCAP2_ATOMIC_COMP64 = 0x00000100
PCI_EXP_DEVCAP2_ATOMIC_COMP128 = 0x00000200
PCI_EXP_DEVCTL2 = 0x28
PCI_EXP_DEVCTL2_ATOMIC_REQ = 0x0040
PCI_EXP_DEVCTL2_ATOMIC_EGRESS_BLOCK = 0x0080
PCI_EXP_LNKCAP2 = 0x2C
# Supported Link Speeds Vector: bit n (from 0) of the field is the speed numbered n + 1.
PCI_EXP_LNKCAP2_SPEEDS = 0x000000FE

# Sizes of the PCI Express capability structure: version 1 ends after the slot registers, version 2 has them all.
PCI_CAP_EXP_ENDPOINT_SIZEOF_V1 = 0x14
PCI_CAP_EXP_ENDPOINT_SIZEOF_V2 = 0x2C

# Link speeds by their number in LNKCAP and LNKSTA, gigatransfers per second (7.5.3.6).
LINK_SPEEDS_GT_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}

# Port types with no link of their own (7.5.3.2): a root complex integrated endpoint, an event collector.
PCI_EXP_TYPE_RC_END = 0x9
PCI_EXP_TYPE_RC_EC = 0xA

# Access Control Services (7.7.11).
PCI_ACS_CAP = 0x04
PCI_ACS_CTRL = 0x06
PCI_ACS_SV = 0x0001  # source validation
PCI_ACS_TB = 0x0002  # translation blocking
PCI_ACS_RR = 0x0004  # P2P request redirect
PCI_ACS_CR = 0x0008  # P2P completion redirect
PCI_ACS_UF = 0x0010  # upstream forwarding
PCI_ACS_EC = 0x0020  # P2P egress control
PCI_ACS_DT = 0x0040  # direct translated P2P
# The bits that are at the same place in the capability and in the control register.
PCI_ACS_BITS = 0x007F

# Address Translation Services (10.5.1).
PCI_ATS_CTRL = 0x06
PCI_ATS_CTRL_ENABLE = 0x8000
PCI_ATS_CTRL_STU = 0x001F

# Single Root I/O Virtualization (9.3.3).
PCI_SRIOV_CTRL = 0x08
PCI_SRIOV_CTRL_VFE = 0x0001
PCI_SRIOV_INITIAL_VF = 0x0C
PCI_SRIOV_TOTAL_VF = 0x0E
PCI_SRIOV_NUM_VF = 0x10
PCI_SRIOV_VF_OFFSET = 0x14
PCI_SRIOV_VF_STRIDE = 0x16
PCI_SRIOV_VF_DID = 0x1A
PCI_SRIOV_BAR = 0x24
PCI_SRIOV_NUM_BARS = 6

# Base address register bits (7.5.1.2.1).
PCI_BASE_ADDRESS_SPACE_IO = 0x1
PCI_BASE_ADDRESS_MEM_TYPE_MASK = 0x6
PCI_BASE_ADDRESS_MEM_TYPE_64 = 0x4
PCI_BASE_ADDRESS_MEM_PREFETCH = 0x8
