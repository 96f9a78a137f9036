# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a virtual machine: every decision, made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import Chosen
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import cells
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import (
    bus_numbers,
    mmio,
    pci_tree,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec


@dataclass
class DomainPlan:
    """A virtual machine with every decision made; ``domain_xml.render`` only writes it."""

    spec: DomainSpec
    accelerator: str  # "kvm" or "qemu"
    processors: cells.Processors
    chosen: Chosen
    root: pci_tree.Port
    window: mmio.Window
    address_bits_mode: str  # "passthrough", "emulate" or "off"
    address_bits: int | None  # None: the host's, not known here
    vendor: str | None
    functions: dict[str, Function]
    # The NUMA node of each of its devices on the host, by address; None: not known.
    host_nodes: dict[str, int | None]
    machine: str = machine_type.ALIAS
    notes: list[str] = field(default_factory=list)
    fidelity: Fidelity = field(default_factory=lambda: Fidelity(0, 0))

    @property
    def name(self) -> str:
        """The virtual machine's name."""
        return self.spec.name

    @property
    def ats_on_virtio(self) -> bool:
        """Return True for ATS on QEMU's own devices: it uses the guest's IOMMU, and has no effect without one."""
        return self.spec.ats and self.spec.guest_iommu

    def endpoints(self) -> Iterator[tuple[pci_tree.Port, pci_tree.Endpoint]]:
        """Yield every endpoint with the port that it is plugged into."""
        for port in self.root.walk():
            for endpoint in port.endpoints:
                yield port, endpoint

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form that the modules return as ``plan``; docs/gpu-vm.md documents its keys."""
        spec = self.spec
        return {
            "name": spec.name,
            "uuid": spec.uuid,
            "accelerator": self.accelerator,
            "machine": self.machine,
            "firmware": spec.firmware,
            "memory_mib": spec.memory_mib,
            "huge_page_mib": spec.huge_page_mib,
            "memory_locked": spec.lock_memory,
            "vcpus": sum(len(cell.vcpus) for cell in self.processors.cells),
            "threads_per_core": self.processors.threads,
            "physical_address_bits": {"mode": self.address_bits_mode, "bits": self.address_bits},
            "cells": [
                {
                    **vars(cell),
                    "huge_pages": cell.memory_mib // spec.huge_page_mib if spec.huge_page_mib else 0,
                    "strict": spec.strict_memory,
                }
                for cell in self.processors.cells
            ],
            "emulator_cpus": self.processors.kept_cpus if spec.pin_cpus else [],
            "iothreads": [
                {"id": number, "cpus": self.processors.kept_cpus if spec.pin_cpus else []}
                for number in range(1, spec.iothreads + 1)
            ],
            "root_complexes": [
                {
                    "host": expander.host,
                    "guest": f"pci0000:{expander.bus:02x}",
                    "cell": expander.cell,
                    "first_bus": expander.bus,
                    "buses_needed": bus_numbers.needed(expander),
                    "buses_room": end - expander.bus,
                }
                for expander, end in self._expanders()
            ],
            "devices": [
                self._device(way, endpoint) for way, endpoint in _ways(self.root, ()) if endpoint.role == "hostdev"
            ],
            "virtio": [
                {
                    "role": endpoint.role,
                    "key": endpoint.key,
                    "guest_address": pci_tree.address(port.bus, endpoint.slot, endpoint.function),
                }
                for port, endpoint in self.endpoints()
                if endpoint.role != "hostdev"
            ],
            "share": self.share(),
            "mmio": {
                "low_bytes": self.window.low_bytes,
                "high_bytes": self.window.high_bytes,
                "window_bytes": self.window.window_bytes,
            },
            "guest_iommu": spec.guest_iommu,
            "ats": {"wanted": spec.ats, "on_virtio": self.ats_on_virtio},
            "console_log": spec.console_log_path,
            "fidelity": self.fidelity.to_dict(),
            "notes": self.notes,
        }

    def share(self) -> dict[str, Any]:
        """Return its share of the host's hardware threads and memory, and the use of the rest."""
        share = self.processors.share
        return {
            "threads": share.threads,
            "vcpus": share.vcpus,
            "kept": share.kept,
            "taken": share.taken,
            "free": share.free,
            "elsewhere": share.elsewhere,
            "vcpu_limit": share.limit,
            "nodes_without_cell": share.nodes_without_cell,
            "memory_mib": share.memory_mib,
        }

    def _expanders(self) -> Iterator[tuple[pci_tree.Port, int]]:
        expanders = self.root.expanders
        return zip(expanders, [*(expander.bus for expander in expanders[1:]), bus_numbers.BUSES])

    def _device(self, way: tuple[pci_tree.Port, ...], endpoint: pci_tree.Endpoint) -> dict[str, Any]:
        function = self.functions[endpoint.key]
        port = way[-1]
        expander = next((step for step in way if step.model == pci_tree.EXPANDER), None)
        ports = [step for step in way if step.model not in (pci_tree.ROOT, pci_tree.EXPANDER)]
        # The bus of each port itself is that of the port before it on the way.
        guest_path = [
            pci_tree.address(above.bus, step.slot, step.function) for above, step in zip(way[-len(ports) - 1 :], ports)
        ]
        guest_path.append(pci_tree.address(port.bus, endpoint.slot, endpoint.function))
        return {
            "host_address": function.address,
            "guest_address": guest_path[-1],
            "kind": function.kind,
            "vendor_id": function.vendor_id,
            "device_id": function.device_id,
            "physical_function": function.physical_function,
            "iommu_group": function.iommu_group,
            "host_root_complex": function.root_complex,
            "host_node": self.host_nodes[function.address],
            "cell": expander.cell if expander else None,
            "guest_path": guest_path,
            "host_path": [*self._host_path(function), function.address],
            "libvirt_address": {"bus": port.index, "slot": endpoint.slot, "function": endpoint.function},
        }

    def _host_path(self, function: Function) -> list[str]:
        path: list[str] = []
        here = function.parent
        while here is not None:
            path.insert(0, here)
            here = self.functions[here].parent
        return path


def _ways(
    here: pci_tree.Port, above: tuple[pci_tree.Port, ...]
) -> Iterator[tuple[tuple[pci_tree.Port, ...], pci_tree.Endpoint]]:
    """Yield every endpoint with the ports from the root bus down to its own, in the order of ``Port.walk``."""
    way = (*above, here)
    for endpoint in here.endpoints:
        yield way, endpoint
    for below in here.ports:
        yield from _ways(below, way)
