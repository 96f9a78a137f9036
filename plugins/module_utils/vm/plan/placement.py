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
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import Chosen, Surroundings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import capacity, cells, nodes
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, explicit_addresses


@dataclass
class Placement:
    """The part of the host that one virtual machine gets; ``around`` is the host with the holder of each device."""

    spec: DomainSpec
    around: Surroundings
    chosen: Chosen
    processors: cells.Processors


def place(
    host: Host,
    specs: list[DomainSpec],
    held: dict[str, Holdings],
    max_vcpus: Callable[[DomainSpec], int],
    gpu_module_ids: dict[str, int] | None = None,
    gpu_partitions: dict[int, tuple[int, ...]] | None = None,
) -> list[Placement]:
    """Return the placements in the order of ``specs``, which has no effect on them.

    ``held`` is what each virtual machine of the host holds today, by name: those not in ``specs`` keep it, the others
    keep what their spec still allows. ``max_vcpus`` returns the most vCPUs that the hypervisor gives a virtual
    machine. ``gpu_module_ids``, ``gpu_partitions``: see nvswitch_boards.recognise.

    Raises DomainError, or TopologyError if the host's topology is inconsistent.
    """
    listed = {spec.name for spec in specs}
    others = [own for name, own in held.items() if name not in listed]
    around = Surroundings(host)
    cpu_holder: dict[int, str] = {}
    for name, own in held.items():
        if name not in listed:
            around.holder.update(dict.fromkeys(own.devices, name))
            cpu_holder.update(dict.fromkeys(own.cpus, name))
    for spec in specs:
        for address in explicit_addresses(spec):
            around.holder.setdefault(address, spec.name)
    # Existing domains keep what they have until they are planned: no other virtual machine's plan moves them.
    for spec in sorted(specs, key=lambda item: item.name):
        own = held.get(spec.name, Holdings())
        counted = {kind: getattr(spec, key).chosen_for(1) for kind, key in kinds.SETTINGS.items()}
        for address in own.devices:
            if address in around.functions and counted.get(around.functions[address].kind):
                around.holder.setdefault(address, spec.name)
        for cpu in own.cpus:
            cpu_holder.setdefault(cpu, spec.name)

    foreign_cpus = {cpu for cpu, name in cpu_holder.items() if name not in listed}
    capacities = capacity.of_nodes(host, specs, others, foreign_cpus)
    devices = {name: own.devices for name, own in held.items() if name in listed}
    fabric = nvswitch_boards.recognise(host, gpu_module_ids, gpu_partitions)
    chosen = choose_together(specs, around, devices, fabric, capacities)

    known = {name: own for name, own in held.items() if name in listed}
    of_cells = nodes.settle(host, specs, {name: each.all() for name, each in chosen.items()}, known, capacities)
    placed: dict[str, Placement] = {}
    # A spec that takes the remaining CPUs is placed after those that set a number.
    for spec in sorted(specs, key=lambda item: (item.vcpus is None, item.name)):
        taken = {cpu for cpu, name in cpu_holder.items() if name != spec.name}
        kept = set(held.get(spec.name, Holdings()).cpus)
        processors = cells.arrange(spec, host, of_cells[spec.name], taken, kept, max_vcpus(spec))
        placed[spec.name] = Placement(spec, around, chosen[spec.name], processors)
        # From here on, the virtual machine holds exactly the CPUs of its placement.
        cpu_holder = {cpu: name for cpu, name in cpu_holder.items() if name != spec.name}
        if spec.pin_cpus:
            cpu_holder.update({cpu: spec.name for cell in processors.cells for cpu in cell.cpus})
    return [placed[spec.name] for spec in specs]
