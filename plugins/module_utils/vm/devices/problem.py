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
    Surroundings,
    obstacle,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nearest import reach
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import Fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.pack_gpus import Packing, Request, Unit
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import capacity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.nodes import asked, serving_node
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, explicit_addresses


class Problem:
    """The choice for all virtual machines of a host: the requests, the devices that are free, what each has today."""

    def __init__(
        self,
        specs: list[DomainSpec],
        around: Surroundings,
        held: dict[str, list[str]],
        fabric: Fabric | None,
        capacities: capacity.Capacities,
    ) -> None:
        self.specs = sorted(specs, key=lambda spec: spec.name)
        self.around = around
        self.held = held
        self.fabric = fabric
        self.capacities = capacities
        self.explicit = {spec.name: explicit_addresses(spec) for spec in specs}
        self.named = {address for addresses in self.explicit.values() for address in addresses}
        self.distances = {
            node.id: tuple(sorted((int(other), far) for other, far in node.distances.items()))
            for node in around.host.numa_nodes
        }
        listed = set(self.explicit)
        # Devices that this choice does not decide.
        self.settled = {
            address: name for address, name in around.holder.items() if name not in listed or address in self.named
        }
        self.units = self._units()
        self.number = {address: at for at, unit in enumerate(self.units) for address in unit.addresses}
        # Partitions whose GPUs are all available, and that do not split the GPUs of an IOMMU group.
        partitions = []
        for partition in fabric.partitions if fabric else []:
            numbers = frozenset(self.number[address] for address in partition.members if address in self.number)
            if {address for at in numbers for address in self.units[at].addresses} == partition.members:
                partitions.append(numbers)
        on_board = frozenset(
            self.number[address] for address in (fabric.gpus if fabric else []) if address in self.number
        )
        self.packing = Packing(self.units, partitions, capacities, on_board)
        self.requests = [self._request(spec) for spec in self.specs if spec.gpus.count]
        self.used = self._used()

    def _units(self) -> list[Unit]:
        around = self.around
        kinds = {spec.nics.functions for spec in self.specs if spec.nics.per_gpu}
        nics = {kind: self._paths_of_nics(IS_FUNCTION[kind]) for kind in sorted(kinds)}
        # A virtual machine that has more GPUs than it requests gives some up; any other one can then have them.
        surplus = {spec.name for spec in self.specs if spec.gpus.count and len(self._held_gpus(spec)) > spec.gpus.count}
        fits = [is_physical, *([is_virtual] if any(spec.gpus.functions == "vf" for spec in self.specs) else [])]
        units = []
        together: dict[int, list[Function]] = {}
        for function in around.host.functions:
            if function.kind != "gpu" and function.address not in self.named:
                continue
            if function.address not in self.named and not any(fit(function) for fit in fits):
                continue
            if function.kind != "gpu" and not any(function.address in spec.gpus.addresses for spec in self.specs):
                continue
            holder = around.holder.get(function.address)
            group = function.iommu_group
            owner = holder or group_owner(around, group)
            if owner is None and group is not None:
                together.setdefault(group, []).append(function)
            elif self._to_be_had([function], owner):
                alone = group is None or all(item.kind == "bridge" or item is function for item in around.groups[group])
                units.append(self._unit([function], None if holder in surplus and alone else owner, nics))
        for members in together.values():
            if self._to_be_had(members, None):
                units.append(self._unit(members, None, nics))
        return sorted(units, key=lambda unit: unit.addresses)

    def _paths_of_nics(self, fits: Callable[[Function], bool]) -> list[tuple[str, ...]]:
        listed = set(self.explicit)
        return sorted(
            {
                self.around.place(item)
                for item in self.around.host.functions
                if item.kind == "nic"
                and fits(item)
                and not item.used_by_host
                and item.address not in self.named
                and self.around.holder.get(item.address) in (None, *listed)
            }
        )

    def _to_be_had(self, members: list[Function], owner: str | None) -> bool:
        if owner is not None and owner not in self.explicit:
            return False
        own = [
            *(item.address for item in members),
            *self.explicit.get(owner or "", []),
            *self.held.get(owner or "", []),
        ]
        return all(obstacle(self.around, item, owner or "", own) is None for item in members)

    def _unit(self, members: list[Function], owner: str | None, nics: dict[str, list[tuple[str, ...]]]) -> Unit:
        paths = [self.around.place(item) for item in members]
        common = paths[0]
        for path in paths[1:]:
            same = 0
            while same < min(len(common), len(path)) and common[same] == path[same]:
                same += 1
            common = common[:same]
        group = members[0].iommu_group
        others = group is not None and any(
            item.kind not in ("bridge", "gpu") for item in self.around.groups.get(group, [])
        )
        return Unit(
            addresses=tuple(sorted(item.address for item in members)),
            path=common,
            node=self._node(members[0]),
            owner=owner,
            group=group if others else None,
            virtual=is_virtual(members[0]),
            model="+".join(models(members)),
            reach={kind: reach(common, there) for kind, there in nics.items()},
        )

    def _node(self, function: Function) -> int | None:
        node = self.around.host.node_of(function)
        return None if node is None else serving_node(self.around.host, node)

    def _held_gpus(self, spec: DomainSpec) -> list[str]:
        known = self.around.functions
        return [
            address
            for address in self.held.get(spec.name, [])
            if address in known
            and known[address].kind == "gpu"
            and IS_FUNCTION[spec.gpus.functions](known[address])
            and address not in self.named
            and self.around.holder.get(address) == spec.name
        ]

    def _request(self, spec: DomainSpec) -> Request:
        explicit = {self.number[address] for address in spec.gpus.addresses if address in self.number}
        kept = {self.number[address] for address in self._held_gpus(spec) if address in self.number}
        surplus = len(kept) > spec.gpus.count
        return Request(
            name=spec.name,
            count=spec.gpus.count + len(explicit),
            must=frozenset(explicit if surplus else explicit | kept),
            only=frozenset(explicit | kept) if surplus else None,
            virtual=spec.gpus.functions == "vf",
            near=spec.nics.functions if spec.nics.per_gpu else None,
            nodes=frozenset(self._explicit_nodes(spec)),
            wants=tuple(capacity.asked(spec, self.capacities)) if self.capacities else (),
            within=frozenset(asked(self.around.host, spec)) or None,
        )

    def _explicit_nodes(self, spec: DomainSpec) -> set[int]:
        """Return the nodes that a virtual machine uses with any choice of devices."""
        nodes = set(asked(self.around.host, spec)) | {
            self._node(self.around.functions[address]) for address in self.explicit[spec.name]
        }
        return {node for node in nodes if node is not None}

    def _used(self) -> capacity.Capacities:
        """Return the capacity of the nodes that is used by virtual machines for which no GPU is chosen."""
        used: capacity.Capacities = {}
        for spec in self.specs:
            if not spec.gpus.count and self.capacities:
                nodes = self._explicit_nodes(spec)
                used = capacity.overflow(self.capacities, used, capacity.asked(spec, self.capacities), nodes)[1]
        return used


def group_owner(around: Surroundings, group: int | None) -> str | None:
    """Return the virtual machine that has a member of the IOMMU group, or None."""
    holders = {
        around.holder[member.address]
        for member in (around.groups[group] if group is not None else [])
        if member.address in around.holder
    }
    return min(holders) if holders else None
