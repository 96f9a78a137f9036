# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kinds of PCI functions: the registry of their names, and the rules that give a function its kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FunctionKind:
    """A kind of device.

    ``label`` is its name in text, a noun whose plural ends in "s"; ``short`` is its name in pictures, ``light`` and
    ``dark`` are its colours there. ``setting`` is the field in a request for a virtual machine that assigns such
    devices (vm/request/spec.py); None: there is no field.
    """

    name: str
    label: str
    short: str
    setting: str | None = None
    light: str = "#7d8896"
    dark: str = "#7d8896"


# The registry of kinds, in the order of lists; "bridge" and "other" are last. docs/structure.md: how to add a kind.
KINDS = (
    FunctionKind("gpu", "GPU", "GPU", "gpus", "#1d7a4c", "#5cc793"),
    FunctionKind("nic", "NIC", "NIC", "nics", "#24527a", "#8fbce6"),
    FunctionKind("nvme", "NVMe drive", "NVMe", "nvme", "#8a5a00", "#e3b341"),
    FunctionKind("nvswitch", "NVSwitch", "NVSwitch", None, "#6b3fa0", "#c3a6ee"),
    # Given by VPD, not by class: function_roles.mark_management.
    FunctionKind("nvswitch_management", "NVSwitch management function", "NVSw mgmt", None, "#6b3fa0", "#c3a6ee"),
    FunctionKind("bridge", "bridge", "Bridge"),
    FunctionKind("other", "device", "PCI"),
)
BY_NAME = {kind.name: kind for kind in KINDS}
# All kinds of a function.
NAMES = frozenset(BY_NAME)
# The field of a request by kind.
SETTINGS = {kind.name: kind.setting for kind in KINDS if kind.setting}
# The kinds of devices that are planned: neither bridges nor others.
DEVICES = tuple(kind for kind in KINDS if kind.name not in ("bridge", "other"))

# (base class, sub class, vendor, devices, kind); None matches all, and the first row that matches is used.
# Classes: PCI Code and ID Assignment Specification, part 1; the names are Linux include/linux/pci_ids.h.
CLASSES: tuple[tuple[int, int | None, int | None, frozenset[int] | None, str], ...] = (
    # NVIDIA's NVSwitch has the class of a bridge but is an endpoint: PCI_CLASS_BRIDGE_NVSWITCH of
    # NVIDIA/open-gpu-kernel-modules, export_nvswitch.h.
    (0x06, 0x80, 0x10DE, None, "nvswitch"),
    (0x06, 0x04, None, None, "bridge"),  # PCI_CLASS_BRIDGE_PCI: root ports, switches
    (0x06, 0x09, None, None, "bridge"),  # semi-transparent PCI-to-PCI bridge
    (0x01, 0x08, None, None, "nvme"),  # PCI_CLASS_STORAGE_EXPRESS
    (0x02, None, None, None, "nic"),  # PCI_BASE_CLASS_NETWORK; 0x0207 is InfiniBand
    (0x0C, 0x06, None, None, "nic"),  # PCI_CLASS_SERIAL_INFINIBAND: InfiniBand before it was a network class
    # Functions planned as GPUs. Any other display is a console of a management controller, of a cloud or of a
    # hypervisor, and has the kind "other". Vendors: pci.ids.
    # nv_pci_table of NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv-pci-table.c: every display and 3D
    # controller of NVIDIA's.
    (0x03, 0x00, 0x10DE, None, "gpu"),
    (0x03, 0x02, 0x10DE, None, "gpu"),
    # AMD Instinct: PCI_CLASS_DISPLAY_OTHER up to MI200 and PCI_CLASS_ACCELERATOR_PROCESSING from MI300 on, as in
    # pciidlist of Linux drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c. PCI_CLASS_DISPLAY_VGA is not in the table, because the
    # ES1000 consoles have it, too.
    (0x03, 0x80, 0x1002, None, "gpu"),
    (0x12, 0x00, 0x1002, None, "gpu"),
    # Intel Data Center GPU Max and Flex: INTEL_PVC_IDS, INTEL_ATS_M150_IDS and INTEL_ATS_M75_IDS of Linux
    # include/drm/intel/pciids.h. Intel's other displays are not in the table: most are part of a processor.
    (
        0x03,
        0x80,
        0x8086,
        frozenset({0x0B69, 0x0B6E, *range(0x0BD4, 0x0BDC), 0x0BE0, 0x0BE1, 0x0BE5, *range(0x56C0, 0x56C3)}),
        "gpu",
    ),
    # Habana Gaudi: ids of Linux drivers/accel/habanalabs/common/habanalabs_drv.c, all of class processing accelerator.
    (0x12, 0x00, 0x1DA3, None, "gpu"),
    # NEC Vector Engine, by vendor, because Intel QuickAssist has the class PCI_CLASS_PROCESSOR_CO, too.
    (0x0B, 0x40, 0x1BCF, None, "gpu"),
    # The emulated lab's stand-in for a GPU: a virtio function with the class of a display controller, not virtio-gpu
    # (1050).
    (0x03, 0x80, 0x1AF4, frozenset({0x1043}), "gpu"),
    # No vendor: NCCL's topology files may leave ids out, and NCCL treats every 3D controller in them as a GPU.
    (0x03, 0x02, 0x0000, None, "gpu"),
)
# Classes that the inventory can declare as GPUs: displays, processing accelerators and co-processors.
ACCELERATOR_CLASSES = frozenset({0x03, 0x12, 0x0B})

# Classes of /sys/class whose devices are listed as a function's interfaces, with the name under which they are listed.
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


def kind(class_code: int, vendor_id: int, device_id: int) -> str:
    """Return the kind of a function, one of ``NAMES``.

    ``class_code`` has 24 bits (0x030200). Processing accelerators in ``CLASSES`` count as GPUs: they are planned the
    same way.
    """
    base, sub = class_code >> 16, class_code >> 8 & 0xFF
    for row_base, row_sub, row_vendor, devices, row_kind in CLASSES:
        same_class = base == row_base and row_sub in (None, sub)
        if same_class and row_vendor in (None, vendor_id) and (devices is None or device_id in devices):
            return row_kind
    return "other"
