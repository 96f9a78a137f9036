# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The libvirt definition or the running domain compared with the plan: each XML difference in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import label
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.item import DEFINED, RUNNING, Drift
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.read_xml import Definition
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import XmlDifference
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import predict

REMEDY = {
    DEFINED: "run playbooks/gpu_vms.yml, which defines it again",
    RUNNING: "run playbooks/gpu_vms.yml with gpu_vm_allow_restart: true, or restart it yourself",
}


@dataclass
class Wanted:
    """The planned domain: its XML, the guest, and the guest address of each passed-through device by host address."""

    xml: str
    guest: Host
    places: dict[str, str]

    @classmethod
    def of(cls, plan: DomainPlan, xml: str) -> Wanted:
        """Return the planned domain of ``plan``; ``xml`` was rendered from the plan."""
        return cls(xml, predict(plan), plan.guest_addresses())


@dataclass
class DriftRule:
    """Paths with one meaning: their pattern, the drift in words, its consequence, and the words for one path.

    ``detail`` is called with the text of the pattern's group and the difference.
    """

    pattern: str
    summary: str
    consequence: str
    detail: Callable[[str, XmlDifference], str]


def _numbers(word: str, item: XmlDifference) -> str:
    if item.have is None:
        return f"{word} is not pinned"
    if item.wanted is None:
        return f"{word} is pinned"
    return f"{word} on CPU {item.have}, planned {item.wanted}"


def _vcpu(word: str, item: XmlDifference) -> str:
    return f"vCPU {_numbers(word, item)}"


def _sides(word: str, item: XmlDifference) -> str:
    if item.wanted is None:
        return f"{word} exists but is not planned"
    if item.have is None:
        return f"{word} is missing"
    return f"{word} is {item.have}, planned {item.wanted}"


# The first matching row applies. A difference without a row (disks, interfaces, the console) is reported by its path.
ROWS = (
    DriftRule(
        r"cputune/vcpupin\[(\d+)\](?:/@cpuset)?",
        "vCPUs are not pinned as planned",
        "a vCPU may share its core or be far from its memory: ranks wait for the slowest one",
        _vcpu,
    ),
    DriftRule(
        r"cputune/(emulator|iothread)pin.*",
        "QEMU's own threads are not pinned as planned",
        "they may take time from a vCPU",
        _numbers,
    ),
    DriftRule(
        r"(?:numatune/)(memory|memnode\[\d+\])(?:/@(?:mode|nodeset|cellid))?|(numatune)",
        "memory is not bound strictly to the planned nodes",
        "pages may lie on another node, and DMA of GPUs and NICs then crosses the socket link",
        _sides,
    ),
    DriftRule(
        r"memoryBacking/(hugepages).*|(memoryBacking)",
        "memory is not in the planned huge pages",
        "misses in the TLB and the IOMMU, and longer mapping of device memory",
        _sides,
    ),
    DriftRule(r"memoryBacking/(locked)", "memory is not locked as planned", "pauses when the host swaps", _sides),
    DriftRule(
        r"cpu/(maxphysaddr)(?:/.*)?|devices/controller\[pci,0\]/(pcihole64).*|(qemu:commandline).*",
        "the window for large BARs is not the planned one",
        "GPUs may be missing in the guest, or their drivers fail to load",
        _sides,
    ),
    DriftRule(
        r"(qemu:override).*|devices/hostdev\[[0-9a-f:.]+\]/(alias)(?:/.*)?",
        "peer-to-peer of GPUs is not approved as planned (GPUDirect P2P cliques)",
        "GPUs without NVLink reach each other through memory",
        _sides,
    ),
    DriftRule(
        r"(vcpu|memory)|cpu/(topology|numa)(?:/.*)?",
        "the guest's NUMA cells differ from the plan",
        "CPUs, memory and devices are on other guest nodes than the plan's: threads run far from their GPU",
        _sides,
    ),
)
HOSTDEV = re.compile(r"devices/hostdev\[([0-9a-f:.]+)\](/.*)?")
TREE = re.compile(r"devices/(?:controller\[pci,\d+\]|hostdev\[[0-9a-f:.]+\])(?:/.*)?")


def against_plan(compared: list[XmlDifference], have: Definition, wanted: Wanted, side: str) -> list[Drift]:
    """Return items for the differences in ``compared``, in the order of the rows; ``side`` is DEFINED or RUNNING."""
    unreported = list(compared)
    items = _devices(unreported, have, wanted, side)
    for row in ROWS:
        matched = [(re.fullmatch(row.pattern, item.path), item) for item in unreported]
        hits = [(next(filter(None, match.groups())), item) for match, item in matched if match]
        if hits:
            details = dict.fromkeys(row.detail(word, item) for word, item in hits)
            items.append(
                Drift(
                    f"{row.summary}: {excerpt(list(details))}",
                    [side],
                    row.consequence,
                    REMEDY[side],
                    [item.path for _word, item in hits],
                )
            )
            unreported = [item for item in unreported if not re.fullmatch(row.pattern, item.path)]
    paths = [item.path for item in unreported if TREE.fullmatch(item.path)]
    return items + _places(paths, have, wanted, side)


def _label(have: Definition, wanted: Wanted, address: str) -> str:
    for side in (have, wanted):
        if address in side.places:
            return label(side.guest.function(side.places[address]).kind, address)
    return label("other", address)


def _devices(unreported: list[XmlDifference], have: Definition, wanted: Wanted, side: str) -> list[Drift]:
    """Return items for devices that only one side has; remove their differences from ``unreported``."""
    items = []
    for addresses, phrase, consequence in (
        (set(wanted.places) - set(have.places), "lacks {}, which the plan gives it", "the guest does not see it"),
        (
            set(have.places) - set(wanted.places),
            "has {}, which the plan does not give it",
            "neither another virtual machine nor the host can have it",
        ),
    ):
        if not addresses:
            continue
        paths = [item for item in unreported if (match := HOSTDEV.fullmatch(item.path)) and match[1] in addresses]
        unreported[:] = [item for item in unreported if item not in paths]
        names = excerpt([_label(have, wanted, address) for address in sorted(addresses)])
        items.append(
            Drift(
                f"the domain {phrase.format(names)}", [side], consequence, REMEDY[side], [item.path for item in paths]
            )
        )
    return items


def _places(paths: list[str], have: Definition, wanted: Wanted, side: str) -> list[Drift]:
    """Return an item for the PCI tree: devices that only the plan has below a switch, else any other difference."""
    common = [address for address in sorted(wanted.places) if address in have.places]
    flat = [address for address in common if _below_switch(wanted, address) and not _below_switch(have, address)]
    if flat:
        names = excerpt([_label(have, wanted, address) for address in flat])
        verb = "stands" if len(flat) == 1 else "stand"
        return [
            Drift(
                f"{names} {verb} flat in the guest, below a switch in the plan",
                [side],
                "NCCL sees no common switch, and traffic between GPU and NIC goes through the CPU",
                REMEDY[side],
                paths,
            )
        ]
    if not paths:
        return []
    displaced = [address for address in common if have.places[address] != wanted.places[address]]
    names = (
        f": {excerpt([_label(have, wanted, address) for address in displaced])} at another guest address"
        if displaced
        else ""
    )
    return [
        Drift(
            f"the guest's PCI tree is not the planned one{names}",
            [side],
            "files with guest addresses (NCCL_TOPO_FILE, a proof) describe another tree",
            REMEDY[side],
            paths,
        )
    ]


def _below_switch(of: Definition | Wanted, address: str) -> bool:
    return any(step.port_type == "switch_downstream" for step in of.guest.path(of.places[address]))


def unbound_memory(have: Definition, side: str) -> list[Drift]:
    """Return an item for cells whose memory may come from any node, for a domain that has devices and no plan."""
    loose = [cell.id for cell in have.cells if not cell.strict]
    if not have.places or not loose:
        return []
    return [
        Drift(
            f"memory of guest cell {format_ranges(loose)} is not bound strictly to a host node",
            [side],
            "pages may lie on another node, and DMA of GPUs and NICs then crosses the socket link",
            "leave strict_memory on and define it with playbooks/gpu_vms.yml",
        )
    ]
