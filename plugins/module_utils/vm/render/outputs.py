# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The output of a plan: the result that the modules return, and its files. Pure."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.picture import side_by_side
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import predict
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import domain_xml
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.nccl_topology import for_guest


def returned_of(plan: DomainPlan, host: Host) -> dict[str, Any]:
    """Return the result for a plan of ``host`` that gpu_domain, gpu_domain_info and gpu_plan return."""
    return {"plan": plan.to_dict(), "xml": domain_xml.render(plan), "nccl_topology": for_guest(plan, host)}


def plan_files(plan: DomainPlan, host: Host, returned: dict[str, Any]) -> dict[str, str]:
    """Return the files by name: libvirt's XML, NCCL's topology file if there is one, the picture of host and guest.

    ``returned`` is the result of ``returned_of``. Raises TopologyError if the host's topology is inconsistent.
    """
    files = {
        f"{plan.name}.xml": returned["xml"],
        f"{plan.name}.svg": side_by_side(host, predict(plan), plan.guest_addresses()),
    }
    if returned["nccl_topology"] is not None:
        files[f"{plan.name}.nccl.xml"] = returned["nccl_topology"]
    return files
