# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The devices of all virtual machines of a host, chosen together. Pure.

Requested addresses are used as given, and a virtual machine keeps the devices that it has today. pack_gpus.py chooses
the GPUs, and nearest.py the NICs and NVMe drives that go with them. nvswitch_boards.py has the partitions of an
NVSwitch board.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import bridged
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import has_nvswitches
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import KINDS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.companions import companions
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    NVSWITCHES,
    Chosen,
    HostDevices,
    obstacle,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import NvlinkFabric, note
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.problem import Problem
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.refusals import refuse
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import capacity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, explicit_addresses


def choose_together(
    specs: list[DomainSpec],
    host_devices: HostDevices,
    current: dict[str, list[str]],
    fabric: NvlinkFabric | None = None,
    capacities: capacity.Capacities | None = None,
) -> dict[str, Chosen]:
    """Return the devices of all ``specs``, by name; the order of ``specs`` makes no difference.

    ``current`` has the devices that each virtual machine has today; they are kept where they still fit.
    ``host_devices.holder`` has the devices that are not free: those of other domains, those that specs name by address,
    and held ones. ``capacities`` is the capacity of the NUMA nodes (capacity.of_nodes).

    Raises DomainError if an address is not available, there are too few devices, or no choice gives every virtual
    machine what it requests.
    """
    for spec in specs:
        _check_explicit(spec, host_devices)
    return _choose(Problem(specs, host_devices, current, fabric, capacities or {}))


def _check_explicit(spec: DomainSpec, host_devices: HostDevices) -> None:
    explicit = explicit_addresses(spec)
    for address in explicit:
        if address not in host_devices.functions:
            raise DomainError(
                f"no PCI function {address} on this host",
                "host_topology_info lists the existing ones",
                domain=spec.name,
            )
        kind = host_devices.functions[address].kind
        requested_kind = next(
            kind_of_setting
            for kind_of_setting in kinds.SETTINGS
            if address in getattr(spec, kinds.SETTINGS[kind_of_setting]).addresses
        )
        if kind in kinds.SETTINGS and kind != requested_kind:
            raise DomainError(
                f"{kinds.SETTINGS[requested_kind]}.addresses: PCI device {address} is of kind {KINDS[kind]}, not "
                f"{KINDS[requested_kind]}",
                f"list it in {kinds.SETTINGS[kind]}.addresses",
                domain=spec.name,
            )
        reason = obstacle(host_devices, host_devices.functions[address], spec.name, explicit)
        if reason:
            raise DomainError(
                f"PCI device {address} cannot be assigned: {reason.cause}", reason.remedy, domain=spec.name
            )
    if spec.nics.per_gpu and not spec.gpus.addresses and not spec.gpus.count:
        raise DomainError(
            "nics.per_gpu selects NICs near the virtual machine's GPUs, but it has none",
            "list the NICs in nics.addresses",
            domain=spec.name,
        )


def _choose(problem: Problem) -> dict[str, Chosen]:
    """Return the devices by virtual machine. Raises DomainError."""
    gpus = problem.packing.choose(
        problem.requests, problem.used, lambda gpus_of_vms: companions(problem, gpus_of_vms) is not None
    )
    companion_devices = None if gpus is None else companions(problem, gpus)
    if gpus is None or companion_devices is None:
        refuse(problem)
    of_kind = {"gpu": gpus, **companion_devices}
    return {
        spec.name: _chosen(problem, spec, {kind: of_vms.get(spec.name, []) for kind, of_vms in of_kind.items()})
        for spec in problem.specs
    }


def _chosen(problem: Problem, spec: DomainSpec, of_kind: dict[str, list[str]]) -> Chosen:
    functions = problem.host_devices.functions
    by_setting = {}
    for kind, key in kinds.SETTINGS.items():
        addresses = {*getattr(spec, key).addresses, *of_kind.get(kind, [])}
        if addresses:
            by_setting[key] = [functions[address] for address in sorted(addresses)]
    chosen = Chosen(by_setting)
    if problem.fabric:
        _give_nvswitches(problem, spec, chosen, problem.fabric)
    elif len(chosen.gpus) > 1 and has_nvswitches(problem.host_devices.host):
        chosen.notes.append(
            "this host has NVSwitches of an unknown board: whether Fabric Manager has a partition of its GPUs was not "
            "checked, and the NVSwitches stay with the host"
        )
    cards = [item for item in chosen.gpus if bridged(item)]
    if spec.gpus.count and 1 < len(cards) < sum(map(bridged, problem.host_devices.host.functions)):
        chosen.notes.append(
            f"which of the host's GPUs NVLink bridges join is not known: its {len(cards)} may not be joined. "
            "nvidia-smi topo -m shows it while the host has the driver; list joined ones in gpus.addresses"
        )
    return chosen


def _give_nvswitches(problem: Problem, spec: DomainSpec, chosen: Chosen, fabric: NvlinkFabric) -> None:
    """Give the NVSwitches to the owner of the whole board; add notes on Fabric Manager for the others."""
    vm_gpus = {function.address for function in chosen.gpus} & set(fabric.gpus)
    if not vm_gpus:
        return
    _refuse_management(problem, spec, chosen, fabric, len(vm_gpus))
    if len(vm_gpus) == len(fabric.gpus) > 1:
        elsewhere = {problem.settled.get(item.address) for item in fabric.nvswitches} - {None, spec.name}
        if fabric.nvswitches and not elsewhere:
            passed = [item for item in fabric.nvswitches if item.address not in problem.named]
            addresses = [*problem.explicit[spec.name], *(item.address for item in [*chosen.all(), *passed])]
            for item in passed:
                reason = obstacle(problem.host_devices, item, spec.name, addresses)
                if reason:
                    raise DomainError(
                        f"has all GPUs of this host's {fabric.board.name} and so gets its {fabric.board.switches}, but "
                        f"{item.address} cannot be assigned: {reason.cause}",
                        reason.remedy,
                        domain=spec.name,
                    )
            if passed:
                chosen.by_setting[NVSWITCHES] = sorted(passed, key=lambda item: item.address)
            present = f" that are present ({fabric.incomplete})" if fabric.incomplete else ""
            chosen.notes.append(
                f"it has all GPUs of the {fabric.board.name}{present}, and so its {len(fabric.nvswitches)} "
                f"{fabric.board.switches}: {fabric.board.managers} in the guest"
            )
            return
    chosen.notes.append(note(fabric, vm_gpus))
    chosen.shared = fabric.shared(vm_gpus)


def _refuse_management(problem: Problem, spec: DomainSpec, chosen: Chosen, fabric: NvlinkFabric, gpus: int) -> None:
    """Refuse the management of the board to a part of it, and the whole board if its management is not known."""
    managing = {item.address for item in chosen.all()} & {item.address for item in fabric.nvswitches}
    if managing and gpus < len(fabric.gpus):
        raise DomainError(
            f"has {gpus} of the {len(fabric.gpus)} GPUs of this host's {fabric.board.name} and would manage the NVLink "
            f"of all through {', '.join(sorted(managing))}",
            "leave it with the host or a virtual machine without GPUs",
            domain=spec.name,
        )
    unknown = problem.host_devices.unknown if fabric.board.nvswitch_device is None else frozenset()
    if unknown and gpus == len(fabric.gpus) > 1:
        raise DomainError(
            f"has all GPUs of this host's {fabric.board.name} and so gets its {fabric.board.switches}, but which these "
            f"are is not known: the VPD of {', '.join(sorted(unknown))} was not read",
            "read or record the host as root with this version",
            domain=spec.name,
        )
