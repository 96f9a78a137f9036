# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The devices of all virtual machines of a host, chosen together. Pure.

Addresses are taken as they are, and a virtual machine keeps the devices that it has today. pack_gpus.py chooses the
GPUs, and nearest.py the NICs and NVMe drives that go with them. nvswitch_boards.py has the partitions of an NVSwitch
board.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import KINDS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    IS_FUNCTION,
    Chosen,
    Surroundings,
    is_physical,
    obstacle,
    why_one_group,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nearest import Device, Want, assign, reach
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import Fabric, in_words, note
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.pack_gpus import Packing, Request, Unit
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import capacity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.nodes import asked, serving_node
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, explicit_addresses


def choose_together(
    specs: list[DomainSpec],
    around: Surroundings,
    held: dict[str, list[str]],
    fabric: Fabric | None = None,
    room: capacity.Room | None = None,
) -> dict[str, Chosen]:
    """Return the devices of all ``specs``, by name; the order of ``specs`` makes no difference.

    ``held`` are the devices that each has today: they are kept where they still fit. ``around.holder`` has the devices
    that are taken: those of other domains, addresses that specs name, and held ones. ``room`` is the capacity of the
    NUMA nodes (rooms.capacities).

    Raises DomainError where an address is not available, there are too few devices, or no choice gives every virtual
    machine what it asks for.
    """
    for spec in specs:
        _check_explicit(spec, around)
    return _Chooser(specs, around, held, fabric, room or {}).choose()


# The setting of a spec that names devices of each kind. Any of them may name a device of another kind (an NVSwitch).
ADDRESSED = {"gpu": "gpus", "nic": "nics", "nvme": "nvme"}


def _check_explicit(spec: DomainSpec, around: Surroundings) -> None:
    explicit = explicit_addresses(spec)
    for address in explicit:
        if address not in around.functions:
            raise DomainError(
                f"no PCI function {address} on this host",
                "see host_topology_info for those there are",
                domain=spec.name,
            )
        kind = around.functions[address].kind
        asked = next(each for each in ADDRESSED if address in getattr(spec, ADDRESSED[each]).addresses)
        if kind in ADDRESSED and kind != asked:
            raise DomainError(
                f"{ADDRESSED[asked]}.addresses: PCI device {address} is of kind {KINDS[kind]}, not {KINDS[asked]}",
                f"give it in {ADDRESSED[kind]}.addresses",
                domain=spec.name,
            )
        reason = obstacle(around, around.functions[address], spec.name, explicit)
        if reason:
            raise DomainError(
                f"PCI device {address} cannot be given to it: {reason.why}", reason.mend, domain=spec.name
            )
    if spec.nics.per_gpu and not spec.gpus.addresses and not spec.gpus.count:
        raise DomainError(
            "nics.per_gpu chooses NICs near its GPUs, and it has none", "name them in nics.addresses", domain=spec.name
        )


class _Chooser:
    """One choice for all virtual machines of a host."""

    def __init__(
        self,
        specs: list[DomainSpec],
        around: Surroundings,
        held: dict[str, list[str]],
        fabric: Fabric | None,
        room: capacity.Room,
    ) -> None:
        self.specs = sorted(specs, key=lambda spec: spec.name)
        self.around = around
        self.held = held
        self.fabric = fabric
        self.room = room
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
        # Partitions whose GPUs are all available, and that contain the IOMMU groups of their GPUs.
        partitions = []
        for partition in fabric.partitions if fabric else []:
            numbers = frozenset(self.number[address] for address in partition.members if address in self.number)
            if {address for at in numbers for address in self.units[at].addresses} == partition.members:
                partitions.append(numbers)
        self.packing = Packing(self.units, partitions, room)
        self.requests = [self._request(spec) for spec in self.specs if spec.gpus.count]
        self.used = self._used()

    def choose(self) -> dict[str, Chosen]:
        """Return the devices by virtual machine. Raises DomainError."""
        gpus = self.packing.choose(self.requests, self.used, lambda found: self._others(found) is not None)
        others = None if gpus is None else self._others(gpus)
        if gpus is None or others is None:
            self._refuse()
        nics, nvme = others
        return {
            spec.name: self._chosen(spec, *(own.get(spec.name, []) for own in (gpus, nics, nvme)))
            for spec in self.specs
        }

    # The devices to choose from

    def _units(self) -> list[Unit]:
        around = self.around
        kinds = {spec.nics.functions for spec in self.specs if spec.nics.per_gpu}
        nics = {kind: self._paths_of_nics(IS_FUNCTION[kind]) for kind in sorted(kinds)}
        # A virtual machine that has more than it asks for gives some up, to any other.
        surplus = {spec.name for spec in self.specs if spec.gpus.count and len(self._held_gpus(spec)) > spec.gpus.count}
        units = []
        together: dict[int, list[Function]] = {}
        for function in around.host.functions:
            if function.kind != "gpu" and function.address not in self.named:
                continue
            if function.kind != "gpu" and not any(function.address in spec.gpus.addresses for spec in self.specs):
                continue
            holder = around.holder.get(function.address)
            group = function.iommu_group
            owner = holder or _group_owner(around, group)
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

    def _unit(self, members: list[Function], owner: str | None, nics: dict[str, list]) -> Unit:
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
            near=spec.nics.functions if spec.nics.per_gpu else None,
            nodes=frozenset(self._explicit_nodes(spec)),
            wants=tuple(capacity.asked(spec, self.room)) if self.room else (),
            within=frozenset(asked(self.around.host, spec)) or None,
        )

    def _explicit_nodes(self, spec: DomainSpec) -> set[int]:
        """Return the nodes that it is on with any choice."""
        nodes = set(asked(self.around.host, spec)) | {
            self._node(self.around.functions[address]) for address in self.explicit[spec.name]
        }
        return {node for node in nodes if node is not None}

    def _used(self) -> capacity.Room:
        """Return the capacity of the nodes that virtual machines take for which no GPU is chosen."""
        used: capacity.Room = {}
        for spec in self.specs:
            if not spec.gpus.count and self.room:
                nodes = self._explicit_nodes(spec)
                used = capacity.overflow(self.room, used, capacity.asked(spec, self.room), nodes)[1]
        return used

    # NICs and NVMe drives

    def _others(self, gpus: dict[str, list[str]]) -> tuple[dict[str, list[str]], dict[str, list[str]]] | None:
        """Return the NICs and the NVMe drives that go with these GPUs, by virtual machine; None: not enough of them."""
        nics = self._nearest(self.specs, gpus, gpus, "nic")
        if nics is None:
            return None
        taken = {spec.name: [*gpus.get(spec.name, []), *nics.get(spec.name, [])] for spec in self.specs}
        nvme = self._nearest(self.specs, taken, gpus, "nvme")
        return None if nvme is None else (nics, nvme)

    def _nearest(
        self, specs: list[DomainSpec], taken: dict[str, list[str]], gpus: dict[str, list[str]], kind: str
    ) -> dict[str, list[str]] | None:
        """Return the devices of ``kind`` for the ``gpus`` of ``specs``, beside settled and ``taken``; None: too few."""
        holder = {**self.settled, **{address: name for name, own in taken.items() for address in own}}
        result: dict[str, list[str]] = {}
        functions = ("vf", "pf") if kind == "nic" else ("pf",)
        for which in functions:
            wants = [want for spec in specs for want in self._wants(spec, gpus, kind, which)]
            if not wants:
                continue
            devices = self._devices(self.around.held(holder), kind, IS_FUNCTION[which], {want.name for want in wants})
            found = assign(wants, devices)
            if found is None:
                return None
            for want, address in zip(wants, found):
                result.setdefault(want.name, []).append(address)
                holder[address] = want.name
        return result

    def _wants(self, spec: DomainSpec, gpus: dict[str, list[str]], kind: str, which: str) -> list[Want]:
        own = sorted({*spec.gpus.addresses, *gpus.get(spec.name, [])})
        if kind == "nic":
            near = [address for address in own for _number in range(spec.nics.per_gpu)]
            if spec.nics.functions != which:
                return []
        else:
            near = [own[number % len(own)] if own else "" for number in range(spec.nvme.count)]
        wants = []
        for address in near:
            function = self.around.functions.get(address)
            path = self.around.place(function) if function else None
            node = self.around.host.node_of(function) if function else None
            distances = self.distances.get(node, ()) if node is not None else ()
            wants.append(Want(spec.name, path, distances))
        return wants

    def _devices(
        self, around: Surroundings, kind: str, fits: Callable[[Function], bool], wanting: set[str]
    ) -> list[Device]:
        holders = {address: name for name in sorted(wanting) for address in self.held.get(name, [])}
        devices = []
        for function in around.host.functions:
            if function.kind != kind or function.address in around.holder or not fits(function):
                continue
            owner = _group_owner(around, function.iommu_group)
            own = [address for address, name in around.holder.items() if name == owner] if owner else []
            if obstacle(around, function, owner or "", own) is not None:
                continue
            devices.append(
                Device(
                    function.address,
                    around.place(function),
                    around.host.node_of(function),
                    function.iommu_group,
                    owner,
                    holders.get(function.address),
                )
            )
        return devices

    # The result

    def _chosen(self, spec: DomainSpec, gpus: list[str], nics: list[str], nvme: list[str]) -> Chosen:
        known = self.around.functions

        def functions(*addresses: list[str]) -> list[Function]:
            return [known[address] for address in sorted({item for items in addresses for item in items})]

        chosen = Chosen(
            functions(spec.gpus.addresses, gpus),
            functions(spec.nics.addresses, nics),
            functions(spec.nvme.addresses, nvme),
        )
        if self.fabric:
            self._fabric(spec, chosen, self.fabric)
        elif len(chosen.gpus) > 1 and any(item.kind == "nvswitch" for item in self.around.host.functions):
            chosen.notes.append(
                "this host has NVSwitches of a board that is not known here: whether Fabric Manager can make a "
                "partition of its GPUs was not looked at, and the NVSwitches stay with the host"
            )
        return chosen

    def _fabric(self, spec: DomainSpec, chosen: Chosen, fabric: Fabric) -> None:
        """Give the NVSwitches to the owner of the whole board; note for the others what Fabric Manager must do."""
        own = {function.address for function in chosen.gpus} & set(fabric.gpus)
        if not own:
            return
        if len(own) == len(fabric.gpus) > 1:
            elsewhere = {self.settled.get(item.address) for item in fabric.nvswitches} - {None, spec.name}
            if not elsewhere:
                passed = [item for item in fabric.nvswitches if item.address not in self.named]
                addresses = [*self.explicit[spec.name], *(item.address for item in [*chosen.all(), *passed])]
                for item in passed:
                    reason = obstacle(self.around, item, spec.name, addresses)
                    if reason:
                        raise DomainError(
                            f"has all GPUs of this host's {fabric.board.name} and so gets its NVSwitches, and "
                            f"{item.address} cannot be given to it: {reason.why}",
                            reason.mend,
                            domain=spec.name,
                        )
                chosen.nvswitches = passed
                chosen.notes.append(
                    f"it has all GPUs of the {fabric.board.name}, and so its {len(fabric.nvswitches)} NVSwitches: "
                    "Fabric Manager runs in the guest"
                )
                return
        chosen.notes.append(note(fabric, own))

    # Refusals

    def _refuse(self) -> NoReturn:
        """Raise the DomainError of an impossible choice: for the virtual machine at fault, or for all together."""

        def whatever(_gpus: dict[str, list[str]]) -> bool:
            return True

        for request in self.requests:
            spec = next(spec for spec in self.specs if spec.name == request.name)
            if self.packing.choose([request], {}, whatever) is None:
                raise self._no_place(spec, request)
        gpus = self.packing.choose(self.requests, self.used, whatever)
        if gpus is None:
            sizes = ", ".join(f"{request.name} ({_count(request.count, 'GPU')})" for request in self.requests)
            free = sum(len(unit.addresses) for unit in self.units)
            board = f", in partitions of {in_words(self.fabric.sizes)}" if self.fabric else ""
            raise DomainError(
                f"virtual machines {sizes}: each has a place on this host, and all of them together have none; {free} "
                f"GPUs are to be had{board}",
                "ask for fewer",
            )
        for spec in self.specs:
            for kind, words, count, fits in self._counts(spec):
                alone = {spec.name: gpus.get(spec.name, [])}
                if self._nearest([spec], alone, alone, kind) is None:
                    raise self._too_few(spec, words, count, [item for item in self._of_kind(kind) if fits(item)])
        asked = [
            f"{spec.name} ({_count(count, words)})"
            for spec in self.specs
            for _kind, words, count, _fits in self._counts(spec)
        ]
        raise DomainError(
            f"virtual machines {', '.join(asked)}: each could have its own, and this host has not enough for all of "
            "them together",
            "ask for fewer",
        )

    def _counts(self, spec: DomainSpec) -> list[tuple[str, str, int, Callable[[Function], bool]]]:
        gpus = spec.gpus.count + len(spec.gpus.addresses)
        counts: list[tuple[str, str, int, Callable[[Function], bool]]] = []
        if spec.nics.per_gpu:
            words = "virtual function" if spec.nics.functions == "vf" else "physical NIC function"
            counts.append(("nic", words, spec.nics.per_gpu * gpus, IS_FUNCTION[spec.nics.functions]))
        if spec.nvme.count:
            counts.append(("nvme", "NVMe drive", spec.nvme.count, is_physical))
        return counts

    def _no_place(self, spec: DomainSpec, request: Request) -> DomainError:
        """Return the error that says why its GPUs have no place even if it were alone."""
        free = [unit for unit in self.units if unit.owner in (None, spec.name)]
        there = sum(len(unit.addresses) for unit in free)
        if there < request.count:
            return self._too_few(spec, "GPU", spec.gpus.count, self._of_kind("gpu"))
        asked = f"asks for {_count(request.count, 'GPU')}"
        fabric = self.fabric
        if fabric and any(address in fabric.gpus for unit in free for address in unit.addresses):
            if request.count not in fabric.sizes:
                missing = (
                    ""
                    if fabric.physical_ids
                    else f" ({len(fabric.gpus)} of its GPUs are there; gpu_module_ids says which)"
                )
                return DomainError(
                    f"{asked}, and Fabric Manager makes partitions of {in_words(fabric.sizes)} on this host's "
                    f"{fabric.board.name}{missing}",
                    "ask for as many, or name the GPUs in gpus.addresses and do without NVLink between them",
                    spec.name,
                )
            if request.must:
                has = ", ".join(address for at in sorted(request.must) for address in self.units[at].addresses)
                return DomainError(
                    f"{asked}, and no partition of {request.count} with {has}, which it has, is free on this host's "
                    f"{fabric.board.name}",
                    "ask for another number, or remove it and make it anew",
                    spec.name,
                )
            taken = [
                f"{address} is with virtual machine {self.around.holder[address]}"
                if address in self.around.holder
                else f"{address} is not to be had"
                for address in fabric.gpus
                if address not in self.number or self.units[self.number[address]].owner not in (None, spec.name)
            ]
            return DomainError(
                f"{asked}, and no partition of {request.count} is free on this host's {fabric.board.name}: "
                f"{'; '.join(taken)}",
                "ask for fewer",
                spec.name,
            )
        groups = [
            str(why_one_group(self.around, group))
            for group in sorted(
                self.around.functions[unit.addresses[0]].iommu_group or 0 for unit in free if len(unit.addresses) > 1
            )
        ]
        return DomainError(
            f"{asked}, and the {there} that are free come by whole IOMMU groups, which two virtual machines never "
            f"share: {'; '.join(groups)}",
            "ask for as many as groups have, or name one in gpus.addresses and leave the rest of its group unused",
            spec.name,
        )

    def _of_kind(self, kind: str) -> list[Function]:
        return [function for function in self.around.host.functions if function.kind == kind]

    def _too_few(self, spec: DomainSpec, words: str, wanted: int, there: list[Function]) -> DomainError:
        """Return the error that counts the free devices and says why each of the others is not free."""
        around = self.around
        explicit = self.explicit[spec.name]
        free, reasons = [], []
        for function in sorted(there, key=lambda item: item.address):
            reason = obstacle(around, function, spec.name, explicit)
            if reason:
                reasons.append(f"{function.address}: {reason}")
            elif function.address not in self.named:
                free.append(function)
        why = f"asks for {_count(wanted, words)}, this host has {len(there)}, free {len(free)}"
        if reasons:
            return DomainError(f"{why} ({'; '.join(reasons)})", "mend what it names, or ask for fewer", spec.name)
        return DomainError(why, "ask for fewer", spec.name)


def _group_owner(around: Surroundings, group: int | None) -> str | None:
    """Return the holder of a member of the IOMMU group."""
    holders = {
        around.holder[member.address]
        for member in (around.groups[group] if group is not None else [])
        if member.address in around.holder
    }
    return min(holders) if holders else None


def _count(number: int, words: str) -> str:
    return f"{number} {words}" + ("s" if number != 1 else "")
