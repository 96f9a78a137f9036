# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The state of one virtual machine between its request and vCenter, and its part of the modules' results. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.placement import Placement
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import read_back, request
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.plan import (
    PlannedCell,
    PlannedDevice,
    VspherePlan,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, VirtualMachine, VsphereCluster

# The order of the actions over all virtual machines: devices and reservations are released before anything starts.
PHASES = ("power_off", "destroy", "create", "upgrade", "reconfigure", "power_on")


@dataclass
class MachineRow:
    """One virtual machine: its wanted and its current configuration, and the actions from one to the other."""

    request: request.VsphereRequest
    host: Esxi
    model: Host | None = None
    placement: Placement | None = None
    wanted: dict[str, Any] | None = None
    machine: VirtualMachine | None = None
    have: dict[str, Any] | None = None
    differences: list[dict[str, Any]] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    restart_required: bool = False
    ways: dict[str, list[str]] = field(default_factory=dict)  # read_back.ways, once it was started
    unplanned: Finding | None = None  # why it has no placement

    @property
    def name(self) -> str:
        """Return the virtual machine's name."""
        return self.request.name


def topologies(rows: list[MachineRow]) -> list[dict[str, Any]]:
    """Return the hosts of planned virtual machines, by name, each with its topology."""
    models = {row.host.name: row.model for row in rows if row.model is not None}
    return [{"name": name, "topology": models[name].to_dict()} for name in sorted(models)]


def described(machine: VirtualMachine | None, row: MachineRow | None, site: VsphereCluster) -> dict[str, Any]:
    """Return one virtual machine as vsphere_gpu_vm_info returns it."""
    row_data: dict[str, Any] = {
        "name": row.name if row else machine.name if machine else "",
        "exists": machine is not None,
        "state": machine.state if machine else "absent",
        "host": machine.host if machine else row.host.name if row else None,
        "configuration": read_back.read(machine.config, site.network_names) if machine else None,
        "ways": read_back.ways(machine.config) if machine else {},
    }
    if row is not None:
        row_data.update(plan=plan_of(row), differences=row.differences)
        row_data["unplanned"] = str(row.unplanned) if row.unplanned else None
    return row_data


def plan_of(row: MachineRow) -> dict[str, Any] | None:
    """Return the plan of one virtual machine as the modules return it."""
    if row.placement is None or row.wanted is None or row.model is None:
        return None
    model = row.model
    return VspherePlan(
        row.name,
        row.host.name,
        [PlannedCell(cell.id, cell.host_node, cell.memory_mib, cell.vcpus) for cell in row.placement.processors.cells],
        [
            PlannedDevice(
                item.address,
                item.kind,
                model.node_of(item),
                item.physical_function,
                [step.address for step in model.path(item.address)],
            )
            for item in row.placement.chosen.all()
        ],
        row.wanted,
        [*row.placement.chosen.notes, *model.notes],
    ).to_dict()


def returned(row: MachineRow) -> dict[str, Any]:
    """Return one virtual machine as vsphere_gpu_vm returns it."""
    state_before = row.machine.state if row.have is not None and row.machine else "absent"
    state = state_before
    for action in row.actions:
        state = {"create": "stopped", "power_off": "stopped", "power_on": "running", "destroy": "absent"}.get(
            action, state
        )
    return {
        "name": row.name,
        "host": row.host.name,
        "state_before": state_before,
        "state": state,
        "changed": bool(row.actions),
        "actions": [phase for phase in PHASES if phase in row.actions],
        "differences": row.differences,
        "restart_required": row.restart_required,
        "ways": row.ways,
        "plan": plan_of(row),
    }


def diff(row: MachineRow) -> dict[str, str]:
    """Return the --diff output for one virtual machine."""
    name = f"virtual machine {row.name}"
    present, wanted = row.have or {}, row.wanted or {}
    if row.machine is not None and row.have is not None and "destroy" not in row.actions:
        return {
            "before_header": name,
            "after_header": f"{name} ({', '.join(row.actions) or 'needs power-off'})",
            "before": "".join(f"{item['path']}: {item['have']}\n" for item in row.differences),
            "after": "".join(f"{item['path']}: {item['wanted']}\n" for item in row.differences),
        }
    if "destroy" in row.actions:
        wanted = {}
    return {
        "before_header": name,
        "after_header": name,
        "before": "".join(f"{key}: {value}\n" for key, value in present.items()),
        "after": "".join(f"{key}: {value}\n" for key, value in wanted.items()),
    }
