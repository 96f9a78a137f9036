# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Config space for made-up functions."""

from __future__ import annotations

GPU = "pci0000:3a/0000:3a:00.0/0000:3b:00.0"


def config(size: int, **registers: int) -> bytes:
    data = bytearray(size)
    for name, value in registers.items():
        data[int(name[1:], 16)] = value
    return bytes(data)
