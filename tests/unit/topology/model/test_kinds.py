# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import NAMES, kind

NVIDIA, AMD, MELLANOX, INTEL, HABANA, NEC, VIRTIO = 0x10DE, 0x1002, 0x15B3, 0x8086, 0x1DA3, 0x1BCF, 0x1AF4


@pytest.mark.parametrize(
    ("class_code", "vendor_id", "device_id", "wanted"),
    [
        # Accelerators, with the ids of pci.ids.
        (0x030200, NVIDIA, 0x2330, "gpu"),  # H100 SXM5
        (0x030200, NVIDIA, 0x2335, "gpu"),  # H200
        (0x030000, NVIDIA, 0x2BB5, "gpu"),  # a graphics card
        (0x038000, AMD, 0x66A1, "gpu"),  # MI50
        (0x038000, AMD, 0x7408, "gpu"),  # MI250X
        (0x120000, AMD, 0x74A1, "gpu"),  # MI300X
        (0x120000, AMD, 0x74B5, "gpu"),  # a virtual function of it
        (0x038000, INTEL, 0x0BD5, "gpu"),  # Max 1550
        *((0x038000, INTEL, device, "gpu") for device in (0x0B69, 0x0B6E, 0x0BD4, 0x0BDB, 0x0BE0, 0x0BE1, 0x0BE5)),
        *((0x038000, INTEL, device, "other") for device in (0x0B6F, 0x0BD3, 0x0BE2, 0x0BE6, 0x56BF)),
        (0x038000, INTEL, 0x56C0, "gpu"),  # Flex 170
        (0x038000, INTEL, 0x56C2, "gpu"),
        (0x038000, INTEL, 0x56C1, "gpu"),  # Flex 140
        (0x120000, HABANA, 0x1020, "gpu"),  # Gaudi 2
        (0x120000, HABANA, 0x1060, "gpu"),  # Gaudi 3
        (0x0B4000, NEC, 0x001C, "gpu"),  # Vector Engine
        (0x038000, VIRTIO, 0x1043, "gpu"),  # the emulated server's stand-in
        (0x030200, 0x0000, 0x0000, "gpu"),  # in an NCCL file without ids
        # Consoles, and other devices that are no accelerators.
        (0x030000, 0x1D0F, 0x1111, "other"),  # Amazon
        (0x030000, 0x1A03, 0x2000, "other"),  # ASPEED
        (0x030000, 0x102B, 0x0522, "other"),  # Matrox
        (0x030000, 0x1002, 0x515E, "other"),  # ES1000
        (0x030000, INTEL, 0x4680, "other"),  # a processor's graphics
        (0x038000, INTEL, 0x56C3, "other"),
        (0x038000, INTEL, 0x0BDC, "other"),
        (0x030000, VIRTIO, 0x1050, "other"),  # virtio-vga
        (0x038000, VIRTIO, 0x1050, "other"),  # virtio-gpu
        (0x030000, 0x1B36, 0x0100, "other"),  # QXL
        (0x030000, 0x1234, 0x1111, "other"),  # QEMU
        (0x038000, 0x1234, 0x1111, "other"),  # QEMU, bochs-display
        (0x030000, 0x1013, 0x00B8, "other"),  # Cirrus
        (0x030000, 0x15AD, 0x0405, "other"),
        (0x030000, 0x1414, 0x5353, "other"),  # Hyper-V
        (0x030000, 0x19E5, 0x1711, "other"),
        (0x030000, 0x126F, 0x0750, "other"),
        (0x030200, 0xABCD, 0x0001, "other"),  # an unknown vendor
        (0x120000, 0x10EE, 0x5004, "other"),  # an FPGA
        (0x0B4000, INTEL, 0x4940, "other"),  # QuickAssist
        # Other kinds.
        (0x068000, NVIDIA, 0x22A3, "nvswitch"),
        (0x068000, INTEL, 0x0001, "other"),
        (0x020000, MELLANOX, 0x101D, "nic"),
        (0x020700, MELLANOX, 0x101D, "nic"),
        (0x0C0600, MELLANOX, 0x6340, "nic"),
        (0x010802, INTEL, 0x0A54, "nvme"),
        (0x010601, INTEL, 0xA182, "other"),  # SATA
        (0x060400, INTEL, 0x2030, "bridge"),
        (0x060401, INTEL, 0x244E, "bridge"),
        (0x060940, INTEL, 0x0000, "bridge"),
        (0x060000, INTEL, 0x2020, "other"),  # host bridge
        (0x060100, INTEL, 0xA1C3, "other"),  # ISA bridge
        (0x088000, NVIDIA, 0x0000, "other"),
    ],
)
def test_the_kind_is_derived_from_class_and_ids(class_code, vendor_id, device_id, wanted):
    assert kind(class_code, vendor_id, device_id) == wanted
    assert wanted in NAMES


def test_the_registry_lists_every_kind_in_the_order_of_lists():
    assert [(one.name, one.label, one.short, one.setting) for one in kinds.KINDS] == [
        ("gpu", "GPU", "GPU", "gpus"),
        ("nic", "NIC", "NIC", "nics"),
        ("nvme", "NVMe drive", "NVMe", "nvme"),
        ("nvswitch", "NVSwitch", "NVSwitch", None),
        ("nvswitch_management", "NVSwitch management function", "NVSw mgmt", None),
        ("bridge", "bridge", "Bridge", None),
        ("other", "device", "PCI", None),
    ]
    assert [one.name for one in kinds.DEVICES] == ["gpu", "nic", "nvme", "nvswitch", "nvswitch_management"]
    assert kinds.SETTINGS == {"gpu": "gpus", "nic": "nics", "nvme": "nvme"}


def test_the_port_types_are_those_of_linux():
    """The numbers are PCI_EXP_TYPE_* of Linux include/uapi/linux/pci_regs.h."""
    assert kinds.PORT_TYPES == {
        0: "endpoint",
        1: "legacy_endpoint",
        4: "root_port",
        5: "switch_upstream",
        6: "switch_downstream",
        7: "pcie_to_pci_bridge",
        8: "pci_to_pcie_bridge",
        9: "root_complex_endpoint",
        10: "root_complex_event_collector",
    }
    assert {"0x03", "0x0b", "0x12"} == {f"{code:#04x}" for code in kinds.ACCELERATOR_CLASSES}
