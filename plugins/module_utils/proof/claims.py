# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A proof is a list of claims: what was wanted, what was seen at the far end, and whether it holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Claim:
    """One statement about a machine.

    ``holds`` is True or False; None means that it does not apply here, and ``reason`` says why:
    such a claim is never counted as passed.
    """

    layer: str  # "bios", "nic_firmware", "hypervisor", "guest_xml", "guest_os"
    claim: str  # "GPU 0000:13:00.0 is on guest NUMA node 0"
    wanted: Any
    seen: Any
    holds: bool | None
    source: str  # where it was read: "guest /sys/bus/pci/devices/0000:21:00.0/numa_node"
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return asdict(self)


def compare(layer: str, claim: str, wanted: Any, seen: Any, source: str) -> Claim:
    """A claim that holds exactly if ``seen`` equals ``wanted``."""
    return Claim(layer, claim, wanted, seen, wanted == seen, source)


def not_applicable(layer: str, claim: str, wanted: Any, source: str, reason: str) -> Claim:
    """A claim that this machine cannot make, with the reason."""
    if not reason:
        raise ValueError(f"claim {claim!r} is not applicable: say why")
    return Claim(layer, claim, wanted, None, None, source, reason)
