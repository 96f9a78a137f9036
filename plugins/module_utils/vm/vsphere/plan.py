# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a virtual machine on vSphere as the modules return it: ``to_dict`` and ``from_dict``. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError


@dataclass
class PlannedCell:
    """A guest NUMA cell and the host node of its memory."""

    id: int
    host_node: int
    memory_mib: int
    vcpus: list[int]


@dataclass
class PlannedDevice:
    """A passed-through function of the host. ``host_path`` are the addresses from the root bus down to it."""

    host_address: str
    kind: str
    host_node: int | None
    physical_function: str | None
    host_path: list[str]


@dataclass
class VspherePlan:
    """The host, cells and devices of a virtual machine, and its ``configuration`` in the form of wanted.py."""

    name: str
    host: str
    cells: list[PlannedCell]
    devices: list[PlannedDevice]
    configuration: dict[str, Any]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form; ``from_dict`` is its inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> VspherePlan:
        """Return the plan of ``to_dict``'s data. Raises DomainError if something is missing or of another type."""
        try:
            plan: VspherePlan = stored.build(cls, data)
        except StoredError as error:
            raise DomainError(
                f"not a complete plan: {error.cause}", "pass the domains that vsphere_gpu_vm_info was asked to compare"
            ) from error
        return plan
