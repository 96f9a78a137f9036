# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a virtual machine: every decision, and the host that it was made for. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import cliques
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import Chosen
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import cells
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import mmio, pci_tree, plan_dict
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec


@dataclass
class Passed:
    """A passed-through function and its place in the guest.

    ``cell`` is its guest NUMA cell (None: not known). ``guest_path`` has the guest addresses from the root bus down to
    the function, ``host_path`` those on the host. ``port`` is the guest's port that has it as ``endpoint``.
    """

    function: Function
    cell: int | None
    host_path: list[str]
    guest_path: list[str]
    port: pci_tree.Port
    endpoint: pci_tree.Endpoint

    @property
    def address(self) -> str:
        """Return the address on the host."""
        return self.function.address

    @property
    def guest_address(self) -> str:
        """Return the address in the guest."""
        return self.guest_path[-1]


@dataclass
class DomainPlan:
    """A virtual machine with every decision made; ``domain_xml.render`` only writes the decisions."""

    spec: DomainSpec
    host: Host
    accelerator: str  # "kvm" or "qemu"
    processors: cells.Processors
    chosen: Chosen
    root: pci_tree.Port
    window: mmio.Window
    address_bits_mode: str  # "passthrough", "emulate" or "off"
    address_bits: int | None  # None: the host's, not known here
    machine: str = machine_type.ALIAS
    notes: list[str] = field(default_factory=list)
    fidelity: Fidelity = field(default_factory=lambda: Fidelity(0, 0))

    def __post_init__(self) -> None:
        self.functions = self.host.by_address()

    @property
    def name(self) -> str:
        """The virtual machine's name."""
        return self.spec.name

    @property
    def ats_on_virtio(self) -> bool:
        """Return True for ATS on QEMU's own devices: it uses the guest's IOMMU, and has no effect without one."""
        return self.spec.ats and self.spec.guest_iommu

    @property
    def cliques(self) -> cliques.Cliques:
        """Return the GPUs that may reach each other by PCIe; none if the request turns that off."""
        if not self.spec.gpudirect_cliques:
            return cliques.Cliques(())
        return cliques.find(self.host, self.chosen.gpus, self.chosen.nvswitches)

    def endpoints(self) -> Iterator[tuple[pci_tree.Port, pci_tree.Endpoint]]:
        """Yield every endpoint with the port that it is plugged into."""
        for port in self.root.walk():
            for endpoint in port.endpoints:
                yield port, endpoint

    def passed(self) -> list[Passed]:
        """Return the passed-through functions, in the order in which firmware finds them."""
        return [self._passed(way, endpoint) for way, endpoint in _ways(self.root, ()) if endpoint.role == "hostdev"]

    def guest_addresses(self) -> dict[str, str]:
        """Return the guest address of each passed-through function, by host address."""
        return {
            endpoint.key: pci_tree.address(port.bus, endpoint.slot, endpoint.function)
            for port, endpoint in self.endpoints()
            if endpoint.role == "hostdev"
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form that modules return as ``plan``; docs/gpu-vm.md documents its keys."""
        return plan_dict.write(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any], host: Host) -> DomainPlan:
        """Return the plan of ``to_dict``'s data for ``host``, the host that it was made for.

        Raises DomainError if a key is missing or wrong, TopologyError if the host lacks a device of the plan.
        """
        return cls(**plan_dict.read(data, host))

    def _passed(self, way: tuple[pci_tree.Port, ...], endpoint: pci_tree.Endpoint) -> Passed:
        function = self.functions[endpoint.key]
        port = way[-1]
        expander = next((step for step in way if step.model == pci_tree.EXPANDER), None)
        ports = [step for step in way if step.model not in (pci_tree.ROOT, pci_tree.EXPANDER)]
        # Each port is on the bus of the port before it.
        guest_path = [
            pci_tree.address(above.bus, step.slot, step.function) for above, step in zip(way[-len(ports) - 1 :], ports)
        ]
        guest_path.append(pci_tree.address(port.bus, endpoint.slot, endpoint.function))
        host_path = [function.address]
        while self.functions[host_path[0]].parent is not None:
            host_path.insert(0, str(self.functions[host_path[0]].parent))
        return Passed(function, expander.cell if expander else None, host_path, guest_path, port, endpoint)


def _ways(
    here: pci_tree.Port, above: tuple[pci_tree.Port, ...]
) -> Iterator[tuple[tuple[pci_tree.Port, ...], pci_tree.Endpoint]]:
    """Yield every endpoint with the ports from the root bus down to its own, in the order of ``Port.walk``."""
    way = (*above, here)
    for endpoint in here.endpoints:
        yield way, endpoint
    for below in here.ports:
        yield from _ways(below, way)
