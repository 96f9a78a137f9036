# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The GPUs for all virtual machines of a host at once. Pure; the result does not depend on the order of the input.
One file because places, costs and the assignment share one state.

The virtual machines are placed one after the other, the largest first. Each gets the best place that is left by these
costs, of which the first that differs decides: memory and CPUs that a NUMA node lacks; pairs of its GPUs on different
NUMA nodes, on different root complexes, across a host bridge, across several switches; the distance of the NICs, for
requests with NICs. Among equally good places it is the one that leaves the largest blocks (whole partitions, nodes,
switches) free. If a later one has no place then, or its node lacks memory or CPUs, the earlier ones try their next
places. If no assignment has enough of these everywhere, it is repeated without this condition. Of 2,000 random sets of
requests for the hosts of tests/recordings, the first places were the result of 1,608 that fit, and later ones that of
53, all with memory or CPUs that a node would lack.

Equivalent places (the GPUs of one switch, switches with the same number of free GPUs, ...) are tried once, and a state
of the host from which nothing was found is not tried again. ``STEPS`` and ``PLACES`` limit the cost on a host without
any symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import capacity

# The most places that are tried in one search, and the most places of one request that are listed.
STEPS = 40000
PLACES = 600
BLOCKS = (16, 8, 4, 2)

# The distances, nearest first: PIX, PXB, PHB, NODE, SYS (topology/paths.py).
PIX, PXB, PHB, NODE, SYS = range(5)
# All pairs of one class never outweigh one pair of the next: 45 GPUs have C(45, 2) < 2^10 pairs.
WEIGHTS = (0, 1, 1 << 10, 1 << 20, 1 << 30)
NEAR_NIC_BITS = 10

# A rank is equal for equivalent places. It consists of numbers, texts and other ranks.
Rank = tuple[Any, ...]
# The test that the other requested devices can go with these GPUs (PCI addresses by virtual machine).
Completes = Callable[[dict[str, list[str]]], bool]


@dataclass(frozen=True)
class Unit:
    """GPUs that go to one virtual machine together: one GPU, or those of an IOMMU group.

    ``path`` is their place: NUMA node, root complex, bridges down to the switch. ``owner`` is the only virtual machine
    that can have them (None: any). ``model`` is their vendor and device ("10de:2330"). ``group`` is their IOMMU group
    if it also has NICs or drives, which go with them. ``reach`` is the distance (PIX to SYS) to the nearest NIC by kind
    of function ("vf", "pf"). ``virtual``: they are virtual functions.
    """

    addresses: tuple[str, ...]
    path: tuple[str, ...]
    node: int | None
    owner: str | None = None
    group: int | None = None
    virtual: bool = False
    model: str = ""
    reach: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuRequest:
    """The GPUs that one virtual machine needs: ``count`` in all, ``must`` (unit numbers) among them.

    ``virtual``: those besides ``must`` are virtual functions; otherwise none of them is.

    ``only`` limits the choice to some units, ``within`` to units on some nodes or on an unknown node. ``near_nic`` is
    the kind of NIC function that should be near. ``nodes`` are the nodes that it uses with any choice, and ``demand``
    is what it requests from nodes (capacity.demand_of).
    """

    name: str
    count: int
    must: frozenset[int] = frozenset()
    virtual: bool = False
    only: frozenset[int] | None = None
    near_nic: str | None = None
    nodes: frozenset[int] = frozenset()
    demand: tuple[tuple[capacity.Kind, int], ...] = ()
    within: frozenset[int] | None = None


def path_distance(first_path: tuple[str, ...], second_path: tuple[str, ...]) -> int:
    """Return the distance of two places, PIX to SYS, by their paths."""
    if first_path == second_path:
        return PIX
    common = 0
    for first, second in zip(first_path, second_path):
        if first != second:
            break
        common += 1
    return (SYS, NODE, PHB)[common] if common < 3 else PXB


class _Place:
    """A node of the tree: the host, a NUMA node, a root complex, a bridge. ``mask`` has a bit for each unit below."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.mask = 0
        self.below: dict[str, _Place] = {}
        self.units: list[int] = []


class Packing:
    """The units of one host and their partitions (tuples of unit numbers, by size), and the choice among them.

    Units ``on_board`` are chosen by partition only.
    """

    def __init__(
        self,
        units: list[Unit],
        partitions: list[frozenset[int]],
        capacities: capacity.Capacities,
        on_board: frozenset[int] = frozenset(),
    ) -> None:
        self.units = units
        self.capacities = capacities
        self.size = [len(unit.addresses) for unit in units]
        self.everything = (1 << len(units)) - 1
        self.partitions = sorted({_mask(members) for members in partitions})
        self.models: dict[str, int] = {}
        for number, unit in enumerate(units):
            self.models[unit.model] = self.models.get(unit.model, 0) | 1 << number
        self.board = _mask(on_board)
        for mask in self.partitions:
            self.board |= mask
        self.places: list[_Place] = []
        self.top = self._tree()
        # Each set of units is listed once: the bridges of a chain without branches have the same units.
        self.blocks = sorted({place.mask for place in self.places})
        self.weights = [[WEIGHTS[path_distance(first.path, second.path)] for second in units] for first in units]
        for number, unit in enumerate(units):
            self.weights[number] = [
                weight * len(unit.addresses) * len(units[second].addresses)
                for second, weight in enumerate(self.weights[number])
            ]
        self.tags: dict[int, object] = {}
        self._signatures: dict[tuple[int, int], Rank] = {}
        self._counts: dict[int, int] = {}
        self._candidates: dict[Rank, list[Any]] = {}

    def _tree(self) -> _Place:
        top = _Place(0)
        self.places.append(top)
        for number, unit in enumerate(self.units):
            place = top
            place.mask |= 1 << number
            for step in unit.path:
                if step not in place.below:
                    place.below[step] = _Place(len(self.places))
                    self.places.append(place.below[step])
                place = place.below[step]
                place.mask |= 1 << number
            place.units.append(number)
        return top

    def choose(
        self, requests: list[GpuRequest], used: capacity.Capacities, completes: Completes
    ) -> dict[str, list[str]] | None:
        """Return the PCI addresses of the GPUs by virtual machine, or None if there is no assignment.

        ``used`` is the capacity of the nodes that is already taken. ``completes`` is called before an assignment is
        kept, and tests that the other requested devices can go with it.
        """
        # Requests that only give up some of their GPUs come first: these GPUs are then free for the others.
        ordered = sorted(requests, key=lambda item: (item.only is None, -item.count, -len(item.must), item.name))
        special = {number for request in ordered for number in request.must | (request.only or frozenset())}
        self.tags = {
            number: (
                unit.owner,
                unit.group,
                unit.virtual,
                unit.model,
                number if number in special else None,
                tuple(sorted(unit.reach.items())),
            )
            for number, unit in enumerate(self.units)
        }
        # The equivalence of places depends on the tags.
        self._signatures.clear()
        self._candidates.clear()
        # Units that a request must have are never free for the others.
        reserved = 0
        for request in ordered:
            reserved |= _mask(request.must) | (_mask(request.only) if request.only is not None else 0)
        for fitting in (True, False) if any(request.demand for request in ordered) else (False,):
            assignment = _Search(self, ordered, completes, fitting).place(0, self.everything & ~reserved, used)
            if assignment is not None:
                return assignment
        return None

    # Costs

    def pairs(self, mask: int) -> int:
        """Return the sum of the weighted distances of all pairs of GPUs in ``mask``."""
        numbers = list(_bits(mask))
        return sum(
            self.weights[first][second] for index, first in enumerate(numbers) for second in numbers[index + 1 :]
        )

    def gpus(self, mask: int) -> int:
        """Return the number of GPUs in ``mask``."""
        if mask not in self._counts:
            self._counts[mask] = sum(self.size[number] for number in _bits(mask))
        return self._counts[mask]

    def leftover(self, free: int) -> tuple[int, ...]:
        """Rate the free units by the number of whole blocks of each size; smaller is better."""
        counts = [self.gpus(free & mask) for mask in self.blocks]
        blocks = []
        for size in BLOCKS:
            free_partitions = sum(mask & free == mask and self.gpus(mask) == size for mask in self.partitions)
            blocks += [-free_partitions, -sum(count // size for count in counts)]
        return tuple(blocks)

    def signature(self, place: _Place, free: int) -> Rank:
        """Return a value that is equal for equivalent places, whatever the order of their members."""
        key = place.number, free & place.mask
        if key not in self._signatures:
            places = [
                # NUMA nodes differ in their used memory, units in the partitions that they belong to.
                (name if place is self.top else "", self.signature(item, free))
                for name, item in place.below.items()
                if free & item.mask
            ]
            units = [
                (self.size[number], str(self.tags.get(number)), number if self.board >> number & 1 else -1)
                for number in place.units
                if free >> number & 1
            ]
            self._signatures[key] = (tuple(sorted(places)), tuple(sorted(units)))
        return self._signatures[key]

    # Where a request can go

    def candidates(self, request: GpuRequest, free: int) -> list[tuple[int, Rank, int]]:
        """Return (cost, rank among equals, units) of each place for ``request``, best first; memory is not counted."""
        must = _mask(request.must)
        usable = must
        for number in _bits(_mask(request.only) if request.only is not None else free):
            unit = self.units[number]
            on_allowed_node = request.within is None or unit.node is None or unit.node in request.within
            if unit.owner in (None, request.name) and on_allowed_node and unit.virtual == request.virtual:
                usable |= 1 << number
        key = (request.count, must, usable, free, request.near_nic)
        if key not in self._candidates:
            masks = self._partitions_for(request, must, usable)
            if not must & self.board:
                missing = request.count - self.gpus(must)
                loose = usable & ~must & ~self.board
                for of_model in self._of_models(must):
                    masks += [must | mask for mask in self._allot(self.top, missing, loose & of_model)]
            candidates = []
            for mask in set(masks):
                reach = (
                    sum(
                        self.size[number] * self.units[number].reach.get(request.near_nic, SYS)
                        for number in _bits(mask)
                    )
                    if request.near_nic
                    else 0
                )
                # A request without NICs takes the GPUs that have none.
                spare = (
                    0 if request.near_nic else -sum(sum(self.units[number].reach.values()) for number in _bits(mask))
                )
                rank = (self.leftover(free & ~mask), spare, tuple(_bits(mask)))
                candidates.append(((self.pairs(mask) << NEAR_NIC_BITS) + reach, rank, mask))
            candidates.sort()
            self._candidates[key] = candidates
        return self._candidates[key]

    def _of_models(self, must: int) -> list[int]:
        """Return the units of each model: one virtual machine has one model, unless it has others in ``must``."""
        masks = [mask for mask in self.models.values() if mask & must]
        return [sum(masks)] if masks else list(self.models.values())

    def _partitions_for(self, request: GpuRequest, must: int, usable: int) -> list[int]:
        if must and must & self.board and self.gpus(must) == request.count:
            return [must]  # named or held GPUs: a note reports if they are not a partition
        return [
            mask
            for mask in self.partitions
            if mask & usable == mask and mask & must == must and self.gpus(mask) == request.count
        ]

    def _allot(self, place: _Place, count: int, free: int) -> list[int]:
        """Return the ways to take ``count`` GPUs below ``place``: equivalent ones once, and at most ``PLACES``."""
        free &= place.mask
        available = self.gpus(free)
        if count in (0, available):
            return [free if count else 0]
        if count > available:
            return []
        # Equivalent members are grouped: each kind has its members in address order.
        kinds: dict[Rank, list[Any]] = {}
        for name, item in place.below.items():
            if free & item.mask:
                # NUMA nodes are never equivalent: their free memory differs.
                kinds.setdefault((1, name if place is self.top else "", self.signature(item, free)), []).append(item)
        for number in place.units:
            if free >> number & 1:
                kinds.setdefault((0, self.size[number], str(self.tags.get(number))), []).append(number)
        return self._share(list(kinds.values()), 0, 0, count, count, free)

    def _share(self, kinds: list[list[Any]], kind: int, member: int, count: int, maximum: int, free: int) -> list[int]:
        """Spread ``count`` over the members from ``member`` on; each takes at most ``maximum``, the previous share."""
        if count == 0:
            return [0]
        if kind == len(kinds):
            return []
        if member == len(kinds[kind]):
            return self._share(kinds, kind + 1, 0, count, count, free)
        item = kinds[kind][member]
        masks: list[int] = []
        shares: Sequence[int]
        if isinstance(item, _Place):
            shares = range(min(count, maximum, self.gpus(free & item.mask)), -1, -1)
        else:
            shares = [self.size[item], 0] if self.size[item] <= min(count, maximum) else [0]
        for share in shares:
            if share == 0:
                # The others of this kind take none either.
                rest_masks = self._share(kinds, kind + 1, 0, count, count, free)
                member_masks = [0]
            else:
                rest_masks = self._share(kinds, kind, member + 1, count - share, share, free)
                member_masks = self._allot(item, share, free) if isinstance(item, _Place) else [1 << item]
            for member_mask in member_masks:
                for rest_mask in rest_masks:
                    masks.append(member_mask | rest_mask)
                    if len(masks) >= PLACES:
                        return masks
        return masks


class _Search:
    """The search for the first assignment of ``ordered``; if ``fitting``, the nodes have room for what it requests."""

    def __init__(self, packing: Packing, ordered: list[GpuRequest], completes: Completes, fitting: bool) -> None:
        self.packing = packing
        self.ordered = ordered
        self.completes = completes
        self.fitting = fitting
        self.steps = 0
        self.refusals = 0
        self.assignment: dict[str, list[str]] = {}
        self.dead_ends: set[Rank] = set()

    def place(self, index: int, free: int, used: capacity.Capacities) -> dict[str, list[str]] | None:
        """Return the PCI addresses by virtual machine with request number ``index`` and those after it, or None."""
        if index == len(self.ordered):
            if self.completes(self.assignment):
                return dict(self.assignment)
            self.refusals += 1
            # Other GPUs bring no other NICs or drives unless they share IOMMU groups.
            if all(unit.group is None for unit in self.packing.units):
                self.steps = STEPS
            return None
        request, packing = self.ordered[index], self.packing
        state = (index, packing.signature(packing.top, free), frozenset(used.items()))
        refusals = self.refusals
        for mask, used_after in self._places(request, free, used) if state not in self.dead_ends else ():
            self.steps += 1
            if self.steps > STEPS:
                return None
            units = [packing.units[number] for number in _bits(mask)]
            self.assignment[request.name] = sorted(address for unit in units for address in unit.addresses)
            # Units reserved for an ``only`` request that it gives up are free for the requests after it.
            given_up = _mask(request.only) & ~mask if request.only is not None else 0
            assignment = self.place(index + 1, (free | given_up) & ~mask, used_after)
            if assignment is not None:
                return assignment
        # Whether ``completes`` refuses depends on more than the state.
        if self.refusals == refusals:
            self.dead_ends.add(state)
        return None

    def _places(
        self, request: GpuRequest, free: int, used: capacity.Capacities
    ) -> list[tuple[int, capacity.Capacities]]:
        """Return (units, capacity used afterwards) of each place, best first."""
        packing = self.packing
        places = []
        for cost, _rank, mask in packing.candidates(request, free):
            units = (packing.units[number] for number in _bits(mask))
            nodes = request.nodes.union(unit.node for unit in units if unit.node is not None)
            overflow, used_after = capacity.overflow(packing.capacities, used, request.demand, nodes)
            if not (overflow and self.fitting):
                places.append(((overflow, cost), mask, used_after))
        places.sort(key=lambda place: place[0])
        return [(mask, used_after) for _costs, mask, used_after in places]


def _mask(numbers: frozenset[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
