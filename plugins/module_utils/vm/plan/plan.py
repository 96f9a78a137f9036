# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a virtual machine: every decision, and the host that it was made for. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import cliques
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import Chosen
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import SharedPartition
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell, Processors, Share
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import bus_numbers, mmio, pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

NEXT_STEP = "pass what gpu_domain returned as plan"


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
    processors: Processors
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
        return [self._passed(path, endpoint) for path, endpoint in _ways(self.root, ()) if endpoint.role == "hostdev"]

    def guest_addresses(self) -> dict[str, str]:
        """Return the guest address of each passed-through function, by host address."""
        return {
            endpoint.key: pci_tree.address(port.bus, endpoint.slot, endpoint.function)
            for port, endpoint in self.endpoints()
            if endpoint.role == "hostdev"
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form that modules return as ``plan``; docs/reference/gpu-vm.md documents its keys.

        Some keys repeat others in another form, for readers of a module's result (``root_complexes``, ``virtio``, most
        of ``devices``). ``from_dict`` uses ``request``, ``cells``, ``pci_tree``, ``mmio``, ``share``, ``fidelity``,
        ``physical_address_bits``, ``nvswitch_partition``, the settings in ``devices``, and some keys with simple
        values.
        """
        spec = self.spec
        setting_of = {
            function.address: key for key, functions in self.chosen.by_setting.items() for function in functions
        }
        emulator_cpus = self.processors.kept_cpus
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
            "sockets": self.processors.sockets,
            "threads_per_core": self.processors.threads,
            "physical_address_bits": {"mode": self.address_bits_mode, "bits": self.address_bits},
            "cells": [
                {
                    **asdict(cell),
                    "huge_pages": cell.memory_mib // spec.huge_page_mib if spec.huge_page_mib else 0,
                    "strict": spec.strict_memory,
                }
                for cell in self.processors.cells
            ],
            "emulator_cpus": emulator_cpus,
            "iothreads": [{"id": number, "cpus": emulator_cpus} for number in range(1, spec.iothreads + 1)],
            "root_complexes": [
                {
                    "host": expander.host,
                    "guest": f"pci0000:{expander.bus:02x}",
                    "cell": expander.cell,
                    "first_bus": expander.bus,
                    "buses_needed": bus_numbers.needed(expander),
                    "buses_capacity": end - expander.bus,
                }
                for expander, end in _expanders(self.root)
            ],
            "devices": [_device(self.host, passed, setting_of[passed.address]) for passed in self.passed()],
            "virtio": [
                {
                    "role": endpoint.role,
                    "key": endpoint.key,
                    "guest_address": pci_tree.address(port.bus, endpoint.slot, endpoint.function),
                }
                for port, endpoint in self.endpoints()
                if endpoint.role != "hostdev"
            ],
            "share": asdict(self.processors.share),
            "mmio": {
                "low_bytes": self.window.low_bytes,
                "high_bytes": self.window.high_bytes,
                "window_bytes": self.window.window_bytes,
            },
            "gpudirect_cliques": [list(clique.gpus) for clique in self.cliques.cliques],
            "nvswitch_partition": self.chosen.shared.to_dict() if self.chosen.shared else None,
            "guest_iommu": spec.guest_iommu,
            "ats": {"wanted": spec.ats, "on_virtio": self.ats_on_virtio},
            "console_log": spec.console_log_path,
            "fidelity": self.fidelity.to_dict(),
            "notes": self.notes,
            "request": asdict(spec),
            "pci_tree": asdict(self.root),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], host: Host) -> DomainPlan:
        """Return the plan of ``to_dict``'s data for ``host``, the host that it was made for.

        Raises DomainError if a key is missing or wrong, TopologyError if the host lacks a device of the plan.
        """
        try:
            (spec,) = parse_specs([data["request"]])
            bits = data["physical_address_bits"]
            cells = [stored.build(Cell, cell) for cell in data["cells"]]
            setting_of = {item["host_address"]: item["setting"] for item in data["devices"]}
            processors = Processors(
                cells,
                data["sockets"],
                data["threads_per_core"],
                data["emulator_cpus"],
                stored.build(Share, data["share"]),
            )
            stored_fidelity = data["fidelity"]
            shared = data["nvswitch_partition"]
            if shared is not None:
                shared = stored.build(SharedPartition, shared)
            arguments: dict[str, Any] = {
                "spec": spec,
                "host": host,
                "accelerator": data["accelerator"],
                "processors": processors,
                "root": stored.build(pci_tree.Port, data["pci_tree"]),
                "window": stored.build(mmio.Window, {**data["mmio"], "address_bits": bits["bits"]}),
                "address_bits_mode": bits["mode"],
                "address_bits": bits["bits"],
                "machine": data["machine"],
                "notes": data["notes"],
                "fidelity": Fidelity(
                    stored_fidelity["total"], stored_fidelity["equal"], stored_fidelity["differences"]
                ),
            }
        except DomainError:
            raise
        except StoredError as error:
            raise DomainError(f"not a complete plan: {error.cause}", NEXT_STEP) from error
        except (KeyError, TypeError, ValueError) as error:
            raise DomainError(f"not a complete plan: {error!r}", NEXT_STEP) from error
        passed = [item.key for port in arguments["root"].walk() for item in port.endpoints if item.role == "hostdev"]
        if sorted(passed) != sorted(setting_of):
            raise DomainError("not a complete plan: its devices differ from those of its pci_tree", NEXT_STEP)
        by_setting: dict[str, list[Function]] = {}
        for address in sorted(setting_of):
            by_setting.setdefault(setting_of[address], []).append(host.function(address))
        return cls(**arguments, chosen=Chosen(by_setting, shared=shared))

    def _passed(self, path: tuple[pci_tree.Port, ...], endpoint: pci_tree.Endpoint) -> Passed:
        function = self.functions[endpoint.key]
        port = path[-1]
        expander = next((step for step in path if step.model == pci_tree.EXPANDER), None)
        ports = [step for step in path if step.model not in (pci_tree.ROOT, pci_tree.EXPANDER)]
        # Each port is on the bus of the port before it.
        guest_path = [
            pci_tree.address(parent.bus, step.slot, step.function)
            for parent, step in zip(path[-len(ports) - 1 :], ports)
        ]
        guest_path.append(pci_tree.address(port.bus, endpoint.slot, endpoint.function))
        host_path = [function.address]
        while self.functions[host_path[0]].parent is not None:
            host_path.insert(0, str(self.functions[host_path[0]].parent))
        return Passed(function, expander.cell if expander else None, host_path, guest_path, port, endpoint)


def _ways(
    port: pci_tree.Port, path_above: tuple[pci_tree.Port, ...]
) -> Iterator[tuple[tuple[pci_tree.Port, ...], pci_tree.Endpoint]]:
    """Yield every endpoint with the ports from the root bus down to its own, in the order of ``Port.walk``."""
    path = (*path_above, port)
    for endpoint in port.endpoints:
        yield path, endpoint
    for child in port.ports:
        yield from _ways(child, path)


def _expanders(root: pci_tree.Port) -> Iterator[tuple[pci_tree.Port, int]]:
    """Return each expander bus, and the first bus number after its range."""
    expanders = root.expanders
    return zip(expanders, [*(expander.bus for expander in expanders[1:]), bus_numbers.BUSES])


def _device(host: Host, passed: Passed, setting: str) -> dict[str, Any]:
    function = passed.function
    return {
        "host_address": function.address,
        "guest_address": passed.guest_address,
        "setting": setting,
        "kind": function.kind,
        "vendor_id": function.vendor_id,
        "device_id": function.device_id,
        "physical_function": function.physical_function,
        "iommu_group": function.iommu_group,
        "host_root_complex": function.root_complex,
        "host_node": host.node_of(function),
        "cell": passed.cell,
        "guest_path": passed.guest_path,
        "host_path": passed.host_path,
        "libvirt_address": {
            "bus": passed.port.index,
            "slot": passed.endpoint.slot,
            "function": passed.endpoint.function,
        },
    }
