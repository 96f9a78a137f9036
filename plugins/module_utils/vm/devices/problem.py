# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The input of the choice of devices, and what follows from it for GPUs. Pure."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import models
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    IS_FUNCTION,
    is_physical,
    is_virtual,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    HostDevices,
    obstacle,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nearest import nearest_distance
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import NvlinkFabric
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.pack_gpus import GpuRequest, Packing, Unit
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import capacity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.nodes import requested_nodes, serving_node
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, explicit_addresses


class Problem:
    """The choice for all virtual machines of a host: the requests, the devices that are free, what each has today."""

    def __init__(
        self,
        specs: list[DomainSpec],
        host_devices: HostDevices,
        current_devices: dict[str, list[str]],
        fabric: NvlinkFabric | None,
        capacities: capacity.Capacities,
    ) -> None:
        self.specs = sorted(specs, key=lambda spec: spec.name)
        self.host_devices = host_devices
        self.current_devices = current_devices
        self.fabric = fabric
        self.capacities = capacities
        self.explicit = {spec.name: explicit_addresses(spec) for spec in specs}
        self.named = {address for addresses in self.explicit.values() for address in addresses}
        self.distances = {
            node.id: tuple(sorted((int(other_node), far) for other_node, far in node.distances.items()))
            for node in host_devices.host.numa_nodes
        }
        listed = set(self.explicit)
        # Devices that this choice does not decide.
        self.settled = {
            address: name
            for address, name in host_devices.holder.items()
            if name not in listed or address in self.named
        }
        self.units = self._units()
        self.number = {address: index for index, unit in enumerate(self.units) for address in unit.addresses}
        # Partitions whose GPUs are all available, and that do not split the GPUs of an IOMMU group.
        partitions = []
        for partition in fabric.partitions if fabric else []:
            numbers = frozenset(self.number[address] for address in partition.members if address in self.number)
            if {address for index in numbers for address in self.units[index].addresses} == partition.members:
                partitions.append(numbers)
        on_board = frozenset(
            self.number[address] for address in (fabric.gpus if fabric else []) if address in self.number
        )
        self.packing = Packing(self.units, partitions, capacities, on_board)
        self.requests = [self._request(spec) for spec in self.specs if spec.gpus.count]
        self.used = self._used()

    def _units(self) -> list[Unit]:
        host_devices = self.host_devices
        kinds = {spec.nics.functions for spec in self.specs if spec.nics.per_gpu}
        nics = {kind: self._paths_of_nics(IS_FUNCTION[kind]) for kind in sorted(kinds)}
        # A virtual machine that has more GPUs than it requests gives some up; any other one can then have them.
        surplus = {spec.name for spec in self.specs if spec.gpus.count and len(self._held_gpus(spec)) > spec.gpus.count}
        fits = [is_physical, *([is_virtual] if any(spec.gpus.functions == "vf" for spec in self.specs) else [])]
        units = []
        of_groups: dict[int, list[Function]] = {}
        for function in host_devices.host.functions:
            if function.kind != "gpu" and function.address not in self.named:
                continue
            if function.address not in self.named and not any(fit(function) for fit in fits):
                continue
            if function.kind != "gpu" and not any(function.address in spec.gpus.addresses for spec in self.specs):
                continue
            holder = host_devices.holder.get(function.address)
            group = function.iommu_group
            owner = holder or group_owner(host_devices, group)
            if owner is None and group is not None:
                of_groups.setdefault(group, []).append(function)
            elif self._is_available([function], owner):
                alone = group is None or all(
                    item.kind == "bridge" or item is function for item in host_devices.groups[group]
                )
                units.append(self._unit([function], None if holder in surplus and alone else owner, nics))
        for members in of_groups.values():
            if self._is_available(members, None):
                units.append(self._unit(members, None, nics))
        return sorted(units, key=lambda unit: unit.addresses)

    def _paths_of_nics(self, fits: Callable[[Function], bool]) -> list[tuple[str, ...]]:
        listed = set(self.explicit)
        return sorted(
            {
                self.host_devices.place(item)
                for item in self.host_devices.host.functions
                if item.kind == "nic"
                and fits(item)
                and not item.used_by_host
                and item.address not in self.named
                and self.host_devices.holder.get(item.address) in (None, *listed)
            }
        )

    def _is_available(self, members: list[Function], owner: str | None) -> bool:
        if owner is not None and owner not in self.explicit:
            return False
        vm_devices = [
            *(item.address for item in members),
            *self.explicit.get(owner or "", []),
            *self.current_devices.get(owner or "", []),
        ]
        return all(obstacle(self.host_devices, item, owner or "", vm_devices) is None for item in members)

    def _unit(self, members: list[Function], owner: str | None, nics: dict[str, list[tuple[str, ...]]]) -> Unit:
        paths = [self.host_devices.place(item) for item in members]
        common = paths[0]
        for path in paths[1:]:
            common_steps = 0
            while common_steps < min(len(common), len(path)) and common[common_steps] == path[common_steps]:
                common_steps += 1
            common = common[:common_steps]
        group = members[0].iommu_group
        has_companions = group is not None and any(
            item.kind not in ("bridge", "gpu") for item in self.host_devices.groups.get(group, [])
        )
        return Unit(
            addresses=tuple(sorted(item.address for item in members)),
            path=common,
            node=self._node(members[0]),
            owner=owner,
            group=group if has_companions else None,
            virtual=is_virtual(members[0]),
            model="+".join(models(members)),
            reach={kind: nearest_distance(common, nic_paths) for kind, nic_paths in nics.items()},
        )

    def _node(self, function: Function) -> int | None:
        node = self.host_devices.host.node_of(function)
        return None if node is None else serving_node(self.host_devices.host, node)

    def _held_gpus(self, spec: DomainSpec) -> list[str]:
        functions = self.host_devices.functions
        return [
            address
            for address in self.current_devices.get(spec.name, [])
            if address in functions
            and functions[address].kind == "gpu"
            and IS_FUNCTION[spec.gpus.functions](functions[address])
            and address not in self.named
            and self.host_devices.holder.get(address) == spec.name
        ]

    def _request(self, spec: DomainSpec) -> GpuRequest:
        explicit = {self.number[address] for address in spec.gpus.addresses if address in self.number}
        current = {self.number[address] for address in self._held_gpus(spec) if address in self.number}
        surplus = len(current) > spec.gpus.count
        return GpuRequest(
            name=spec.name,
            count=spec.gpus.count + len(explicit),
            must=frozenset(explicit if surplus else explicit | current),
            only=frozenset(explicit | current) if surplus else None,
            virtual=spec.gpus.functions == "vf",
            near_nic=spec.nics.functions if spec.nics.per_gpu else None,
            nodes=frozenset(self._explicit_nodes(spec)),
            demand=tuple(capacity.demand_of(spec, self.capacities)) if self.capacities else (),
            within=frozenset(requested_nodes(self.host_devices.host, spec)) or None,
        )

    def _explicit_nodes(self, spec: DomainSpec) -> set[int]:
        """Return the nodes that a virtual machine uses with any choice of devices."""
        nodes = set(requested_nodes(self.host_devices.host, spec)) | {
            self._node(self.host_devices.functions[address]) for address in self.explicit[spec.name]
        }
        return {node for node in nodes if node is not None}

    def _used(self) -> capacity.Capacities:
        """Return the capacity of the nodes that is used by virtual machines for which no GPU is chosen."""
        used: capacity.Capacities = {}
        for spec in self.specs:
            if not spec.gpus.count and self.capacities:
                nodes = self._explicit_nodes(spec)
                used = capacity.overflow(self.capacities, used, capacity.demand_of(spec, self.capacities), nodes)[1]
        return used


def group_owner(host_devices: HostDevices, group: int | None) -> str | None:
    """Return the virtual machine that has a member of the IOMMU group, or None."""
    holders = {
        host_devices.holder[member.address]
        for member in (host_devices.groups[group] if group is not None else [])
        if member.address in host_devices.holder
    }
    return min(holders) if holders else None
