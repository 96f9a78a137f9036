# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The facts about one virtual machine on vSphere, read from vCenter and in its guest, for its claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import BootCheck
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.guest import addresses
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.plan import PlannedCell, VspherePlan


@dataclass
class VsphereEvidence:
    """Everything read for one proof. ``configuration`` is None if there is no such virtual machine."""

    host_name: str
    host: Host  # as vsphere_gpu_vm_info read it, together with the virtual machine
    plan: VspherePlan
    configuration: dict[str, Any] | None  # read_back.read
    differences: list[str] | None  # from the plan, a line each; None: there is no such virtual machine
    ways: dict[str, list[str]] = field(default_factory=dict)  # addresses.way by host address
    guest: Host | None = None
    guest_settings: BootCheck | None = None
    nccl_settings: str | None = None  # the guest's /etc/nccl.conf
    nccl: dict[str, str] = field(default_factory=dict)  # empty: the file stays as it is
    nccl_topology_asked: bool = False
    nccl_topology_file: str | None = None  # the guest's /etc/nccl-topology.xml

    @classmethod
    def of_domain(
        cls, host_name: str, host_topology: dict[str, Any], domain: dict[str, Any], **guest: Any
    ) -> VsphereEvidence:
        """Return the evidence of an item of vsphere_gpu_vm_info's ``domains``; ``guest`` are the fields of the guest.

        Raises ProofError if it was read without its plan.
        """
        if not domain.get("plan"):
            reason = domain.get("unplanned") or "read it with vsphere_gpu_vm_info and its request"
            raise ProofError(f"it has no plan to compare it with: {reason}")
        try:
            return cls(
                host_name=host_name,
                host=read_saved(host_topology),
                plan=VspherePlan.from_dict(domain["plan"]),
                configuration=domain["configuration"],
                differences=_differences(domain),
                ways=domain["ways"],
                **guest,
            )
        except KeyError as error:
            raise ProofError(f"not a virtual machine of vsphere_gpu_vm_info: {error!r}") from error

    def functions(self) -> list[Function]:
        """Return the host's functions in the plan. Raises TopologyError if the host lacks one."""
        return [self.host.function(device.host_address) for device in self.plan.devices]

    def cells(self) -> list[PlannedCell]:
        """Return the guest's NUMA nodes in the plan."""
        return self.plan.cells

    def places(self) -> dict[str, str]:
        """Return the guest address of each function by its host address, without those that are unknown."""
        return addresses.locate(self.functions(), self.ways, self.guest) if self.guest else {}

    def in_guest(self, address: str) -> Function | None:
        """Return the guest's function for a host address, or None if it is missing or unknown."""
        place = self.places().get(address)
        return self.guest.function(place) if self.guest and place else None


def _differences(domain: dict[str, Any]) -> list[str] | None:
    if not domain["exists"]:
        return None
    lines = [f"{item['path']}: wanted {item['wanted']}, have {item['have']}" for item in domain["differences"]]
    return lines if domain["state"] == "running" else [*lines, f"it is not running: {domain['state']}"]
