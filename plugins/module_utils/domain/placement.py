# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which of the host's devices a virtual machine gets. Pure.

Addresses are taken as they are; counts are filled with what leaves the rest of the host most useful: the GPUs of one
switch before those of one root complex, of one node, of several nodes, and of two places that fit the fuller one.
NICs and NVMe drives are those nearest to the GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.spec import DomainSpec, explicit_addresses
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import Function, Host

# The kernel lets a device of a group go to a guest although these hold another member of it: drivers that do no DMA
# of their own (driver_managed_dma and pci-stub in Linux; vfio-pci is VFIO itself).
HARMLESS_DRIVERS = frozenset({"vfio-pci", "pci-stub", "pcieport"})

# PCI vendors whose display controllers are a server's console and never a computing GPU
# (names as in the PCI ID database, pci-ids.ucw.cz).
CONSOLE_VENDORS = {
    0x1A03: "ASPEED",
    0x102B: "Matrox",
    0x1234: "QEMU's standard VGA",
    0x1013: "Cirrus Logic",
    0x1B36: "Red Hat QXL",
}


@dataclass
class Surroundings:
    """What a choice must respect: the host, and who holds what of it already (address -> virtual machine)."""

    host: Host
    holder: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(init=False)
    above: dict[str, tuple[str, ...]] = field(init=False)
    groups: dict[int, list[Function]] = field(init=False)
    # Whether config space could be read at all: not by hwloc, and not of every recording.
    config_read: bool = field(init=False)

    def __post_init__(self) -> None:
        self.functions = self.host.by_address()
        self.above = {}
        self.config_read = any(function.config_bytes for function in self.host.functions)
        self.groups = {}
        for function in self.host.functions:
            if function.iommu_group is not None:
                self.groups.setdefault(function.iommu_group, []).append(function)

    def bridges(self, address: str) -> tuple[str, ...]:
        """Addresses of the bridges from the root bus down to (without) ``address``."""
        if address not in self.above:
            self.above[address] = tuple(step.address for step in self.host.path(address)[:-1])
        return self.above[address]


@dataclass
class Chosen:
    """The functions of one virtual machine, each kind in address order."""

    gpus: list[Function]
    nics: list[Function]
    nvme: list[Function]

    def all(self) -> list[Function]:
        """Every function, in address order."""
        return sorted([*self.gpus, *self.nics, *self.nvme], key=lambda function: function.address)


def obstacle(around: Surroundings, function: Function, name: str, own: Iterable[str]) -> str | None:
    """Why ``function`` cannot go to virtual machine ``name``, whose other devices are ``own``; None: it can."""
    if function.kind == "bridge":
        return "it is a bridge; give the devices behind it"
    if not function.config_bytes and around.config_read:
        return "it does not answer (its config space reads as ones): it has fallen off the bus; reset or reseat it"
    if function.used_by_host:
        uses = "; ".join(function.used_by_host)
        return f"the host itself uses it ({uses}); move that elsewhere or choose another device"

    holder = around.holder.get(function.address)
    if holder not in (None, name):
        return f"virtual machine {holder} has it; take it away there first, or choose another device"
    for address in function.sriov.vfs if function.sriov else []:
        other = around.holder.get(address)
        if other is not None:
            return f"its virtual function {address} belongs to virtual machine {other}, and would vanish with it"
    return foreign_member(around, function, name, own)


def foreign_member(around: Surroundings, function: Function, name: str, own: Iterable[str]) -> str | None:
    """The member of the function's IOMMU group that keeps VFIO from taking the group, in words; None: there is none."""
    group = function.iommu_group
    mine = {function.address, *own}
    for member in around.groups.get(group, []) if group is not None else []:
        if member.address in mine or member.kind == "bridge":
            continue
        holder = around.holder.get(member.address)
        if holder not in (None, name):
            return f"its IOMMU group {group} also holds {member.address}, which belongs to virtual machine {holder}"
        if member.driver is not None and member.driver not in HARMLESS_DRIVERS:
            return (
                f"its IOMMU group {group} also holds {member.address} (driver {member.driver}): give that to the same "
                f"virtual machine, unbind it from {member.driver}, or use a slot whose ports have ACS"
            )
    return None


def choose(spec: DomainSpec, around: Surroundings, held: Iterable[str] = ()) -> Chosen:
    """The devices of ``spec``. ``held`` are those that it has today: they are kept where they still fit.

    Raises DomainError where an address is not to be had or there are too few devices.
    """
    kept = set(held)
    explicit = explicit_addresses(spec)
    for address in explicit:
        if address not in around.functions:
            raise DomainError(
                f"virtual machine {spec.name}: no PCI function {address} on this host; see host_topology_info "
                f"for those there are"
            )
        reason = obstacle(around, around.functions[address], spec.name, explicit)
        if reason:
            raise DomainError(f"virtual machine {spec.name}: PCI device {address} cannot be given to it: {reason}")

    taken = set(explicit)

    def free(kind: str, fits: Callable[[Function], bool]) -> list[Function]:
        return [
            function
            for function in around.host.functions
            if function.kind == kind
            and function.address not in taken
            and fits(function)
            and obstacle(around, function, spec.name, explicit) is None
        ]

    gpus = [around.functions[address] for address in spec.gpus.addresses]
    if spec.gpus.count:
        candidates = free("gpu", is_computing_gpu)
        if len(candidates) < spec.gpus.count:
            raise DomainError(
                _too_few(spec, around, "gpu", "GPU", spec.gpus.count, candidates, explicit, is_computing_gpu)
            )
        gpus += _spread(candidates, spec.gpus.count, around, kept)
        taken.update(function.address for function in gpus)
    gpus.sort(key=lambda function: function.address)

    nics = [around.functions[address] for address in spec.nics.addresses]
    if spec.nics.per_gpu and not gpus:
        raise DomainError(
            f"virtual machine {spec.name}: nics.per_gpu chooses NICs near its GPUs, and it has none; name them "
            f"in nics.addresses"
        )
    wanted = "virtual function" if spec.nics.functions == "vf" else "physical NIC function"
    fits = is_virtual if spec.nics.functions == "vf" else is_physical
    for gpu in gpus:
        for _number in range(spec.nics.per_gpu):
            candidates = free("nic", fits)
            if not candidates:
                total = spec.nics.per_gpu * len(gpus)
                raise DomainError(
                    _too_few(spec, around, "nic", wanted, total, [item for item in nics if fits(item)], explicit, fits)
                )
            nics.append(min(candidates, key=lambda function: _nearness(around, gpu, function, kept)))
            taken.add(nics[-1].address)

    nvme = [around.functions[address] for address in spec.nvme.addresses]
    for number in range(spec.nvme.count):
        candidates = free("nvme", is_physical)
        if not candidates:
            raise DomainError(
                _too_few(spec, around, "nvme", "NVMe drive", spec.nvme.count, nvme, explicit, is_physical)
            )
        near = gpus[number % len(gpus)] if gpus else None
        nvme.append(min(candidates, key=lambda function: _nearness(around, near, function, kept)))
        taken.add(nvme[-1].address)
    return Chosen(gpus, sorted(nics, key=lambda item: item.address), sorted(nvme, key=lambda item: item.address))


def is_computing_gpu(function: Function) -> bool:
    """A GPU, and not the server's own console."""
    return function.vendor_id not in CONSOLE_VENDORS


def is_virtual(function: Function) -> bool:
    """An SR-IOV virtual function."""
    return function.physical_function is not None


def is_physical(function: Function) -> bool:
    """A physical function that has no virtual ones just now."""
    return function.physical_function is None and not (function.sriov and function.sriov.now)


def _spread(candidates: list[Function], count: int, around: Surroundings, kept: set[str]) -> list[Function]:
    """``count`` of the candidates: those held already, then the tightest place that has enough."""
    held = [function for function in candidates if function.address in kept]
    if len(held) >= count:
        return _pick(held, count, _places(around))
    others = [function for function in candidates if function.address not in kept]
    return held + _pick(others, count - len(held), _places(around))


def _places(around: Surroundings) -> list[Callable[[Function], object]]:
    """From the widest to the tightest: what makes two devices neighbours."""
    complexes = {item.name: item.numa_node for item in around.host.root_complexes}

    def node(function: Function) -> object:
        return function.numa_node if function.numa_node is not None else complexes.get(function.root_complex)

    def root_port(function: Function) -> object:
        return around.bridges(function.address)[:1]

    def switch(function: Function) -> object:
        return around.bridges(function.address)[:-1]

    return [node, lambda function: function.root_complex, root_port, switch]


def _pick(candidates: list[Function], count: int, places: list[Callable[[Function], object]]) -> list[Function]:
    """Best fit, place by place: the place that has enough and least beside; else whole places, the fullest first."""
    if not places or count == 0:
        return sorted(candidates, key=lambda function: function.address)[:count]
    groups: dict[str, list[Function]] = {}
    for function in sorted(candidates, key=lambda item: item.address):
        groups.setdefault(str(places[0](function)), []).append(function)
    enough = [group for group in groups.values() if len(group) >= count]
    if enough:
        return _pick(min(enough, key=lambda group: (len(group), group[0].address)), count, places[1:])
    fullest = max(groups.values(), key=len)
    rest = [function for function in candidates if function not in fullest]
    return fullest + _pick(rest, count - len(fullest), places)


def _nearness(around: Surroundings, gpu: Function | None, function: Function, kept: set[str]) -> tuple:
    """Sorts the nearest first: most bridges in common, then the root complex, the node, the distance of the nodes."""
    order = (function.address not in kept, function.address)
    if gpu is None:
        return order
    common = 0
    for one, other in zip(around.bridges(gpu.address), around.bridges(function.address)):
        if one != other:
            break
        common += 1
    distances = {node.id: node.distances for node in around.host.numa_nodes}
    distance = distances.get(gpu.numa_node, {}).get(str(function.numa_node), 255)
    return (-common, function.root_complex != gpu.root_complex, function.numa_node != gpu.numa_node, distance, *order)


def _too_few(
    spec: DomainSpec,
    around: Surroundings,
    kind: str,
    words: str,
    wanted: int,
    free: list[Function],
    explicit: list[str],
    fits: Callable[[Function], bool],
) -> str:
    """The message for a count that cannot be filled: how many there are, and why each of the others is not free."""
    there = [function for function in around.host.functions if function.kind == kind and fits(function)]
    have = {function.address for function in free}
    reasons = []
    for function in there:
        reason = obstacle(around, function, spec.name, explicit)
        if function.address not in have and reason:
            reasons.append(f"{function.address}: {reason}")
    asked = f"{wanted} {words}" + ("s" if wanted != 1 else "")
    message = f"virtual machine {spec.name} asks for {asked}, this host has {len(there)}, free {len(have)}"

    return f"{message} ({'; '.join(reasons)})" if reasons else f"{message}; ask for fewer"
