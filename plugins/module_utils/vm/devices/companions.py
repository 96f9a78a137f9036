# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NICs and NVMe drives that go with chosen GPUs. Pure."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import IS_FUNCTION
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    HostDevices,
    obstacle,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nearest import AssignableDevice, Want, assign
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.problem import Problem, group_owner
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, Nics

# The kinds of devices that go with GPUs, in the order in which they are chosen.
KINDS = tuple(kind for kind in kinds.SETTINGS if kind != "gpu")


def companions(problem: Problem, gpus: dict[str, list[str]]) -> dict[str, dict[str, list[str]]] | None:
    """Return the devices that go with these GPUs, by kind and virtual machine, or None if there are too few."""
    by_kind: dict[str, dict[str, list[str]]] = {}
    for kind in KINDS:
        chosen_addresses = {
            spec.name: [address for of_vms in (gpus, *by_kind.values()) for address in of_vms.get(spec.name, [])]
            for spec in problem.specs
        }
        nearest = nearest_of(problem, problem.specs, chosen_addresses, gpus, kind)
        if nearest is None:
            return None
        by_kind[kind] = nearest
    return by_kind


def nearest_of(
    problem: Problem,
    specs: list[DomainSpec],
    chosen_addresses: dict[str, list[str]],
    gpus: dict[str, list[str]],
    kind: str,
) -> dict[str, list[str]] | None:
    """Return the nearest devices of ``kind`` for the ``gpus`` of ``specs``, or None if there are too few.

    Settled devices (``Problem.settled``) and ``chosen_addresses`` ones are not free.
    """
    holder = {
        **problem.settled,
        **{address: name for name, vm_addresses in chosen_addresses.items() for address in vm_addresses},
    }
    result: dict[str, list[str]] = {}
    functions = ("vf", "pf") if kind == "nic" else ("pf",)
    for function_type in functions:
        wanted_devices = [want for spec in specs for want in _wants(problem, spec, gpus, kind, function_type)]
        if not wanted_devices:
            continue
        devices = _devices(
            problem,
            problem.host_devices.with_holders(holder),
            kind,
            IS_FUNCTION[function_type],
            {want.name for want in wanted_devices},
        )
        addresses = assign(wanted_devices, devices)
        if addresses is None:
            return None
        for want, address in zip(wanted_devices, addresses):
            result.setdefault(want.name, []).append(address)
            holder[address] = want.name
    return result


def _wants(problem: Problem, spec: DomainSpec, gpus: dict[str, list[str]], kind: str, function_type: str) -> list[Want]:
    vm_gpus = sorted({*spec.gpus.addresses, *gpus.get(spec.name, [])})
    setting = getattr(spec, kinds.SETTINGS[kind])
    if isinstance(setting, Nics):
        near_gpus = [address for address in vm_gpus for _number in range(setting.per_gpu)]
        if setting.functions != function_type:
            return []
    else:
        near_gpus = [vm_gpus[number % len(vm_gpus)] if vm_gpus else "" for number in range(setting.count)]
    wanted_devices = []
    for address in near_gpus:
        function = problem.host_devices.functions.get(address)
        path = problem.host_devices.place(function) if function else None
        node = problem.host_devices.host.node_of(function) if function else None
        distances = problem.distances.get(node, ()) if node is not None else ()
        wanted_devices.append(Want(spec.name, path, distances))
    return wanted_devices


def _devices(
    problem: Problem, host_devices: HostDevices, kind: str, fits: Callable[[Function], bool], wanting: set[str]
) -> list[AssignableDevice]:
    holders = {address: name for name in sorted(wanting) for address in problem.current_devices.get(name, [])}
    devices = []
    for function in host_devices.host.functions:
        if function.kind != kind or function.address in host_devices.holder or not fits(function):
            continue
        owner = group_owner(host_devices, function.iommu_group)
        owner_addresses = [address for address, name in host_devices.holder.items() if name == owner] if owner else []
        if obstacle(host_devices, function, owner or "", owner_addresses) is not None:
            continue
        devices.append(
            AssignableDevice(
                function.address,
                host_devices.place(function),
                host_devices.host.node_of(function),
                function.iommu_group,
                owner,
                holders.get(function.address),
            )
        )
    return devices
