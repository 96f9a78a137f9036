# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Values that claims of several layers share: MaxReadReq, differences, sizes as text. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB, KIB, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    MAX_READ_REQUEST_BYTES,
    BootCheck,
)

SAME = "no difference"

READ_ONLY = "MaxReadReq is read-only on this device: it was written, and kept its value"


def read_request(
    layer: str, claim: str, address: str, function: Function | None, settings: BootCheck | None, source: str
) -> Claim:
    """Claim that MaxReadReq of the function at ``address`` is as requested, by default the paper's maximum."""
    seen = bytes_text(function.max_read_request_bytes if function else None)
    wanted = MAX_READ_REQUEST_BYTES
    if settings and function:
        # A register is in ``read_only`` because it was written and kept its value, not because it is emulated.
        if address in settings.read_only:
            return not_applicable(layer, claim, bytes_text(wanted), source, READ_ONLY, seen)
        requested = settings.max_read_request_bytes
        if requested is not None and address not in requested:
            return not_applicable(
                layer, claim, bytes_text(wanted), source, "the inventory leaves MaxReadReq as it is", seen
            )
        wanted = requested[address] if requested else wanted
    return compare(layer, claim, bytes_text(wanted), seen, source)


def differences(lines: list[str] | None) -> str | list[str] | None:
    """Return ``SAME`` if there are no differences; None (not read) stays None."""
    return SAME if lines == [] else lines


def model(function: Function) -> str:
    """Return the PCI vendor and device of a function: "10de:2330"."""
    return f"{function.vendor_id:04x}:{function.device_id:04x}"


def bytes_text(value: int | None) -> str | None:
    """Return a number of bytes as text; None (not read) stays None."""
    return None if value is None else f"{value} B"


def size_text(size_bytes: int) -> str:
    """Return bytes in the largest unit that divides them: "2 MiB"."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"
