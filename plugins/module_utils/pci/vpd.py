# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Vital Product Data of a PCI function: the keywords of its read-only area. Pure.

Format: PCI Local Bus Specification 3.0, appendix I; the tags are PCI_VPD_LRDT_* in Linux drivers/pci/vpd.c.
"""

from __future__ import annotations

# The address of VPD has 15 bits (Linux include/linux/pci.h, PCI_VPD_MAX_SIZE).
VPD_BYTES_MAX = 1 << 15
LARGE_RESOURCE = 0x80
READ_ONLY_AREA = 0x90
END = 0x78
# A resource's tag and length, and a keyword with its length.
LARGE_HEADER_BYTES, KEYWORD_HEADER_BYTES = 3, 3


def keywords(data: bytes) -> dict[str, bytes] | None:
    """Return the values of the read-only area by keyword ("SN", "VA"); None if ``data`` is no complete VPD."""
    values: dict[str, bytes] = {}
    offset = 0
    while offset < len(data):
        tag = data[offset]
        if tag == END:
            return values
        if tag & LARGE_RESOURCE:
            start = offset + LARGE_HEADER_BYTES
            size = int.from_bytes(data[offset + 1 : start], "little")
        else:
            start, size = offset + 1, tag & 7
        offset = start + size
        if offset > len(data) or (tag == READ_ONLY_AREA and not _read_area(data[start:offset], values)):
            return None
    return None


def _read_area(area: bytes, values: dict[str, bytes]) -> bool:
    """Add the keywords of an area to ``values``; return False if one is cut off."""
    offset = 0
    while offset < len(area):
        start = offset + KEYWORD_HEADER_BYTES
        end = start + area[start - 1] if start <= len(area) else start
        if end > len(area):
            return False
        values[area[offset : offset + 2].decode("latin-1")] = area[start:end]
        offset = end
    return True
