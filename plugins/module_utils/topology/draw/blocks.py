# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The content of a picture of a host, as nested blocks of text, with notes of what is left out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, Link, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import port_role

ROLES = {"root_port": "root port", "switch_upstream": "switch", "switch_downstream": "port"}


@dataclass
class Box:
    """One box. ``style`` is "node", "complex", "bridge", "port", "device" or "note"."""

    style: str
    title: str
    detail: str = ""
    side: str = ""  # at the right end of a device's title; below a port's detail
    label: str = ""  # of a passed-through device: where it is on the other side
    tooltip: str = ""
    kind: str = ""
    children: list[Box] = field(default_factory=list)


def devices(blocks: list[Box]) -> Iterator[Box]:
    """Yield the blocks of devices among ``blocks`` and all below them."""
    for block in blocks:
        if block.style == "device":
            yield block
        yield from devices(block.children)


class Blocks:
    """Builder of the blocks of one host. ``pairs`` maps an address here to the address on the other side."""

    def __init__(self, host: Host, pairs: dict[str, str], other_side: str) -> None:
        self._host = host
        self._pairs = pairs
        self._other_side = other_side
        self._below: dict[str | None, list[Function]] = {}
        for function in host.functions:
            self._below.setdefault(function.parent, []).append(function)
        addresses = [function.address for function in host.functions] + list(pairs.values())
        self._one_domain = all(address.startswith("0000:") for address in addresses)

    def build(self) -> list[Box]:
        """Return one block for each NUMA node, in their order, and one for the functions without a node."""
        numbers = {item.numa_node for item in self._host.root_complexes}
        blocks = [self._node(node.id, node) for node in self._host.numa_nodes]
        listed = {node.id for node in self._host.numa_nodes}
        blocks += [self._node(number, None) for number in sorted(numbers - listed - {None}, key=str)]
        return blocks + ([self._node(None, None)] if None in numbers else [])

    def _node(self, number: int | None, node: NumaNode | None) -> Box:
        complexes = [self._complex(item.name) for item in self._host.root_complexes if item.numa_node == number]
        title = "No NUMA node" if number is None else f"NUMA node {number}"
        return Box("node", title, _node_detail(node) if node else "", children=complexes)

    def _complex(self, name: str) -> Box:
        functions = [function for function in self._below.get(None, []) if function.root_complex == name]
        return Box("complex", name, "root complex", children=self._children(functions))

    def _children(self, functions: list[Function]) -> list[Box]:
        """Return the blocks of the functions that get a box, and one note for all others."""
        blocks: list[Box] = []
        hidden = empty = 0
        for function in functions:
            if function.kind == "bridge":
                ends = self._ends(function)
                if any(self._shown(end) for end in ends):
                    blocks.append(self._bridge(function))
                elif ends:
                    hidden += len(ends)
                else:
                    empty += 1
            elif self._shown(function):
                blocks.append(self._device(function))
            elif function.physical_function is None:
                hidden += 1
        notes = [_count(hidden, "other function"), _count(empty, "port") + " with nothing below" if empty else ""]
        text = ", ".join(note for note in notes if note)
        return blocks + ([Box("note", text)] if text else [])

    def _ends(self, bridge: Function) -> list[Function]:
        """Return all functions below a bridge that are not bridges."""
        ends: list[Function] = []
        for function in self._below.get(bridge.address, []):
            ends += self._ends(function) if function.kind == "bridge" else [function]
        return ends

    def _shown(self, function: Function) -> bool:
        if function.address in self._pairs or function.used_by_host:
            return True
        return function.kind != "other" and function.physical_function is None

    def _bridge(self, function: Function) -> Box:
        """Return the block of a bridge: a port with devices is a row; a chain of single bridges is one box.

        The box has the names of all bridges of the chain.
        """
        chain = [function]
        while True:
            children = self._below[chain[-1].address]
            if len(children) == 1 and children[0].kind == "bridge" and self._below.get(children[0].address):
                chain.append(children[0])
            else:
                break
        tooltip = "\n".join(self._tooltip(step) for step in chain)
        if len(chain) == 1 and all(item.kind != "bridge" for item in children):
            return Box(
                style="port",
                title=self._short(function.address),
                detail=self._role(function),
                side=_acs(function),
                tooltip=tooltip,
                children=self._children(children),
            )
        title = " → ".join(f"{self._short(step.address)} {self._role(step)}" for step in chain)
        acs = [f"{self._short(step.address)} {_acs(step)}" for step in chain if _acs(step)]
        return Box("bridge", title, " · ".join(acs), tooltip=tooltip, children=self._children(children))

    def _role(self, function: Function) -> str:
        return ROLES.get(port_role(self._host, function.address) or "", "bridge")

    def _device(self, function: Function) -> Box:
        name = "VF" if function.physical_function else kinds.BY_NAME[function.kind].short
        driver = function.driver or ("no driver" if self._host.source == "sysfs" else "")
        details = [driver or f"{function.vendor_id:04x}:{function.device_id:04x}"]
        if function.iommu_group is not None:
            details.append(f"group {function.iommu_group}")
        if function.link and function.link.speed_gt_s and function.link.width:
            details.append(f"{function.link.speed_gt_s:g} GT/s x{function.link.width}")
        if function.sriov and function.sriov.now:
            details.append(f"{function.sriov.now} of {function.sriov.total} VFs")
        names = " ".join(name for key in sorted(function.interfaces) for name in function.interfaces[key])
        twin = self._pairs.get(function.address)
        return Box(
            style="device",
            title=f"{name} {self._short(function.address)}",
            detail=" · ".join(details),
            side="in use" if function.used_by_host else names,
            label=f"{self._other_side} {self._short(twin)}" if twin else "",
            tooltip=self._tooltip(function),
            kind=function.kind,
        )

    def _tooltip(self, function: Function) -> str:
        facts = {
            "NUMA node": function.numa_node,
            "IOMMU group": function.iommu_group,
            "driver": function.driver,
        }
        lines = [
            f"{function.address} class {function.class_code:06x}, {function.vendor_id:04x}:{function.device_id:04x}",
            ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None),
            link_text(function.link) if function.link else "",
        ]
        if function.max_read_request_bytes:
            lines.append(f"MaxReadReq {function.max_read_request_bytes} bytes")
        if function.ats:
            lines.append(f"ATS {'on' if function.ats.enabled else 'off'}")
        return "\n".join([line for line in lines if line] + function.used_by_host)

    def _short(self, address: str) -> str:
        return address[len("0000:") :] if self._one_domain else address


def link_text(link: Link) -> str:
    """Return "link 16 GT/s x16, at most 32 GT/s x16", without what is not known."""
    now, maximum = (
        " ".join([*([f"{speed:g} GT/s"] if speed else []), *([f"x{width}"] if width else [])])
        for speed, width in ((link.speed_gt_s, link.width), (link.max_speed_gt_s, link.max_width))
    )
    parts = [f"link {now}" if now else "", f"at most {maximum}" if maximum else ""]
    return ", ".join(part for part in parts if part)


def _acs(function: Function) -> str:
    if function.acs:
        return f"ACS {function.acs.control:#04x}"
    return "no ACS" if function.config_bytes == 4096 else ""


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}" if number else ""


def _node_detail(node: NumaNode) -> str:
    parts = [f"CPUs {format_ranges(node.cpus)}" if node.cpus else "no CPUs", _bytes(node.memory_bytes)]
    parts += [
        f"{pages.total} huge page{'' if pages.total == 1 else 's'} of {_bytes(pages.size_bytes)}"
        for pages in node.huge_pages
        if pages.total
    ]
    return " · ".join(parts)


def _bytes(number: int) -> str:
    """Return the size in the largest binary unit that gives at least 1: "47.2 GiB"."""
    value, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f}".rstrip("0").rstrip(".") + f" {unit}" if number else "no memory"
