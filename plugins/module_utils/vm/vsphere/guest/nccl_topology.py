# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NCCL's topology file for a guest on vSphere: the host's switches above the guest's addresses. Pure.

ESXi gives the guest a port for each device and no switch, so a GPU and a NIC below one switch of the host look as far
apart as any two devices. NCCL uses the tree of the file for the devices that the file names (NVIDIA/nccl
src/graph/xml.cc), and a switch in the file need not exist in the guest: Azure's files for ND virtual machines have
switches at ffff:ff:01.0 and up, as this one does.

A ``cpu`` is a NUMA node that the guest sees, with its CPUs as the guest has them. A switch with only one GPU or NIC
below it is left out. Link rates, which vSphere's API does not report, are empty, as in render/nccl_topology.py.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Paths
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl_format import MAX_ELEMENTS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import nccl_elements
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.plan import VspherePlan

# Addresses that no device of a guest has: domain ffff, bus ff, 32 devices of 8 functions; 00.0 is left free.
SWITCH = "ffff:ff:{:02x}.{}"
UNKNOWN_NODE = -1  # "not known" in the kernel and in NCCL


def asked(plan: VspherePlan) -> list[str]:
    """Return the host addresses of the plan's GPUs and NICs; none without a GPU, because NCCL is then not used."""
    kinds = [device.kind for device in plan.devices]
    return [device.host_address for device in plan.devices if device.kind in nccl_elements.KINDS and "gpu" in kinds]


def render(plan: VspherePlan, host: Host, guest: Host, places: dict[str, str]) -> str | None:
    """Return the file's text, always the same for the same plan and guest.

    ``places`` are guest addresses by host address (addresses.locate). Return None if the guest has no GPU, the address
    of a GPU or NIC is unknown, or NCCL cannot read a file of that size.
    """
    wanted = asked(plan)
    if not wanted or set(wanted) - set(places):
        return None
    functions = host.by_address()
    nodes: dict[int, list[str]] = {}
    for address in sorted(wanted, key=lambda item: places[item]):
        nodes.setdefault(_node(plan, guest, address, places[address]), []).append(address)
    switches: dict[str, str] = {}
    cells = [
        (_cpu(host, guest, node), _below(Paths(host), functions, nodes[node], 0, places, switches))
        for node in sorted(nodes)
    ]
    text = nccl_elements.document(cells)
    return text if nccl_elements.needed(text, [functions[address] for address in wanted]) <= MAX_ELEMENTS else None


def _node(plan: VspherePlan, guest: Host, address: str, place: str) -> int:
    """Return a device's guest NUMA node: the one that the guest sees, else the planned cell if the guest has it."""
    seen = guest.node_of(guest.function(place))
    if seen is not None:
        return seen
    node = next(device.host_node for device in plan.devices if device.host_address == address)
    cell = next((cell.id for cell in plan.cells if cell.host_node == node), UNKNOWN_NODE)
    return cell if cell in {item.id for item in guest.numa_nodes} else UNKNOWN_NODE


def _cpu(host: Host, guest: Host, number: int) -> dict[str, str]:
    attributes = {"numaid": str(number)}
    count = 1 + max(cpu for node in guest.numa_nodes for cpu in node.cpus)
    for node in guest.numa_nodes:
        if node.id == number:
            attributes["affinity"] = nccl_elements.mask(node.cpus, count)
    return {**attributes, **nccl_elements.processor(host.cpu)}


def _below(
    paths: Paths,
    functions: dict[str, Function],
    devices: list[str],
    depth: int,
    places: dict[str, str],
    switches: dict[str, str],
) -> list[nccl_elements.Pci]:
    """Return the elements of ``devices``, grouped by their switch at this depth, in the order of addresses."""
    groups: dict[str, list[str]] = {}
    for address in devices:
        switches_above = paths.switches(address)
        groups.setdefault(switches_above[depth] if depth < len(switches_above) else address, []).append(address)
    elements = []
    for switch_or_device, members in groups.items():
        if switch_or_device in members:
            elements.append(nccl_elements.device(functions, functions[switch_or_device], places[switch_or_device]))
            continue
        if len(members) == 1:
            elements += _below(paths, functions, members, len(paths.switches(members[0])), places, switches)
            continue
        number = len(switches) + 8
        switches[switch_or_device] = SWITCH.format(number // 8, number % 8)
        inner = _below(paths, functions, members, depth + 1, places, switches)
        elements.append(nccl_elements.switch(functions, functions[switch_or_device], switches[switch_or_device], inner))
    return elements
