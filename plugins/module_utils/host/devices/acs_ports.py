# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ACS by port, computed from the host's topology: the request, the plan of the ports, and the report of it."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import selectors
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import BARE_METAL, PURPOSES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host


def wanted(request: Settings, host: Host | None) -> AcsPlan | None:
    """Return the plan for ``{"devices": ["gpu", "nic"], "purpose": "virtual_machines"}``; None without a host.

    Devices that the host itself uses (the NIC of its default route) are left out if they were selected by kind.
    Raises RequestError for a mistake in ``request``, and HostError for bare metal if a device is bound to vfio-pci.
    """
    request.only("devices", "purpose")
    request.need("devices", "purpose")
    purpose, names = request.value("purpose", values.among(*PURPOSES)), request.value("devices", values.texts)
    subject = request.subject
    by_address = {name for name in names if selectors.is_address(name)}
    chosen = {item.address for item in selectors.select(host, sorted(by_address), subject)}
    devices = [
        item for item in selectors.select(host, names, subject) if item.address in chosen or not item.used_by_host
    ]
    if host is None:
        return None
    if purpose == BARE_METAL:
        bound = [item.address for item in host.functions if item.driver == "vfio-pci"]
        if bound:
            raise HostError(
                f"{subject}: purpose bare_metal turns off what keeps tenants apart, but {', '.join(bound[:3])} "
                f"{'is' if len(bound) == 1 else 'are'} bound to vfio-pci for a guest",
                "use virtual_machines, or release the devices first",
            )
    return AcsPlan(host, devices, purpose)


def report(plan: AcsPlan) -> dict[str, Any]:
    """Return the ports with their rules, and the unmet requirements of ATS and IOMMU groups as text."""
    return {
        "purpose": plan.purpose,
        "ports": [port.to_dict() for port in plan.ports],
        "unmet": [f"{claim}; {claim.reason}" for claim in plan.claims() if not claim.holds],
    }
