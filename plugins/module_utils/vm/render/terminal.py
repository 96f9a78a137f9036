# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans as text for a terminal: each virtual machine as a tree, its fidelity to the host, and what stays free. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.given.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import outlook
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity, Paths
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import KINDS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan

DOMAIN = "0000:"
# More differing pairs than this are counted, not listed.
MANY = 8


@dataclass
class Line:
    """One line of a tree and those below it."""

    text: str
    below: list[Line] = field(default_factory=list)


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
    spec, words = plan.spec, _Words(host)
    vcpus = sum(len(cell.vcpus) for cell in plan.processors.cells)
    pages = f" in pages of {_mib(spec.huge_page_mib)}" if spec.huge_page_mib else ""
    window = f"64-bit MMIO window {_mib(plan.window.window_bytes // MIB)}"
    top = Line(f"virtual machine {plan.name}: {_count(vcpus, 'vCPU')}, {_mib(spec.memory_mib)}{pages}, {window}")
    for cell in plan.processors.cells:
        complexes = [words.root_complex(plan, port) for port in plan.root.expanders if port.cell == cell.id]
        top.below.append(Line(_cell(cell), complexes))
    # Devices whose node the host does not report, and those of a guest that is flat on purpose.
    top.below += [words.root_complex(plan, port) for port in plan.root.expanders if port.cell is None]
    flat = Line("root complex pci0000:00, the guest's own", words.below(plan, pci_tree.Port(pci_tree.ROOT), plan.root))
    top.below += [flat] if flat.below else []
    lines = [top.text, *_draw(top.below, "")]
    lines.append(_share(plan))
    fidelity = plan.fidelity
    lines.append(fidelity_line(fidelity))
    for item in fidelity.differences[:MANY]:
        one, other = item["pair"]
        lines.append(f"  {one} and {other}: {item['host']} on the host, {item['guest']} in the guest")
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
    found = outlook.pairs(host, plan.chosen.all(), guest_paths, huge_pages=bool(plan.spec.huge_page_mib), tuned=True)
    return outlook.lines(found)


def _share(plan: DomainPlan) -> str:
    """Return the plan's share of the host's threads and memory, and the use of the other threads, as text."""
    share = plan.processors.share
    rest = {
        "kept for the host": share.kept,
        "with other virtual machines": share.taken,
        "unused": share.free,
        "on nodes without a cell": share.elsewhere,
    }
    others = ", ".join(f"{number} {where}" for where, number in rest.items() if number)
    return (
        f"share: {share.vcpus} vCPUs for {share.threads} threads of the host{f' ({others})' if others else ''}, "
        f"{_mib(plan.spec.memory_mib)} of {share.memory_mib / 1024:.1f} GiB"
    )


class _Words:
    """The names of one thing of a plan and of the things below it."""

    def __init__(self, host: Host) -> None:
        self._one_domain = all(function.address.startswith(DOMAIN) for function in host.functions)

    def root_complex(self, plan: DomainPlan, port: pci_tree.Port) -> Line:
        """Return the line of an expander bus, with everything below."""
        return Line(f"root complex pci0000:{port.bus:02x}, host {port.host}", self.below(plan, port, port))

    def below(self, plan: DomainPlan, above: pci_tree.Port, here: pci_tree.Port) -> list[Line]:
        """Return devices and switches below a port, without root and downstream ports, which a device's bus shows."""
        lines = [
            self._device(plan.functions[endpoint.key], pci_tree.address(here.bus, endpoint.slot, endpoint.function))
            for endpoint in here.endpoints
            if endpoint.role == "hostdev"
        ]
        for port in here.ports:
            if port.model == pci_tree.EXPANDER:
                continue
            inside = self.below(plan, here, port)
            if port.model == pci_tree.UPSTREAM:
                there = self._short(pci_tree.address(here.bus, port.slot, port.function))
                mirrors = f"host {self._short(port.host)}" if port.host in plan.functions else "none on the host"
                lines.append(Line(f"switch {there}, {mirrors}", inside))
            else:
                lines += inside
        return lines

    def _device(self, function: Function, there: str) -> Line:
        parts = [f"{_kind(function)} {self._short(there)}", f"host {self._short(function.address)}"]
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
    given = {function.address for plan in plans for function in plan.chosen.all()}
    rest = [function for function in host.functions if function.kind in KINDS and function.address not in given]
    # A port whose VFs exist stays with the host and serves them.
    own = [function for function in rest if function.used_by_host or (function.sriov and function.sriov.now)]
    words = _Words(host)
    free = words.listed([function for function in rest if function not in own])
    lines = [f"stays free: {free or 'no device'}"]
    if own:
        lines.append(f"stays with the host: {words.listed(own)}")
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
    return [what for what, known in checks.items() if not known]


def _draw(lines: list[Line], prefix: str) -> list[str]:
    drawn = []
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        drawn.append(f"{prefix}{'└─' if last else '├─'} {line.text}")
        drawn += _draw(line.below, prefix + ("   " if last else "│  "))
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
