# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCI addresses as tools and logs write them, in the one form that places have. Pure."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import AMD, NVIDIA, Expected, ExpectedDevice

# The domain has four digits in the kernel and eight in NVIDIA's tools; NVRM's lines have no function.
PATTERN = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_WHOLE = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")


def pci_address(text: str) -> str | None:
    """Return "0000:4b:00.0" of "00000000:4B:00.0" or "0000:4b:00", or None if it is no address."""
    match = _WHOLE.fullmatch(text.strip().lower())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function or '0'}"


def gpus(expected: Expected, is_amd: bool = False) -> list[ExpectedDevice]:
    """Return the planned GPUs of NVIDIA or AMD by address, if the node has their driver; those of others have none."""
    vendors = AMD if is_amd else NVIDIA
    return sorted(
        (item for item in expected.devices if expected.runs_gpus and item.kind == "gpu" and item.vendor in vendors),
        key=lambda item: item.address,
    )
