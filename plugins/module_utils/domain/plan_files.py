# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a plan is written down as, for people and for NCCL: the files of a virtual machine. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.domain import libvirt_xml
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.guest import predict
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.picture import side_by_side


def plan_files(plan: DomainPlan, host: Host) -> dict[str, str]:
    """By file name: libvirt's XML, NCCL's topology file, and the picture of host and guest side by side.

    Raises TopologyError where the host contradicts itself.
    """
    devices = {device["host_address"]: device["guest_address"] for device in plan.to_dict()["devices"]}
    files = {
        f"{plan.name}.xml": libvirt_xml.render(plan),
        f"{plan.name}.svg": side_by_side(host, predict(plan), devices),
    }
    try:
        from ansible_collections.sailloft.fleet.plugins.module_utils.domain import nccl_topology
    except ImportError:
        return files
    return {**files, f"{plan.name}.nccl.xml": nccl_topology.render(plan, host)}
