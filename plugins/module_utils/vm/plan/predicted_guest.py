# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The planned guest as a machine of the topology model: what the guest must see when it runs. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Function,
    Host,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity, fidelity, pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan

PORT_TYPE_OF_MODEL = {model: kind for kind, model in pci_tree.MODEL_OF_TYPE.items()}
# The ids that QEMU's ports report (hw/pci-bridge: gen_pcie_root_port.c, xio3130_upstream.c, xio3130_downstream.c).
PORT_IDS = {
    pci_tree.ROOT_PORT: (0x1B36, 0x000C),
    pci_tree.UPSTREAM: (0x104C, 0x8232),
    pci_tree.DOWNSTREAM: (0x104C, 0x8233),
}
# Only a domain made by hand has these: pcie-to-pci-bridge and similar (hw/pci-bridge/pcie_pci_bridge.c).
PCI_BRIDGE = (0x1B36, 0x000E)
PCI_BRIDGE_CLASS = 0x060400


def predict(plan: DomainPlan) -> Host:
    """Return the guest's NUMA nodes, ports and passed-through devices, without QEMU's virtio devices and chipset."""
    nodes = [
        NumaNode(
            id=cell.id,
            cpus=list(cell.vcpus),
            siblings=[
                cell.vcpus[start : start + plan.processors.threads]
                for start in range(0, len(cell.vcpus), plan.processors.threads)
            ],
            memory_bytes=cell.memory_mib * MIB,
            distances=dict(cell.distances),
        )
        for cell in plan.processors.cells
    ]
    return machine(plan.root, plan.functions, nodes, "plan")


def machine(root: pci_tree.Port, host_functions: dict[str, Function], nodes: list[NumaNode], source: str) -> Host:
    """Return the guest of a PCI tree with numbered buses; ``host_functions`` are the host's functions, by address."""
    buses = [root, *root.expanders]
    complexes = [RootComplex(f"pci0000:{bus.bus:02x}", 0, bus.bus, bus.cell) for bus in buses]
    functions: list[Function] = []
    for bus, root_complex in zip(buses, complexes):
        _below(host_functions, bus, None, root_complex, functions)
    return Host(nodes, complexes, sorted(functions, key=lambda item: item.address), source=source)


def kept(plan: DomainPlan, host: Host) -> Fidelity:
    """Count the pairs of GPUs, NICs and NVMe drives of the plan that are as far apart in the guest as on the host."""
    devices = {
        f"{function.kind} {function.address}": function.address
        for function in plan.chosen.all()
        if function.kind in kinds.SETTINGS
    }
    places = plan.guest_addresses()
    guest = {name: places[address] for name, address in devices.items()}
    return fidelity(pairs(host, devices), pairs(predict(plan), guest))


def _below(
    host_functions: dict[str, Function],
    parent_port: pci_tree.Port,
    parent: str | None,
    root_complex: RootComplex,
    functions: list[Function],
) -> None:
    for endpoint in parent_port.endpoints:
        if endpoint.role == "hostdev":
            host = host_functions[endpoint.key]
            functions.append(
                Function(
                    address=pci_tree.address(parent_port.bus, endpoint.slot, endpoint.function),
                    root_complex=root_complex.name,
                    parent=parent,
                    class_code=host.class_code,
                    vendor_id=host.vendor_id,
                    device_id=host.device_id,
                    kind=host.kind,
                    port_type=host.port_type,
                    numa_node=root_complex.numa_node,
                )
            )
    for port in parent_port.ports:
        if port.model == pci_tree.EXPANDER:
            continue
        vendor, device = PORT_IDS.get(port.model, PCI_BRIDGE)
        place = pci_tree.address(parent_port.bus, port.slot, port.function)
        functions.append(
            Function(
                address=place,
                root_complex=root_complex.name,
                parent=parent,
                class_code=PCI_BRIDGE_CLASS,
                vendor_id=vendor,
                device_id=device,
                kind="bridge",
                port_type=PORT_TYPE_OF_MODEL.get(port.model, "pcie_to_pci_bridge"),
                secondary_bus=port.bus,
                subordinate_bus=port.last_bus,
                numa_node=root_complex.numa_node,
            )
        )
        _below(host_functions, port, place, root_complex, functions)
