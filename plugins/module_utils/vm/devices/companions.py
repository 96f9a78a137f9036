# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NICs and NVMe drives that go with chosen GPUs. Pure."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import IS_FUNCTION
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    Surroundings,
    obstacle,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nearest import Device, Want, assign
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.problem import Problem, group_owner
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, Nics

# The kinds of devices that go with GPUs, in the order in which they are chosen.
KINDS = tuple(kind for kind in kinds.SETTINGS if kind != "gpu")


def companions(problem: Problem, gpus: dict[str, list[str]]) -> dict[str, dict[str, list[str]]] | None:
    """Return the devices that go with these GPUs, by kind and virtual machine, or None if there are too few."""
    found: dict[str, dict[str, list[str]]] = {}
    for kind in KINDS:
        taken = {
            spec.name: [address for own in (gpus, *found.values()) for address in own.get(spec.name, [])]
            for spec in problem.specs
        }
        nearest = nearest_of(problem, problem.specs, taken, gpus, kind)
        if nearest is None:
            return None
        found[kind] = nearest
    return found


def nearest_of(
    problem: Problem, specs: list[DomainSpec], taken: dict[str, list[str]], gpus: dict[str, list[str]], kind: str
) -> dict[str, list[str]] | None:
    """Return the nearest devices of ``kind`` for the ``gpus`` of ``specs``, or None if there are too few.

    Settled devices (``Problem.settled``) and ``taken`` ones are not free.
    """
    holder = {**problem.settled, **{address: name for name, own in taken.items() for address in own}}
    result: dict[str, list[str]] = {}
    functions = ("vf", "pf") if kind == "nic" else ("pf",)
    for which in functions:
        wants = [want for spec in specs for want in _wants(problem, spec, gpus, kind, which)]
        if not wants:
            continue
        devices = _devices(
            problem, problem.around.held(holder), kind, IS_FUNCTION[which], {want.name for want in wants}
        )
        found = assign(wants, devices)
        if found is None:
            return None
        for want, address in zip(wants, found):
            result.setdefault(want.name, []).append(address)
            holder[address] = want.name
    return result


def _wants(problem: Problem, spec: DomainSpec, gpus: dict[str, list[str]], kind: str, which: str) -> list[Want]:
    own = sorted({*spec.gpus.addresses, *gpus.get(spec.name, [])})
    asked = getattr(spec, kinds.SETTINGS[kind])
    if isinstance(asked, Nics):
        near = [address for address in own for _number in range(asked.per_gpu)]
        if asked.functions != which:
            return []
    else:
        near = [own[number % len(own)] if own else "" for number in range(asked.count)]
    wants = []
    for address in near:
        function = problem.around.functions.get(address)
        path = problem.around.place(function) if function else None
        node = problem.around.host.node_of(function) if function else None
        distances = problem.distances.get(node, ()) if node is not None else ()
        wants.append(Want(spec.name, path, distances))
    return wants


def _devices(
    problem: Problem, around: Surroundings, kind: str, fits: Callable[[Function], bool], wanting: set[str]
) -> list[Device]:
    holders = {address: name for name in sorted(wanting) for address in problem.held.get(name, [])}
    devices = []
    for function in around.host.functions:
        if function.kind != kind or function.address in around.holder or not fits(function):
            continue
        owner = group_owner(around, function.iommu_group)
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
