# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The forms of a plan: what the modules return of it, and its files. Pure."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.picture import side_by_side
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import predict
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import domain_xml
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.nccl_topology import for_guest


def returned_of(plan: DomainPlan, host: Host) -> dict[str, Any]:
    """Return the form of a plan for ``host`` that gpu_domain, gpu_domain_info and gpu_plan return."""
    return {"plan": plan.to_dict(), "xml": domain_xml.render(plan), "nccl_topology": for_guest(plan, host)}


def plan_files(plan: DomainPlan, host: Host, returned: dict[str, Any]) -> dict[str, str]:
    """Return by file name: libvirt's XML, NCCL's topology file where there is a GPU, the picture of host and guest.

    ``returned`` is what ``returned_of`` gave of the plan. Raises TopologyError where the host contradicts itself.
    """
    files = {
        f"{plan.name}.xml": returned["xml"],
        f"{plan.name}.svg": side_by_side(host, predict(plan), plan.guest_addresses()),
    }
    if returned["nccl_topology"] is not None:
        files[f"{plan.name}.nccl.xml"] = returned["nccl_topology"]
    return files
