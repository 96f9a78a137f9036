# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The devices, NUMA nodes, memory and CPUs of all virtual machines of a host, whatever hypervisor runs them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices import nvswitch_boards
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.allocate import choose_together
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import Chosen, HostDevices
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import capacity, cells, nodes
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, explicit_addresses


@dataclass
class Placement:
    """The part of the host that one virtual machine gets."""

    spec: DomainSpec
    host_devices: HostDevices
    chosen: Chosen
    processors: cells.Processors


def place(
    host: Host,
    specs: list[DomainSpec],
    current: dict[str, Holdings],
    max_vcpus: Callable[[DomainSpec], int],
    gpu_module_ids: dict[str, int] | None = None,
    gpu_partitions: dict[int, tuple[int, ...]] | None = None,
) -> list[Placement]:
    """Return the placements in the order of ``specs``, which has no effect on them.

    ``current`` is what each virtual machine of the host holds today, by name: those not in ``specs`` keep it, the
    others keep what their spec still allows. ``max_vcpus`` returns the most vCPUs that the hypervisor gives a virtual
    machine. ``gpu_module_ids``, ``gpu_partitions``: see nvswitch_boards.recognise.

    Raises DomainError, or TopologyError if the host's topology is inconsistent.
    """
    listed = {spec.name for spec in specs}
    unlisted = [holdings for name, holdings in current.items() if name not in listed]
    host_devices = HostDevices(host)
    cpu_holder: dict[int, str] = {}
    for name, holdings in current.items():
        if name not in listed:
            host_devices.holder.update(dict.fromkeys(holdings.devices, name))
            cpu_holder.update(dict.fromkeys(holdings.cpus, name))
    for spec in specs:
        for address in explicit_addresses(spec):
            host_devices.holder.setdefault(address, spec.name)
    # Existing domains keep what they have until they are planned: no other virtual machine's plan moves them.
    for spec in sorted(specs, key=lambda item: item.name):
        holdings = current.get(spec.name, Holdings())
        counted = {kind: getattr(spec, key).chosen_for(1) for kind, key in kinds.SETTINGS.items()}
        for address in holdings.devices:
            if address in host_devices.functions and counted.get(host_devices.functions[address].kind):
                host_devices.holder.setdefault(address, spec.name)
        for cpu in holdings.cpus:
            cpu_holder.setdefault(cpu, spec.name)
    for name, holdings in sorted(current.items()):
        for address in holdings.live_devices:
            host_devices.holder.setdefault(address, name)

    foreign_cpus = {cpu for cpu, name in cpu_holder.items() if name not in listed}
    capacities = capacity.of_nodes(host, specs, unlisted, foreign_cpus)
    devices = {name: holdings.devices for name, holdings in current.items() if name in listed}
    fabric = nvswitch_boards.recognise(host, gpu_module_ids, gpu_partitions)
    chosen = choose_together(specs, host_devices, devices, fabric, capacities)

    current_of_listed = {name: holdings for name, holdings in current.items() if name in listed}
    of_cells = nodes.settle(
        host,
        specs,
        {name: devices_of_vm.all() for name, devices_of_vm in chosen.items()},
        current_of_listed,
        capacities,
    )
    placed: dict[str, Placement] = {}
    # A spec that takes the remaining CPUs is placed after those that set a number.
    for spec in sorted(specs, key=lambda item: (item.vcpus is None, item.name)):
        foreign = {cpu for cpu, name in cpu_holder.items() if name != spec.name}
        current_cpus = set(current.get(spec.name, Holdings()).cpus)
        processors = cells.arrange(spec, host, of_cells[spec.name], foreign, current_cpus, max_vcpus(spec))
        placed[spec.name] = Placement(spec, host_devices, chosen[spec.name], processors)
        # From here on, the virtual machine holds exactly the CPUs of its placement.
        cpu_holder = {cpu: name for cpu, name in cpu_holder.items() if name != spec.name}
        if spec.pin_cpus:
            cpu_holder.update({cpu: spec.name for cell in processors.cells for cpu in cell.cpus})
    return [placed[spec.name] for spec in specs]
