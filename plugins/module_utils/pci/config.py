# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One function's config space as bytes, and the walks of its two capability lists."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.pci import registers as r

# Lengths of config space, or of the part that the reader has access to:
# 64 without privilege (128 for a CardBus bridge), 256 conventional, 4096 PCI Express.
SIZES = (64, 128, r.PCI_CFG_SPACE_SIZE, r.PCI_CFG_SPACE_EXP_SIZE)

READ_AGAIN = "read it again, as root"


class PciError(SailloftError):
    """Config space that is truncated or contradicts itself, or a value that a register does not allow."""

    def __init__(self, cause: str, remedy: str = READ_AGAIN, *, subject: str = "") -> None:
        super().__init__(cause, remedy, subject=subject)


class ConfigSpace:
    """Little-endian reads from config space.

    ``head`` is what could be read from offset 0, at most 256 bytes. ``size`` is the total number of bytes;
    those beyond ``head`` are fetched by ``fetch(offset, size_bytes)`` only when they are needed, so that
    a reader of a live device need not read 4096 bytes to look at three registers.
    """

    def __init__(self, head: bytes, size: int, fetch: Callable[[int, int], bytes]) -> None:
        if size not in SIZES or len(head) != min(size, r.PCI_CFG_SPACE_SIZE):
            raise PciError(f"config space is truncated: {len(head)} of {size} bytes, expected one of {list(SIZES)}")
        self._head = head
        self.size = size
        self._fetch = fetch
        self._extended: dict[int, int] | None = None

    @classmethod
    def of_bytes(cls, data: bytes) -> ConfigSpace:
        """Return config space from bytes in memory. Raises PciError if config space cannot have that length."""
        return cls(data[: r.PCI_CFG_SPACE_SIZE], len(data), lambda offset, size: data[offset : offset + size])

    def read(self, offset: int, size_bytes: int) -> int:
        """Return the unsigned little-endian number of ``size_bytes`` at ``offset``. Raises PciError beyond the end."""
        if offset < 0 or offset + size_bytes > self.size:
            raise PciError(f"config space ends at {self.size:#x}, before the register at {offset:#x}")
        if offset + size_bytes <= len(self._head):
            data = self._head[offset : offset + size_bytes]
        else:
            data = self._fetch(offset, size_bytes)
        if len(data) != size_bytes:
            raise PciError(f"config space is truncated: {len(data)} of {size_bytes} bytes at {offset:#x}")
        return int.from_bytes(data, "little")

    @property
    def answers(self) -> bool:
        """Return False if every byte of the header is 0xff, which is the value of all reads if the device is gone."""
        return self._head[: r.PCI_STD_HEADER_SIZEOF] != b"\xff" * r.PCI_STD_HEADER_SIZEOF

    @property
    def header_type(self) -> int:
        """Return 0 for a device, 1 for a PCI bridge, 2 for a CardBus bridge."""
        return self.read(r.PCI_HEADER_TYPE, 1) & r.PCI_HEADER_TYPE_MASK

    def capabilities(self) -> dict[int, int]:
        """Return the offset by capability identifier, the first of each; empty if only the header could be read.

        Raises PciError if the list loops or points into the header.
        """
        if self.size < r.PCI_CFG_SPACE_SIZE or not self.read(r.PCI_STATUS, 2) & r.PCI_STATUS_CAP_LIST:
            return {}
        cardbus = self.header_type == r.PCI_HEADER_TYPE_CARDBUS
        # The two low bits of a pointer are reserved (7.5.1.1.11).
        offset = self.read(r.PCI_CB_CAPABILITY_LIST if cardbus else r.PCI_CAPABILITY_LIST, 1) & 0xFC
        offsets: dict[int, int] = {}
        seen: set[int] = set()
        while offset:
            if offset < r.PCI_STD_HEADER_SIZEOF:
                raise PciError(f"the capability list points into the header, at {offset:#x}")
            if offset in seen:
                raise PciError(f"the capability list loops at {offset:#x}")
            seen.add(offset)
            identifier = self.read(offset, 1)
            if identifier == 0xFF:  # a capability that does not answer ends the list, as in Linux
                break
            offsets.setdefault(identifier, offset)
            offset = self.read(offset + 1, 1) & 0xFC
        return offsets

    def extended_capabilities(self) -> dict[int, int]:
        """Return the offset by extended capability identifier, the first of each; empty if none can be read.

        Raises PciError if the list loops or points below 0x100.
        """
        if self._extended is None:  # walked once: on a live device each step is a read from the device
            self._extended = self._walk_extended()
        return self._extended

    def _walk_extended(self) -> dict[int, int]:
        offsets: dict[int, int] = {}
        seen: set[int] = set()
        offset = r.PCI_CFG_SPACE_SIZE if self.size == r.PCI_CFG_SPACE_EXP_SIZE else 0
        while offset:
            if offset < r.PCI_CFG_SPACE_SIZE:
                raise PciError(f"the extended capability list points below 0x100, at {offset:#x}")
            if offset in seen:
                raise PciError(f"the extended capability list loops at {offset:#x}")
            seen.add(offset)
            header = self.read(offset, 4)
            if header in (0, 0xFFFFFFFF):  # no extended capabilities (7.6.3); no answer
                break
            # Bits 15:0 identifier, 19:16 version, 31:20 next offset (7.6.3).
            if header & 0xFFFF:  # identifier 0 is the null capability, which only points on (7.9.28)
                offsets.setdefault(header & 0xFFFF, offset)
            offset = (header >> 20) & 0xFFC
        return offsets
