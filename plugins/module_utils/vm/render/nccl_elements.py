# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The elements of a topology file for NCCL in a guest, whatever hypervisor runs it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Cpu, Function
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import (
    ARCHITECTURES,
    BRIDGE,
    VENDORS,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl_format import LINK_SPEEDS, NCCL
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.host_record import link_limit

KINDS = ("gpu", "nic")
# The number of elements that NCCL adds while it runs, which count for the same limit of 256: for a GPU its gpu element
# and an nvlink for each other end (at most six are known: the NVSwitches of a DGX-2), for a NIC a nic and a net.
ADDED = {"gpu": 7, "nic": 2}
# The link speeds as the kernel writes them since 5.7, ascending.
SPEED_TEXTS = sorted((speed, text) for text, speed in {**LINK_SPEEDS, "2.5 GT/s PCIe": 2.5}.items() if "PCIe" in text)
HEADER = "<!-- Written by sailloft.fleet from the plan of this virtual machine; changes here are lost. -->\n"


@dataclass
class Pci:
    """One ``pci`` element: a switch, or a GPU or NIC."""

    attributes: dict[str, str]
    children: list[Pci] = field(default_factory=list)

    def lines(self, indent: int) -> list[str]:
        """Return the element with its children."""
        start = " " * indent + _tag("pci", self.attributes)
        if not self.children:
            return [f"{start}/>"]
        inner = [line for child in self.children for line in child.lines(indent + 2)]
        return [f"{start}>", *inner, " " * indent + "</pci>"]


def device(functions: dict[str, Function], function: Function, guest_address: str) -> Pci:
    """Return the element of a passed-through function of the host whose functions are ``functions``."""
    return Pci({"busid": guest_address, "class": f"0x{function.class_code:06x}", **link(functions, function)})


def switch(functions: dict[str, Function], function: Function, busid: str, inner: list[Pci]) -> Pci:
    """Return the element of a switch of the host, by its upstream port, with the host's ids."""
    attributes = {"busid": busid, "class": f"0x{BRIDGE:06x}", **_ids(function), **link(functions, function)}
    return Pci(attributes, inner)


def document(cells: Iterable[tuple[dict[str, str], list[Pci]]]) -> str:
    """Return the file of ``cells``, each the attributes of its ``cpu`` and the elements below it."""
    lines = [f'<system version="{NCCL.version}">']
    for attributes, elements in cells:
        lines.append(f"  {_tag('cpu', attributes)}>")
        for element in elements:
            lines += element.lines(4)
        lines.append("  </cpu>")
    lines.append("</system>")
    return HEADER + "\n".join(lines) + "\n"


def needed(text: str, functions: Iterable[Function]) -> int:
    """Return the number of elements that NCCL needs for a file, with those that it adds for ``functions``."""
    added = sum(ADDED.get(function.kind, 0) for function in functions)
    return sum(line.lstrip()[:2] != "</" for line in text[len(HEADER) :].splitlines()) + added


def link(functions: dict[str, Function], function: Function) -> dict[str, str]:
    """Return speed and width of the host's link; empty if the host does not report them."""
    speed, width = link_limit(functions, function)
    # A speed that NCCL does not know yet is written as the highest known one below it.
    texts = [text for known_speed, text in SPEED_TEXTS if speed is not None and known_speed <= speed]
    return {"link_speed": texts[-1] if texts else "", "link_width": str(width) if width is not None else ""}


def processor(cpu: Cpu) -> dict[str, str]:
    """Return the attributes of the host's processor that NCCL supports."""
    attributes = {}
    names = {kernel: name for name, kernel in ARCHITECTURES.items()}
    if cpu.architecture in names:
        attributes["arch"] = names[cpu.architecture]
    # NCCL knows no other vendor, and its format may not be able to hold the text.
    if cpu.vendor in VENDORS:
        attributes["vendor"] = cpu.vendor
    return attributes


def mask(cpus: list[int], count: int) -> str:
    """Return the mask as the kernel writes node*/cpumap: words of 32 bits for ``count`` CPUs, the highest first."""
    number = sum(1 << cpu for cpu in cpus)
    numbers = [number >> shift & 0xFFFFFFFF for shift in range(0, count, 32)]
    return ",".join(f"{word:08x}" for word in reversed(numbers))


def _ids(function: Function) -> dict[str, str]:
    ids = {
        "vendor": function.vendor_id,
        "device": function.device_id,
        "subsystem_vendor": function.subsystem_vendor_id,
        "subsystem_device": function.subsystem_device_id,
    }
    return {name: f"0x{number:04x}" for name, number in ids.items() if number is not None}


def _tag(name: str, attributes: dict[str, str]) -> str:
    return f"<{name}" + "".join(f' {key}="{value}"' for key, value in attributes.items())
