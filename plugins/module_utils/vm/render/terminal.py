# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans as text for a terminal: each virtual machine as a tree, its fidelity to the host, and what stays free. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import outlook
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity, Paths
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import KINDS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.platform import outlook_causes

DOMAIN = "0000:"
# More differing pairs than this are counted, not listed.
MANY = 8


@dataclass
class Line:
    """One line of a tree and those below it."""

    text: str
    children: list[Line] = field(default_factory=list)


def show(name: str, plans: list[DomainPlan], host: Host) -> list[str]:
    """Return the plans of the host called ``name``. If all addresses are 0000:BB:DD.F, they are written BB:DD.F."""
    kinds = [_count(sum(function.kind == kind for function in host.functions), word) for kind, word in KINDS.items()]
    parts = [_count(len(host.numa_nodes), "NUMA node"), _count(len(host.root_complexes), "root complex"), *kinds]
    lines = [f"{name}: {', '.join(part for part in parts if part)}"]
    for plan in plans:
        lines += _machine(plan, host)
    lines += _left(plans, host)
    unknown = _unknown(host)
    return lines + ([f"not in this recording, and so not checked: {', '.join(unknown)}"] if unknown else [])


def fidelity_line(fidelity: Fidelity) -> str:
    """Return "fidelity 100%: 120 of 120 pairs"; rounded down, so that 100% means all pairs."""
    if not fidelity.total:
        return "fidelity: no two devices to compare"
    return f"fidelity {100 * fidelity.equal // fidelity.total}%: {fidelity.equal} of {fidelity.total} pairs"


def _machine(plan: DomainPlan, host: Host) -> list[str]:
    spec, labels = plan.spec, _Labels(host)
    vcpus = sum(len(cell.vcpus) for cell in plan.processors.cells)
    pages = f" in pages of {_mib(spec.huge_page_mib)}" if spec.huge_page_mib else ""
    window = f"64-bit MMIO window {_mib(plan.window.window_bytes // MIB)}"
    top = Line(f"virtual machine {plan.name}: {_count(vcpus, 'vCPU')}, {_mib(spec.memory_mib)}{pages}, {window}")
    for cell in plan.processors.cells:
        complexes = [labels.root_complex(plan, port) for port in plan.root.expanders if port.cell == cell.id]
        top.children.append(Line(_cell(cell), complexes))
    # Devices whose node the host does not report, and those of a guest that is flat on purpose.
    top.children += [labels.root_complex(plan, port) for port in plan.root.expanders if port.cell is None]
    flat = Line(
        "root complex pci0000:00, the guest's own", labels.lines_below(plan, pci_tree.Port(pci_tree.ROOT), plan.root)
    )
    top.children += [flat] if flat.children else []
    lines = [top.text, *_draw(top.children, "")]
    lines.append(_share(plan))
    fidelity = plan.fidelity
    lines.append(fidelity_line(fidelity))
    for item in fidelity.differences[:MANY]:
        first, second = item["pair"]
        lines.append(f"  {first} and {second}: {item['host']} on the host, {item['guest']} in the guest")
    if len(fidelity.differences) > MANY:
        lines.append(f"  and {len(fidelity.differences) - MANY} more")
    return [*lines, *(f"note: {note}" for note in plan.notes), *_gpudirect(plan, host)]


def _gpudirect(plan: DomainPlan, host: Host) -> list[str]:
    """Return the GPUDirect outlook after the roles have run; nothing without a GPU and a NIC."""
    if not plan.chosen.gpus or not plan.chosen.nics:
        return []
    paths = Paths(host)
    differs = {frozenset(item["pair"]): item["guest"] for item in plan.fidelity.differences}
    guest_paths = {
        (gpu.address, nic.address): differs.get(
            frozenset((f"gpu {gpu.address}", f"nic {nic.address}")), paths.path_class(gpu.address, nic.address)
        )
        for gpu in plan.chosen.gpus
        for nic in plan.chosen.nics
    }
    pair_outlooks = outlook.pairs(
        host,
        plan.chosen.all(),
        guest_paths,
        huge_pages=bool(plan.spec.huge_page_mib),
        tuned=True,
        guest_causes=outlook_causes(plan, host.iommu),
    )
    return outlook.lines(pair_outlooks)


def _share(plan: DomainPlan) -> str:
    """Return the plan's share of the host's threads and memory, and the use of the other threads, as text."""
    share = plan.processors.share
    threads_by_use = {
        "kept for the host": share.kept,
        "with other virtual machines": share.taken,
        "unused": share.free,
        "on nodes without a cell": share.elsewhere,
    }
    unused = ", ".join(f"{number} {use}" for use, number in threads_by_use.items() if number)
    return (
        f"share: {share.vcpus} vCPUs for {share.threads} threads of the host{f' ({unused})' if unused else ''}, "
        f"{_mib(plan.spec.memory_mib)} of {share.memory_mib / 1024:.1f} GiB"
    )


class _Labels:
    """The names of one thing of a plan and of the things below it."""

    def __init__(self, host: Host) -> None:
        self._one_domain = all(function.address.startswith(DOMAIN) for function in host.functions)

    def root_complex(self, plan: DomainPlan, port: pci_tree.Port) -> Line:
        """Return the line of an expander bus, with everything below."""
        return Line(f"root complex pci0000:{port.bus:02x}, host {port.host}", self.lines_below(plan, port, port))

    def lines_below(self, plan: DomainPlan, parent: pci_tree.Port, bus_port: pci_tree.Port) -> list[Line]:
        """Return devices and switches below a port, without root and downstream ports, which a device's bus shows."""
        lines = [
            self._device(plan.functions[endpoint.key], pci_tree.address(bus_port.bus, endpoint.slot, endpoint.function))
            for endpoint in bus_port.endpoints
            if endpoint.role == "hostdev"
        ]
        for port in bus_port.ports:
            if port.model == pci_tree.EXPANDER:
                continue
            child_lines = self.lines_below(plan, bus_port, port)
            if port.model == pci_tree.UPSTREAM:
                guest_address = self._short(pci_tree.address(bus_port.bus, port.slot, port.function))
                mirrors = f"host {self._short(port.host)}" if port.host in plan.functions else "none on the host"
                lines.append(Line(f"switch {guest_address}, {mirrors}", child_lines))
            else:
                lines += child_lines
        return lines

    def _device(self, function: Function, guest_address: str) -> Line:
        parts = [f"{_kind(function)} {self._short(guest_address)}", f"host {self._short(function.address)}"]
        if function.physical_function:
            parts[-1] += f" of {self._short(function.physical_function)}"
        link = function.link
        if link and link.speed_gt_s and link.width:
            parts.append(f"{link.speed_gt_s:g} GT/s x{link.width}")
        return Line(", ".join(parts))

    def _short(self, address: str | None) -> str:
        text = address or ""
        return text[len(DOMAIN) :] if self._one_domain and text.startswith(DOMAIN) else text

    def listed(self, functions: list[Function]) -> str:
        """Return the functions kind by kind: "2 NICs (3b:00.0, 3b:00.1)"."""
        parts = []
        for kind, word in KINDS.items():
            addresses = [self._short(function.address) for function in functions if function.kind == kind]
            if addresses:
                parts.append(f"{_count(len(addresses), word)} ({', '.join(addresses)})")
        return ", ".join(parts)


def _left(plans: list[DomainPlan], host: Host) -> list[str]:
    """Return lines about the devices, CPUs and memory that no virtual machine has."""
    assigned = {function.address for plan in plans for function in plan.chosen.all()}
    unassigned = [
        function for function in host.functions if function.kind in KINDS and function.address not in assigned
    ]
    # A port whose VFs exist stays with the host and serves them.
    kept_by_host = [
        function for function in unassigned if function.used_by_host or (function.sriov and function.sriov.now)
    ]
    labels = _Labels(host)
    free = labels.listed([function for function in unassigned if function not in kept_by_host])
    lines = [f"stays free: {free or 'no device'}"]
    if kept_by_host:
        lines.append(f"stays with the host: {labels.listed(kept_by_host)}")
    for node in host.numa_nodes:
        cells = [cell for plan in plans for cell in plan.processors.cells if cell.host_node == node.id]
        cpus = set(node.cpus) - {cpu for cell in cells for cpu in cell.cpus}
        memory_bytes = node.memory_bytes - sum(cell.memory_mib for cell in cells) * MIB
        lines.append(f"node {node.id} keeps CPUs {format_ranges(cpus) or 'none'}, {memory_bytes / GIB:.1f} GiB")
    return lines


def _unknown(host: Host) -> list[str]:
    """Return the facts that planning uses and that were not read on this host."""
    gpus = [function for function in host.functions if function.kind == "gpu"]
    checks = {
        "BARs (the MMIO window)": any(function.bars for function in gpus),
        "ATS": any(function.config_bytes for function in host.functions),
        "IOMMU groups": any(function.iommu_group is not None for function in gpus),
        "what the host itself uses": host.source == "sysfs",
    }
    return [fact for fact, is_known in checks.items() if not is_known]


def _draw(lines: list[Line], prefix: str) -> list[str]:
    drawn = []
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        drawn.append(f"{prefix}{'└─' if last else '├─'} {line.text}")
        drawn += _draw(line.children, prefix + ("   " if last else "│  "))
    return drawn


def _cell(cell: Cell) -> str:
    pinned = f" on CPUs {format_ranges(cell.cpus)}" if cell.cpus else ""
    vcpus = _count(len(cell.vcpus), "vCPU")
    return f"cell {cell.id}, host node {cell.host_node}: {vcpus}{pinned}, {_mib(cell.memory_mib)}"


def _kind(function: Function) -> str:
    return "VF" if function.physical_function else KINDS.get(function.kind, "PCI")


def _count(number: int, word: str) -> str:
    plural = f"{word}es" if word.endswith(("x", "ch")) else f"{word}s"
    return f"{number} {word if number == 1 else plural}" if number else ""


def _mib(number: int) -> str:
    return f"{number // 1024} GiB" if number % 1024 == 0 and number else f"{number} MiB"
