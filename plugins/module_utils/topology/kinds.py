# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a PCI function is for, by class code and vendor."""

from __future__ import annotations

# (base class, sub class or None for all, vendor or None for all, kind); the first row that fits wins.
# Classes: PCI Code and ID Assignment Specification, part 1; the names are Linux include/linux/pci_ids.h.
KINDS: tuple[tuple[int, int | None, int | None, str], ...] = (
    # NVIDIA's NVSwitch calls itself a bridge and is an endpoint: PCI_CLASS_BRIDGE_NVSWITCH of
    # NVIDIA/open-gpu-kernel-modules, export_nvswitch.h.
    (0x06, 0x80, 0x10DE, "nvswitch"),
    (0x06, 0x04, None, "bridge"),  # PCI_CLASS_BRIDGE_PCI: root ports, switches
    (0x06, 0x09, None, "bridge"),  # semi-transparent PCI-to-PCI bridge
    (0x01, 0x08, None, "nvme"),  # PCI_CLASS_STORAGE_EXPRESS
    (0x02, None, None, "nic"),  # PCI_BASE_CLASS_NETWORK; 0x0207 is InfiniBand
    (0x0C, 0x06, None, "nic"),  # PCI_CLASS_SERIAL_INFINIBAND: InfiniBand before it was a network class
    # Displays that only show a console: of management controllers, and of virtual machines. Vendors: pci.ids.
    (0x03, 0x00, 0x1A03, "other"),  # ASPEED AST2xxx
    (0x03, 0x00, 0x102B, "other"),  # Matrox G200e/G200eW
    (0x03, 0x00, 0x19E5, "other"),  # Huawei Hi171x
    (0x03, 0x00, 0x126F, "other"),  # Silicon Motion SM750
    (0x03, 0x00, 0x1234, "other"),  # QEMU standard VGA
    (0x03, 0x00, 0x1B36, "other"),  # Red Hat QXL
    (0x03, 0x00, 0x1AF4, "other"),  # virtio-vga
    (0x03, 0x00, 0x1013, "other"),  # Cirrus Logic, as emulated by QEMU
    (0x03, 0x00, 0x15AD, "other"),  # VMware SVGA II
    (0x03, 0x00, None, "gpu"),  # PCI_CLASS_DISPLAY_VGA
    (0x03, 0x02, None, "gpu"),  # PCI_CLASS_DISPLAY_3D: NVIDIA data center GPUs
    (0x03, 0x80, None, "gpu"),  # PCI_CLASS_DISPLAY_OTHER: AMD Instinct
    (0x12, None, None, "gpu"),  # PCI_CLASS_ACCELERATOR_PROCESSING: AMD Instinct, Intel Gaudi
    # PCI_CLASS_PROCESSOR_CO is Intel QuickAssist too, so by vendor only: NEC Vector Engine.
    (0x0B, 0x40, 0x1BCF, "gpu"),
)

# Classes of /sys/class whose devices are listed as a function's interfaces, and under which name.
INTERFACES = {"block": "block", "net": "net", "infiniband": "rdma"}

# PCI Express device/port types: PCI Express Base Specification, PCI Express Capabilities Register bits 7:4;
# the same numbers as PCI_EXP_TYPE_* in Linux include/uapi/linux/pci_regs.h.
PORT_TYPES = {
    0x0: "endpoint",
    0x1: "legacy_endpoint",
    0x4: "root_port",
    0x5: "switch_upstream",
    0x6: "switch_downstream",
    0x7: "pcie_to_pci_bridge",
    0x8: "pci_to_pcie_bridge",
    0x9: "root_complex_endpoint",
    0xA: "root_complex_event_collector",
}


def kind(class_code: int, vendor_id: int) -> str:
    """The kind of a function: "gpu", "nic", "nvme", "nvswitch", "bridge" or "other".

    ``class_code`` is 24 bits (0x030200). A processing accelerator counts as a GPU: it is planned the same way.
    """
    base, sub = class_code >> 16, class_code >> 8 & 0xFF
    for row_base, row_sub, row_vendor, row_kind in KINDS:
        if base == row_base and row_sub in (None, sub) and row_vendor in (None, vendor_id):
            return row_kind
    return "other"
