# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The BIOS settings of a host: the claims of topology/bios.py about all GPUs and NICs of the host, by name."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import bios
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.architecture import unsupported_reason
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

TABLES = "/sys/firmware/acpi/tables"
NAMES = tuple(bios.CLAIMS)
WHERE = "this host's"


def options() -> dict[str, Any]:
    """Return the options of bios_info as an argument_spec."""
    return {"required": {"type": "list", "elements": "str", "choices": list(NAMES)}}


def observe(system: System, host: Host, required: list[str] | None = None) -> Outcome:
    """Return all claims as facts.

    Raises HostError if a claim in ``required`` (of NAMES) does not hold. If ``required`` is given at all, also raises
    it on a host that cannot have GPU virtual machines.
    """
    reason = unsupported_reason(host.cpu)
    if required is not None and reason:
        raise HostError(f"bios_info: {reason}", "the host can still be read and recorded")
    claims = _claims(system, host)
    # A management NIC without SR-IOV is no reason to refuse a host: one NIC with SR-IOV is enough.
    enough = any(claim.holds for claim in claims["sriov"])
    required_claims = [claim for name in required or [] if not (name == "sriov" and enough) for claim in claims[name]]
    lacking = [claim for claim in required_claims if claim.holds is False]
    if lacking:
        cause = "; ".join(f"{claim} in {claim.source}" for claim in lacking)
        raise HostError(cause, "; ".join(dict.fromkeys(claim.reason for claim in lacking)))
    every = [claim for name in NAMES for claim in claims[name]]
    missing = [f"{claim} in {claim.source}; {claim.reason}" for claim in every if claim.holds is False]
    return Outcome(facts={"claims": [claim.to_dict() for claim in every], "missing": missing})


def _claims(system: System, host: Host) -> dict[str, list[Claim]]:
    tables = [table for table in bios.IOMMU_TABLES if system.exists(f"{TABLES}/{table}")]
    devices = [function for function in host.functions if function.kind in ("gpu", "nic")]
    nics = [function for function in devices if function.kind == "nic" and function.physical_function is None]
    on_pci_express = [function for function in nics if function.port_type is not None]
    subject = bios.Subject(host, WHERE, devices, on_pci_express, "this host has no NIC on PCI Express", tables)
    return bios.claims(subject)
