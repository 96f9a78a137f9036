# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The topology file that NCCL in the planned guest is given (NCCL_TOPO_FILE): the guest's tree, the host's links. Pure.

The reason: QEMU's switches report 2.5 GT/s and one lane. NCCL computes 0.2 GB/s from that and avoids the PCI tree. NCCL
takes the values that are in the file, and reads the others in the guest (NVIDIA/nccl src/graph/xml.cc,
ncclTopoGetXmlFromSys, ncclTopoGetXmlFromGpu, ncclTopoFillNet). So the file holds what the guest cannot show, and
nothing that NCCL finds better itself: no gpu, nic, net and nvlink elements (dev, sm, rank, gdr, names, guids), no ids
of the GPUs and NICs, no family and model of the processor, no host_hash.

- A ``cpu`` for each guest cell that carries a GPU or NIC, with its virtual CPUs. NCCL has no NODE: root complexes of
  one cell are PHB to it, in the file as without it. Where the guest does not know the node, ``numaid`` is -1, the
  kernel's.
- If the file is more than NCCL reads, it has no NIC without RDMA. NCCL reads such a NIC in the guest if it uses it.
- A ``pci`` for each switch, at its upstream port, which is where NCCL itself looks (it goes up two levels at a time),
  with the host switch's ids: NCCL knows the Broadcom switches that show one switch as two, and merges these. Root ports
  and downstream ports are no elements; but a root port with several GPUs or NICs behind it is one, as they share it.
- ``link_speed`` and ``link_width``: the limit of the host's link, the lesser of device and port above, as NCCL computes
  it on the host. A virtual function has its physical function's. If the host does not report them, both are empty, as
  NCCL writes them for a device that /sys does not have: it counts 8 GT/s and 16 lanes. Without these attributes NCCL
  would read QEMU's port.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import (
    ARCHITECTURES,
    BRIDGE,
    VENDORS,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl_format import (
    LINK_SPEEDS,
    MAX_ELEMENTS,
    NCCL,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.host_record import link_limit

KINDS = ("gpu", "nic")
# The elements that NCCL adds while it runs, out of the same 256: to a GPU its gpu element and an nvlink for each
# other end (at most six are known: the NVSwitches of a DGX-2), to a NIC a nic and a net.
ADDED = {"gpu": 7, "nic": 2}
# As the kernel writes them since 5.7, ascending.
SPEED_TEXTS = sorted((speed, text) for text, speed in {**LINK_SPEEDS, "2.5 GT/s PCIe": 2.5}.items() if "PCIe" in text)
HEADER = "<!-- Written by sailloft.fleet from the plan of this virtual machine; changes here are lost. -->\n"


@dataclass
class _Pci:
    """One ``pci`` element: a switch, or a GPU or NIC."""

    attributes: dict[str, str]
    children: list[_Pci] = field(default_factory=list)

    def lines(self, indent: int) -> list[str]:
        start = " " * indent + _tag("pci", self.attributes)
        if not self.children:
            return [f"{start}/>"]
        inner = [line for child in self.children for line in child.lines(indent + 2)]
        return [f"{start}>", *inner, " " * indent + "</pci>"]


def render(plan: DomainPlan, host: Host) -> str:
    """Return the file's text, always the same for the same plan; ``host`` is the host of the plan.

    If all GPUs and NICs are more than NCCL reads, the file leaves out the NICs that have no RDMA device on the host.
    Even that may be more: see ``elements``.
    """
    text = _text(plan, host, frozenset())
    if _needed(plan, text, frozenset()) <= MAX_ELEMENTS:
        return text
    return _text(plan, host, _without_rdma(plan))


def for_guest(plan: DomainPlan, host: Host) -> str | None:
    """Return ``render``'s text if the guest has a GPU, and so a use for NCCL, and NCCL can read it; else None."""
    if not plan.chosen.gpus or elements(plan, host) > MAX_ELEMENTS:
        return None
    return render(plan, host)


def elements(plan: DomainPlan, host: Host) -> int:
    """Count the elements (of ``MAX_ELEMENTS``) that NCCL needs for the plan's smallest file and its own additions."""
    text = _text(plan, host, frozenset())
    needed = _needed(plan, text, frozenset())
    out = _without_rdma(plan)
    return needed if needed <= MAX_ELEMENTS else _needed(plan, _text(plan, host, out), out)


def _needed(plan: DomainPlan, text: str, out: frozenset[str]) -> int:
    added = sum(ADDED.get(function.kind, 0) for function in plan.chosen.all() if function.address not in out)
    return sum(line.lstrip()[:2] != "</" for line in text[len(HEADER) :].splitlines()) + added


def _without_rdma(plan: DomainPlan) -> frozenset[str]:
    """Return the NICs whose driver on the host, or their physical functions', made a network interface without RDMA.

    NCCL may use some of them through a plugin (Slingshot's). Nothing is known of a NIC that is bound to VFIO.
    """
    found = set()
    for function in plan.chosen.nics:
        owner = plan.functions.get(function.physical_function or "", function)
        names = {*function.interfaces, *owner.interfaces}
        if "net" in names and "rdma" not in names:
            found.add(function.address)
    return frozenset(found)


def _text(plan: DomainPlan, host: Host, out: frozenset[str]) -> str:
    """Return the file without the NICs ``out``."""
    known = host.by_address()
    cells: dict[int, list[_Pci]] = {}
    only = plan.processors.cells[0].id if len(plan.processors.cells) == 1 else -1
    for bus in [plan.root, *plan.root.expanders]:
        found = _below(plan, known, bus, out)
        if found:
            cells.setdefault(only if bus.cell is None else bus.cell, []).extend(found)
    lines = [f'<system version="{NCCL.version}">']
    for number in sorted(cells):
        lines.append(f"  {_tag('cpu', _cpu(plan, host, number))}>")
        for element in cells[number]:
            lines += element.lines(4)
        lines.append("  </cpu>")
    lines.append("</system>")
    return HEADER + "\n".join(lines) + "\n"


def _below(plan: DomainPlan, known: dict[str, Function], here: pci_tree.Port, out: frozenset[str]) -> list[_Pci]:
    """Return the elements that NCCL sees below a bus, in the order of the addresses."""
    found = []
    for endpoint in here.endpoints:
        function = known[endpoint.key] if endpoint.role == "hostdev" else None
        if function is not None and function.kind in KINDS and function.address not in out:
            address = pci_tree.address(here.bus, endpoint.slot, endpoint.function)
            found.append(_Pci({"busid": address, "class": f"0x{function.class_code:06x}", **_link(known, function)}))
    for port in here.ports:
        if port.model == pci_tree.EXPANDER:
            continue
        inner = _below(plan, known, port, out)
        address = pci_tree.address(here.bus, port.slot, port.function)
        if port.model == pci_tree.UPSTREAM and inner and port.host in known:
            switch = known[port.host]
            attributes = {"busid": address, "class": f"0x{BRIDGE:06x}", **_ids(switch), **_link(known, switch)}
            found.append(_Pci(attributes, inner))
        elif port.model == pci_tree.ROOT_PORT and len(inner) > 1:
            first = {name: inner[0].attributes[name] for name in ("link_speed", "link_width")}
            found.append(_Pci({"busid": address, "class": f"0x{BRIDGE:06x}", **first}, inner))
        else:
            found += inner
    return found


def _ids(function: Function) -> dict[str, str]:
    ids = {
        "vendor": function.vendor_id,
        "device": function.device_id,
        "subsystem_vendor": function.subsystem_vendor_id,
        "subsystem_device": function.subsystem_device_id,
    }
    return {name: f"0x{number:04x}" for name, number in ids.items() if number is not None}


def _link(known: dict[str, Function], function: Function) -> dict[str, str]:
    speed, width = link_limit(known, function)
    # A speed that NCCL does not know yet counts as the highest that it does.
    texts = [text for known_speed, text in SPEED_TEXTS if speed is not None and known_speed <= speed]
    return {"link_speed": texts[-1] if texts else "", "link_width": str(width) if width is not None else ""}


def _cpu(plan: DomainPlan, host: Host, number: int) -> dict[str, str]:
    attributes = {"numaid": str(number)}
    for cell in plan.processors.cells:
        if cell.id == number:
            attributes["affinity"] = _mask(cell.vcpus, 1 + max(max(item.vcpus) for item in plan.processors.cells))
    # Under emulation the guest has another processor than the host: NCCL asks it.
    if plan.accelerator == "kvm":
        names = {kernel: name for name, kernel in ARCHITECTURES.items()}
        if host.cpu.architecture in names:
            attributes["arch"] = names[host.cpu.architecture]
        # NCCL knows no other value, and its format may not be able to hold the text.
        if host.cpu.vendor in VENDORS:
            attributes["vendor"] = host.cpu.vendor
    return attributes


def _mask(cpus: list[int], count: int) -> str:
    """Return the mask as the kernel writes node*/cpumap: words of 32 bits for ``count`` CPUs, the highest first."""
    number = sum(1 << cpu for cpu in cpus)
    words = [number >> shift & 0xFFFFFFFF for shift in range(0, count, 32)]
    return ",".join(f"{word:08x}" for word in reversed(words))


def _tag(name: str, attributes: dict[str, str]) -> str:
    return f"<{name}" + "".join(f' {key}="{value}"' for key, value in attributes.items())
