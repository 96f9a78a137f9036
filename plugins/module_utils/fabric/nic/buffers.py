# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ingress buffers of a NIC: each lossless priority has its own, so that other traffic neither fills it nor pauses it.

Sizes are those of mlx5 (drivers/net/ethernet/mellanox/mlx5/core/en/port_buffer.c, calculate_xoff and
update_xoff_threshold), the only Linux NIC driver that supports `dcb buffer`.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Octet
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic

SLOWEST_GBIT_S = 40  # the driver's minimum
FRAME_BYTES = 9216  # MINIMUM_MAX_MTU
# Sizes are multiples of this, and so of every device's cells. Otherwise they would not read back as written.
GRAIN_BYTES = 4096


def xoff_bytes(speed_gbit_s: int, cable_m: int, mtu_bytes: int) -> int:
    """Return the bytes that arrive after a pause was sent.

    The driver's formula, in integers, is (301 + 2.16 * metres) * Gbit/s + 2.72 * MTU.
    """
    speed_mbit_s = 1000 * max(speed_gbit_s, SLOWEST_GBIT_S)
    return (301 + 216 * cable_m // 100) * speed_mbit_s // 1000 + 272 * mtu_bytes // 100


def lossless_bytes(speed_gbit_s: int, cable_m: int, mtu_bytes: int) -> int:
    """Return the smallest buffer of a lossless priority: the driver refuses less than xoff, a frame and a cell."""
    minimum = xoff_bytes(speed_gbit_s, cable_m, mtu_bytes) + FRAME_BYTES + 1
    return -(-minimum // GRAIN_BYTES) * GRAIN_BYTES


def buffers(
    seen: SeenNic, lossless: tuple[int, ...], speed_gbit_s: int, cable_m: int, mtu_bytes: int
) -> tuple[Octet, Octet]:
    """Return (the buffer of each priority, the bytes of each buffer).

    Lossless priorities use the buffers 1, 2, ..., and all others use buffer 0. Buffer 0 keeps its size, or gets what
    the others leave of the port's bytes. Raises FabricError where that is less than two frames.
    """
    buffer_bytes = lossless_bytes(speed_gbit_s, cable_m, mtu_bytes)
    number = {priority: index + 1 for index, priority in enumerate(lossless)}
    dcb = seen.dcb
    now = (dcb.buffer_bytes if dcb and dcb.buffer_bytes else seen.nic.buffer_bytes)[0]
    total = dcb.buffer_total_bytes if dcb else None
    lossy_bytes = now or 0
    if total:
        lossy_bytes = min(lossy_bytes, (total - buffer_bytes * len(lossless)) // GRAIN_BYTES * GRAIN_BYTES)
    if lossy_bytes < 2 * FRAME_BYTES:
        raise FabricError(
            f"a lossless priority at {speed_gbit_s} Gbit/s over {cable_m} m needs a buffer of {buffer_bytes} bytes, "
            f"which leaves {max(lossy_bytes, 0)} of the port's {total or now} bytes for all others",
            "leave cable_m out (the driver then keeps its own buffers), or have fewer lossless classes",
            subject=f"{seen.nic.name} ({seen.nic.interface})",
        )
    sizes = [lossy_bytes] + [buffer_bytes if buffer in number.values() else 0 for buffer in range(1, CLASSES)]
    return tuple(number.get(priority, 0) for priority in range(CLASSES)), tuple(sizes)
