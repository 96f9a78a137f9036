# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of a proof: the requested value, the observed value, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

# The layers in the order in which the paper (arXiv 2407.05467, section 2.1.2) names them, with their headings; the last
# sums them up for each GPU and its nearest NICs.
LAYERS = {
    "bios": "BIOS",
    "nic_firmware": "NIC firmware",
    "hypervisor": "Hypervisor",
    "guest_xml": "Guest XML",
    "guest_os": "Guest OS",
    "gpudirect": "GPUDirect",
}


class ProofError(SailloftError):
    """A proof that cannot be made, read or written; the message names the cause and the next step."""


@dataclass
class Claim:
    """One statement about a machine.

    ``holds`` is True or False; None means that it does not apply here, and ``reason`` says why:
    such a claim is never counted as passed.
    """

    layer: str  # "bios", "nic_firmware", "hypervisor", "guest_xml", "guest_os", "gpudirect"
    claim: str  # "GPU 0000:13:00.0 is on guest NUMA node 0"
    wanted: Any
    seen: Any
    holds: bool | None
    source: str  # where it was read: "guest /sys/bus/pci/devices/0000:21:00.0/numa_node"
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.claim}: {self.values}"

    @property
    def values(self) -> str:
        """Return the wanted and the observed value in words."""
        return f"wanted {show(self.wanted)}, seen {show(self.seen)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return asdict(self)

    def check(self) -> None:
        """Raise ProofError if the claim contradicts itself."""
        if self.holds is None and not self.reason:
            raise ProofError(f"claim {self.claim!r} is not applicable, but has no reason")
        if self.holds and self.seen is None:
            raise ProofError(f"claim {self.claim!r} holds without an observed value")


def compare(layer: str, claim: str, wanted: Any, seen: Any, source: str, reason: str = "") -> Claim:
    """Return a claim that holds exactly if ``seen`` equals ``wanted``; a missing observation (None) never holds."""
    return Claim(layer, claim, wanted, seen, seen is not None and wanted == seen, source, reason)


def not_applicable(layer: str, claim: str, wanted: Any, source: str, reason: str, seen: Any = None) -> Claim:
    """Return a claim that does not apply to this machine, with the reason (and what was seen, if it is the reason)."""
    if not reason:
        raise ProofError(f"claim {claim!r} is not applicable, but has no reason")
    return Claim(layer, claim, wanted, seen, None, source, reason)


def show(value: Any) -> str:
    """Return a value in readable form: nothing, yes and no, lists with commas, mappings as ``key: value``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(show(item) for item in value) if value else "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {show(item)}" for key, item in value.items()) if value else "none"
    return str(value)
