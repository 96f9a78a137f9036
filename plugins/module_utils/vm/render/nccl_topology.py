# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The topology file for NCCL in the planned guest (NCCL_TOPO_FILE): the guest's tree with the host's links. Pure.

The file is needed because QEMU's switches report 2.5 GT/s and one lane. NCCL computes 0.2 GB/s from that and avoids
the PCI tree. NCCL uses the values that are in the file, and reads the others in the guest (NVIDIA/nccl
src/graph/xml.cc, ncclTopoGetXmlFromSys, ncclTopoGetXmlFromGpu, ncclTopoFillNet). So the file has what the guest cannot
show, and nothing that NCCL detects better itself: no gpu, nic, net and nvlink elements (dev, sm, rank, gdr, names,
guids), no ids of the GPUs and NICs, no family and model of the processor, no host_hash.

- A ``cpu`` for each guest cell that has a GPU or NIC, with its virtual CPUs. NCCL has no path class NODE: root
  complexes of one cell are PHB for it, with and without the file. If the guest does not know the node, ``numaid`` is
  -1, as in the kernel.
- If the file has more elements than NCCL reads, NICs without RDMA are left out. NCCL reads such a NIC in the guest if
  it uses it.
- A ``pci`` for each switch, at its upstream port, which is where NCCL itself looks (it goes up two levels at a time),
  with the ids of the host's switch: NCCL knows the Broadcom switches that show one switch as two, and merges these.
  Root ports and downstream ports are not elements, except a root port with several GPUs or NICs behind it, because
  they share it.
- ``link_speed`` and ``link_width``: the limit of the host's link, the lower one of device and port above, as NCCL
  computes it on the host. A virtual function has the values of its physical function. If the host does not report
  them, both are empty, as NCCL writes them for a device that is not in /sys: it then assumes 8 GT/s and 16 lanes.
  Without these attributes NCCL would read those of QEMU's port.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Paths
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import BRIDGE
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl_format import MAX_ELEMENTS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import nccl_elements
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.nccl_elements import KINDS, Pci


def render(plan: DomainPlan, host: Host) -> str:
    """Return the file's text, always the same for the same plan; ``host`` is the host of the plan.

    If all GPUs and NICs are more than NCCL reads, the file leaves out the NICs that have no RDMA device on the host.
    Even then, it may have too many elements: see ``elements``.
    """
    text = _text(plan, host, frozenset())
    if _needed(plan, text, frozenset()) <= MAX_ELEMENTS:
        return text
    return _text(plan, host, _without_rdma(plan))


def for_guest(plan: DomainPlan, host: Host) -> str | None:
    """Return the text of ``render`` if the guest has a GPU and NCCL can read the file, else None."""
    if not plan.chosen.gpus or elements(plan, host) > MAX_ELEMENTS:
        return None
    return render(plan, host)


def elements(plan: DomainPlan, host: Host) -> int:
    """Count the elements (of ``MAX_ELEMENTS``) that NCCL needs for the plan's smallest file and its own additions."""
    text = _text(plan, host, frozenset())
    needed = _needed(plan, text, frozenset())
    omitted = _without_rdma(plan)
    return needed if needed <= MAX_ELEMENTS else _needed(plan, _text(plan, host, omitted), omitted)


def _needed(plan: DomainPlan, text: str, omitted: frozenset[str]) -> int:
    return nccl_elements.needed(text, [item for item in plan.chosen.all() if item.address not in omitted])


def _without_rdma(plan: DomainPlan) -> frozenset[str]:
    """Return the NICs that, with their physical function, have a network interface on the host but no RDMA device.

    NCCL may use some of them through a plugin (Slingshot's). Nothing is known about a NIC that is bound to VFIO.
    """
    addresses = set()
    for function in plan.chosen.nics:
        owner = plan.functions.get(function.physical_function or "", function)
        names = {*function.interfaces, *owner.interfaces}
        if "net" in names and "rdma" not in names:
            addresses.add(function.address)
    return frozenset(addresses)


def _text(plan: DomainPlan, host: Host, omitted: frozenset[str]) -> str:
    """Return the file without the NICs ``omitted``."""
    functions = host.by_address()
    cells: dict[int, list[Pci]] = {}
    only = plan.processors.cells[0].id if len(plan.processors.cells) == 1 else -1
    for bus in [plan.root, *plan.root.expanders]:
        switches: dict[str, Pci] = {}
        bus_elements = _as_on_host(plan, host, _below(plan, functions, bus, omitted, switches), switches)
        if bus_elements:
            cells.setdefault(only if bus.cell is None else bus.cell, []).extend(bus_elements)
    return nccl_elements.document((_cpu(plan, host, number), cells[number]) for number in sorted(cells))


def _as_on_host(plan: DomainPlan, host: Host, elements: list[Pci], switches: dict[str, Pci]) -> list[Pci]:
    """Put each device of ``elements`` that has left its host's switch (plan/atomic_ops.py) below that switch again."""
    paths = Paths(host)
    unplaced: list[Pci] = []
    host_address = {guest: address for address, guest in plan.guest_addresses().items()}
    for element in elements:
        address = host_address.get(element.attributes["busid"])
        switches_above = [switch for switch in (paths.switches(address) if address else []) if switch in switches]
        (switches[switches_above[-1]].children if switches_above else unplaced).append(element)
    return unplaced


def _below(
    plan: DomainPlan,
    functions: dict[str, Function],
    bus_port: pci_tree.Port,
    omitted: frozenset[str],
    switches: dict[str, Pci],
) -> list[Pci]:
    """Return the elements that NCCL sees below a bus, in the order of the addresses; note the host's ``switches``."""
    elements = []
    for endpoint in bus_port.endpoints:
        function = functions[endpoint.key] if endpoint.role == "hostdev" else None
        if function is not None and function.kind in KINDS and function.address not in omitted:
            address = pci_tree.address(bus_port.bus, endpoint.slot, endpoint.function)
            elements.append(nccl_elements.device(functions, function, address))
    for port in bus_port.ports:
        if port.model == pci_tree.EXPANDER:
            continue
        inner = _below(plan, functions, port, omitted, switches)
        address = pci_tree.address(bus_port.bus, port.slot, port.function)
        if port.model == pci_tree.UPSTREAM and inner and port.host in functions:
            switches[port.host] = nccl_elements.switch(functions, functions[port.host], address, inner)
            elements.append(switches[port.host])
        elif port.model == pci_tree.ROOT_PORT and len(inner) > 1:
            first = {name: inner[0].attributes[name] for name in ("link_speed", "link_width")}
            elements.append(Pci({"busid": address, "class": f"0x{BRIDGE:06x}", **first}, inner))
        else:
            elements += inner
    return elements


def _cpu(plan: DomainPlan, host: Host, number: int) -> dict[str, str]:
    attributes = {"numaid": str(number)}
    for cell in plan.processors.cells:
        if cell.id == number:
            count = 1 + max(max(item.vcpus) for item in plan.processors.cells)
            attributes["affinity"] = nccl_elements.mask(cell.vcpus, count)
    # Under emulation the guest has another processor than the host, which NCCL reads in the guest.
    return {**attributes, **(nccl_elements.processor(host.cpu) if plan.accelerator == "kvm" else {})}
