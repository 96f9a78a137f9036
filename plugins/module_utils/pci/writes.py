# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Encode changes of registers without writing them: config space and the request in, a RegisterWrite out.

Each function changes its own bits and keeps the other bits of the register. A write is returned even if the register
has the value already: the caller compares ``value`` with ``current``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.pci import capabilities
from ansible_collections.sailloft.fleet.plugins.module_utils.pci import registers as r
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.config import ConfigSpace, PciError

# Max_Read_Request_Size codes 0 to 5 (PCI Express Base Specification 7.5.3.4).
READ_REQUEST_BYTES = (128, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True)
class RegisterWrite:
    """A write of ``value`` (``size_bytes``, little-endian) at ``offset`` of config space, which now has ``current``."""

    offset: int
    size_bytes: int
    value: int
    current: int

    @property
    def changes(self) -> bool:
        """Return True if the register does not hold the value yet."""
        return self.value != self.current

    def to_bytes(self) -> bytes:
        """Return the bytes to write."""
        return self.value.to_bytes(self.size_bytes, "little")


def max_read_request(config: ConfigSpace, size_bytes: int) -> RegisterWrite:
    """Return DevCtl with this Max_Read_Request_Size. Raises PciError for a size not in the specification."""
    if size_bytes not in READ_REQUEST_BYTES:
        raise PciError(
            f"the maximum read request cannot be {size_bytes} bytes", f"use one of {list(READ_REQUEST_BYTES)}"
        )
    return _device_control(config, r.PCI_EXP_DEVCTL_READRQ, READ_REQUEST_BYTES.index(size_bytes) << 12)


def relaxed_ordering(config: ConfigSpace, enabled: bool) -> RegisterWrite:
    """Return DevCtl with relaxed ordering on or off. A device may keep the bit at 0: read it back after the write."""
    return _device_control(config, r.PCI_EXP_DEVCTL_RELAX_EN, r.PCI_EXP_DEVCTL_RELAX_EN if enabled else 0)


def acs_control(config: ConfigSpace, control: int) -> RegisterWrite:
    """Return ACS control with exactly the bits of ``control`` (of ``PCI_ACS_BITS``; higher bits are kept).

    Raises PciError if there is no ACS capability or it lacks one of the bits.
    """
    acs = capabilities.acs(config)
    if acs is None:
        raise PciError(f"no ACS capability in {config.size} bytes of config space", "leave the device out")
    lacking = control & ~(acs.capability & r.PCI_ACS_BITS)
    if control < 0 or lacking:
        raise PciError(
            f"ACS control {control:#x} has bits that the capability {acs.capability:#x} lacks: {lacking:#x}",
            "request only the bits it has",
        )
    value = (acs.control & ~r.PCI_ACS_BITS) | control
    return RegisterWrite(acs.offset + r.PCI_ACS_CTRL, 2, value, acs.control)


def _device_control(config: ConfigSpace, mask: int, bits: int) -> RegisterWrite:
    express = capabilities.express(config)
    if express is None:
        raise PciError(f"no PCI Express capability in {config.size} bytes of config space", "leave the device out")
    current = express.device_control
    return RegisterWrite(express.offset + r.PCI_EXP_DEVCTL, 2, (current & ~mask) | bits, current)
