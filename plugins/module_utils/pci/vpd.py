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
    found: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        tag = data[at]
        if tag == END:
            return found
        if tag & LARGE_RESOURCE:
            start = at + LARGE_HEADER_BYTES
            size = int.from_bytes(data[at + 1 : start], "little")
        else:
            start, size = at + 1, tag & 7
        at = start + size
        if at > len(data) or (tag == READ_ONLY_AREA and not _read_area(data[start:at], found)):
            return None
    return None


def _read_area(area: bytes, found: dict[str, bytes]) -> bool:
    """Add the keywords of an area to ``found``; return False if one is cut off."""
    at = 0
    while at < len(area):
        start = at + KEYWORD_HEADER_BYTES
        end = start + area[start - 1] if start <= len(area) else start
        if end > len(area):
            return False
        found[area[at : at + 2].decode("latin-1")] = area[start:end]
        at = end
    return True
