# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The JSON-ready form of a plan: ``write`` makes it, ``read`` is the inverse. Pure.

Some keys repeat others in another form, for readers of a module's result (``root_complexes``, ``virtio``, most of
``devices``). ``read`` uses ``request``, ``cells``, ``pci_tree``, ``mmio``, ``share``, ``fidelity``,
``physical_address_bits``, the settings in ``devices``, and some keys with simple values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import Chosen
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell, Processors, Share
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import bus_numbers, pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.mmio import Window
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

if TYPE_CHECKING:
    from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan, Passed

# Keys of a cell that repeat the request.
OF_REQUEST = ("huge_pages", "strict")
NEXT_STEP = "pass what gpu_domain returned as plan"


def write(plan: DomainPlan) -> dict[str, Any]:
    """Return the plan as dictionaries, lists, text and numbers."""
    spec = plan.spec
    setting_of = {function.address: key for key, own in plan.chosen.by_setting.items() for function in own}
    emulator_cpus = plan.processors.kept_cpus
    return {
        "name": spec.name,
        "uuid": spec.uuid,
        "accelerator": plan.accelerator,
        "machine": plan.machine,
        "firmware": spec.firmware,
        "memory_mib": spec.memory_mib,
        "huge_page_mib": spec.huge_page_mib,
        "memory_locked": spec.lock_memory,
        "vcpus": sum(len(cell.vcpus) for cell in plan.processors.cells),
        "threads_per_core": plan.processors.threads,
        "physical_address_bits": {"mode": plan.address_bits_mode, "bits": plan.address_bits},
        "cells": [
            {
                **asdict(cell),
                "huge_pages": cell.memory_mib // spec.huge_page_mib if spec.huge_page_mib else 0,
                "strict": spec.strict_memory,
            }
            for cell in plan.processors.cells
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
            for expander, end in _expanders(plan.root)
        ],
        "devices": [_device(plan.host, each, setting_of[each.address]) for each in plan.passed()],
        "virtio": [
            {
                "role": endpoint.role,
                "key": endpoint.key,
                "guest_address": pci_tree.address(port.bus, endpoint.slot, endpoint.function),
            }
            for port, endpoint in plan.endpoints()
            if endpoint.role != "hostdev"
        ],
        "share": asdict(plan.processors.share),
        "mmio": {
            "low_bytes": plan.window.low_bytes,
            "high_bytes": plan.window.high_bytes,
            "window_bytes": plan.window.window_bytes,
        },
        "gpudirect_cliques": [list(clique.gpus) for clique in plan.cliques.cliques],
        "guest_iommu": spec.guest_iommu,
        "ats": {"wanted": spec.ats, "on_virtio": plan.ats_on_virtio},
        "console_log": spec.console_log_path,
        "fidelity": plan.fidelity.to_dict(),
        "notes": plan.notes,
        "request": asdict(spec),
        "pci_tree": asdict(plan.root),
    }


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


def read(data: Any, host: Host) -> dict[str, Any]:
    """Return the arguments for the DomainPlan that ``write`` has written.

    Raises DomainError if something is missing or wrong, TopologyError if ``host`` lacks a device.
    """
    try:
        (spec,) = parse_specs([data["request"]])
        bits = data["physical_address_bits"]
        cells = [Cell(**{key: value for key, value in cell.items() if key not in OF_REQUEST}) for cell in data["cells"]]
        setting_of = {item["host_address"]: item["setting"] for item in data["devices"]}
        processors = Processors(cells, data["threads_per_core"], data["emulator_cpus"], Share(**data["share"]))
        found = data["fidelity"]
        arguments: dict[str, Any] = {
            "spec": spec,
            "host": host,
            "accelerator": data["accelerator"],
            "processors": processors,
            "root": _port(data["pci_tree"]),
            "window": Window(**data["mmio"], address_bits=bits["bits"]),
            "address_bits_mode": bits["mode"],
            "address_bits": bits["bits"],
            "machine": data["machine"],
            "notes": data["notes"],
            "fidelity": Fidelity(found["total"], found["equal"], found["differences"]),
        }
    except DomainError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DomainError(f"not a complete plan: {error!r}", NEXT_STEP) from error
    passed = [item.key for port in arguments["root"].walk() for item in port.endpoints if item.role == "hostdev"]
    if sorted(passed) != sorted(setting_of):
        raise DomainError("not a complete plan: its devices differ from those of its pci_tree", NEXT_STEP)
    by_setting: dict[str, list[Function]] = {}
    for address in sorted(setting_of):
        by_setting.setdefault(setting_of[address], []).append(host.function(address))
    return {**arguments, "chosen": Chosen(by_setting)}


def _port(data: dict[str, Any]) -> pci_tree.Port:
    parts = {
        "ports": [_port(port) for port in data["ports"]],
        "endpoints": [pci_tree.Endpoint(**endpoint) for endpoint in data["endpoints"]],
    }
    return pci_tree.Port(**{**data, **parts})
