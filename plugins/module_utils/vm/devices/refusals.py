# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The error for an impossible choice of devices: the request, the reason, and the remedy. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import models
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    IS_FUNCTION,
    is_physical,
    is_virtual,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.companions import KINDS, nearest_of
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    group_obstacle,
    obstacle,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import in_words
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.pack_gpus import GpuRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.problem import Problem
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, Nics

# AMD: github.com/amd/MxGPU-Virtualization (gim); Intel: Linux Documentation/gpu/xe and sysfs-bus-pci (sriov_numvfs).
NO_GPU_VFS = "the host driver of the GPUs makes them (AMD Instinct: gim; Intel: xe and sriov_numvfs)"


def refuse(problem: Problem) -> NoReturn:
    """Raise the DomainError for an impossible choice: for the virtual machine at fault, or for all together."""

    def always(_gpus: dict[str, list[str]]) -> bool:
        return True

    for request in problem.requests:
        spec = next(spec for spec in problem.specs if spec.name == request.name)
        if problem.packing.choose([request], {}, always) is None:
            raise _no_place(problem, spec, request)
    gpus = problem.packing.choose(problem.requests, problem.used, always)
    if gpus is None:
        sizes = ", ".join(f"{request.name} ({_count(request.count, 'GPU')})" for request in problem.requests)
        free = sum(len(unit.addresses) for unit in problem.units)
        board = f", in partitions of {in_words(problem.fabric.sizes)}" if problem.fabric else ""
        raise DomainError(
            f"virtual machines {sizes}: each fits on this host, but not all of them together; {free} "
            f"GPUs are available{board}",
            "request fewer",
        )
    for spec in problem.specs:
        for kind, label, count, fits in _counts(spec):
            alone = {spec.name: gpus.get(spec.name, [])}
            if nearest_of(problem, [spec], alone, alone, kind) is None:
                raise _too_few(problem, spec, label, count, [item for item in _of_kind(problem, kind) if fits(item)])
    requested = [
        f"{spec.name} ({_count(count, label)})"
        for spec in problem.specs
        for _kind, label, count, _fits in _counts(spec)
    ]
    raise DomainError(
        f"virtual machines {', '.join(requested)}: this host has enough for each, but not for all of them together",
        "request fewer",
    )


def _counts(spec: DomainSpec) -> list[tuple[str, str, int, Callable[[Function], bool]]]:
    """Return (kind, its name, number, test of a function) of all devices that are chosen in addition to GPUs."""
    gpus = spec.gpus.count + len(spec.gpus.addresses)
    counts: list[tuple[str, str, int, Callable[[Function], bool]]] = []
    for kind in KINDS:
        setting = getattr(spec, kinds.SETTINGS[kind])
        label, fits = kinds.BY_NAME[kind].label, is_physical
        if isinstance(setting, Nics):
            label = "virtual function" if setting.functions == "vf" else "physical NIC function"
            fits = IS_FUNCTION[setting.functions]
        if setting.chosen_for(gpus):
            counts.append((kind, label, setting.chosen_for(gpus), fits))
    return counts


def _no_place(problem: Problem, spec: DomainSpec, request: GpuRequest) -> DomainError:
    """Return the error for a virtual machine whose GPUs would have no place even if it were the only one."""
    free = [
        unit
        for unit in problem.units
        if unit.owner in (None, spec.name) and unit.virtual == (spec.gpus.functions == "vf")
    ]
    available = sum(len(unit.addresses) for unit in free)
    if available < request.count:
        virtual = spec.gpus.functions == "vf"
        label = "virtual function of a GPU" if virtual else "GPU"
        gpus = [item for item in _of_kind(problem, "gpu") if is_virtual(item) == virtual]
        error = _too_few(problem, spec, label, spec.gpus.count, gpus)
        return (
            error
            if gpus or not virtual
            else DomainError(f"{error.cause}; {NO_GPU_VFS}", error.remedy, domain=spec.name)
        )
    requested = f"requests {_count(request.count, 'GPU')}"
    shared_groups = [
        str(group_obstacle(problem.host_devices, group))
        for group in sorted(
            problem.host_devices.functions[unit.addresses[0]].iommu_group or 0
            for unit in free
            if len(unit.addresses) > 1
        )
    ]
    fabric = problem.fabric
    of_models = models([problem.host_devices.functions[address] for unit in free for address in unit.addresses])
    if (
        len(of_models) > 1
        and not request.must
        and all(len(addresses) < request.count for addresses in of_models.values())
    ):
        listed = ", ".join(f"{len(addresses)} of {model}" for model, addresses in of_models.items())
        return DomainError(
            f"{requested}, but the free ones are of several models ({listed}), which gpus.count does not mix",
            "request as many as there are of one model, or list them in gpus.addresses",
            domain=spec.name,
        )
    if fabric and any(address in fabric.gpus for unit in free for address in unit.addresses):
        if request.count not in fabric.sizes:
            missing = (
                ""
                if fabric.physical_ids
                else f" ({len(fabric.gpus)} of its GPUs are present; gpu_module_ids says which)"
            )
            return DomainError(
                f"{requested}, but Fabric Manager makes partitions of {in_words(fabric.sizes)} on this host's "
                f"{fabric.board.name}{missing}",
                "request one of these numbers, or list the GPUs in gpus.addresses, without NVLink between them",
                domain=spec.name,
            )
        if request.must:
            has = ", ".join(address for number in sorted(request.must) for address in problem.units[number].addresses)
            return DomainError(
                f"{requested}, but no partition of {request.count} that includes its own {has} is free on this host's "
                f"{fabric.board.name}",
                "request another number, or remove the virtual machine and create it again",
                domain=spec.name,
            )
        unavailable = [
            f"{address} belongs to virtual machine {problem.host_devices.holder[address]}"
            if address in problem.host_devices.holder
            else f"{address} is not available"
            for address in fabric.gpus
            if address not in problem.number or problem.units[problem.number[address]].owner not in (None, spec.name)
        ]
        reasons, remedy = unavailable, "request fewer"
        if not reasons and spec.numa_nodes:
            reasons = [f"not all GPUs of one are on NUMA node {', '.join(spec.numa_nodes)} (numa_nodes)"]
            remedy = "request fewer, or leave numa_nodes out"
        elif not reasons:
            reasons = shared_groups
            remedy = "correct the listed causes, or request the number of a partition that whole groups make up"
        return DomainError(
            f"{requested}, but no partition of {request.count} is free on this host's {fabric.board.name}: "
            f"{'; '.join(reasons)}",
            remedy,
            domain=spec.name,
        )
    return DomainError(
        f"{requested}, but the {available} free ones are assigned by whole IOMMU groups, which two virtual machines "
        f"never share: {'; '.join(shared_groups)}",
        "request as many as whole groups contain, or list one in gpus.addresses and leave the rest of its group unused",
        domain=spec.name,
    )


def _of_kind(problem: Problem, kind: str) -> list[Function]:
    return [function for function in problem.host_devices.host.functions if function.kind == kind]


def _too_few(problem: Problem, spec: DomainSpec, label: str, wanted: int, functions: list[Function]) -> DomainError:
    """Return the error that counts the free devices and says why each of the others is not free."""
    host_devices = problem.host_devices
    explicit = problem.explicit[spec.name]
    free = []
    reasons: dict[str, list[str]] = {}
    for function in sorted(functions, key=lambda item: item.address):
        reason = obstacle(host_devices, function, spec.name, explicit)
        if reason:
            reasons.setdefault(str(reason), []).append(function.address)
        elif function.address not in problem.named:
            free.append(function)
    cause = f"requests {_count(wanted, label)}, but only {len(free)} of this host's {len(functions)} are free"
    if reasons:
        listed = "; ".join(f"{', '.join(addresses)}: {reason}" for reason, addresses in reasons.items())
        return DomainError(f"{cause} ({listed})", "correct the listed reasons, or request fewer", domain=spec.name)
    return DomainError(cause, "request fewer", domain=spec.name)


def _count(number: int, label: str) -> str:
    return f"{number} {label}" + ("s" if number != 1 else "")
