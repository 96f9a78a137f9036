# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.kinds import kind

NVIDIA, AMD, MELLANOX, INTEL, ASPEED = 0x10DE, 0x1002, 0x15B3, 0x8086, 0x1A03


@pytest.mark.parametrize(
    ("class_code", "vendor_id", "wanted"),
    [
        (0x030200, NVIDIA, "gpu"),  # H100
        (0x030000, NVIDIA, "gpu"),  # a graphics card
        (0x120000, AMD, "gpu"),  # MI250X
        (0x038000, AMD, "gpu"),  # MI50
        (0x120000, 0x1DA3, "gpu"),  # Gaudi
        (0x0B4000, 0x1BCF, "gpu"),  # Vector Engine
        (0x0B4000, INTEL, "other"),  # QuickAssist
        (0x030000, ASPEED, "other"),  # a management controller's display
        (0x030000, 0x102B, "other"),
        (0x068000, NVIDIA, "nvswitch"),
        (0x068000, INTEL, "other"),
        (0x020000, MELLANOX, "nic"),
        (0x020700, MELLANOX, "nic"),
        (0x0C0600, MELLANOX, "nic"),
        (0x010802, INTEL, "nvme"),
        (0x010601, INTEL, "other"),  # SATA
        (0x060400, INTEL, "bridge"),
        (0x060401, INTEL, "bridge"),
        (0x060940, INTEL, "bridge"),
        (0x060000, INTEL, "other"),  # host bridge
        (0x030000, 0x1AF4, "other"),  # virtio-vga
        (0x030000, 0x1B36, "other"),
        (0x030000, 0x1234, "other"),
        (0x030000, 0x1013, "other"),
        (0x030000, 0x15AD, "other"),
        (0x030000, 0x19E5, "other"),
        (0x030000, 0x126F, "other"),
        (0x038000, 0x1AF4, "gpu"),  # the emulated server's stand-in
        (0x060100, INTEL, "other"),  # ISA bridge
        (0x088000, NVIDIA, "other"),
    ],
)
def test_kinds(class_code, vendor_id, wanted):
    assert kind(class_code, vendor_id) == wanted
