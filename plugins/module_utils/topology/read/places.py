# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The place of each PCI function in ``/sys``: its directory, the bridge above it and its root complex.

In a live ``/sys`` the text of the links in ``bus/pci/devices`` gives the tree. A copy that followed the links
(``scp -r``, ``cp -rL``) has directories there. Then the tree is read from the directories below
``devices/pciDDDD:BB`` if they were copied, and otherwise from the bus numbers in the bridges' config space.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.pci import registers as r
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files

# A domain has four digits or, below a volume management device, five.
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
ROOT_COMPLEX = re.compile(r"pci([0-9a-f]{4,8}):([0-9a-f]{2})")
TOP = "sys/bus/pci/devices"
# Bytes of the head of config space: up to and including the bus numbers of a bridge.
HEAD_BYTES = r.PCI_SUBORDINATE_BUS + 1


class FunctionPlace(NamedTuple):
    """A function's directory; the address of the bridge above it, None on a root bus; its root complex's name."""

    directory: str
    parent: str | None
    root_complex: str


def address_key(address: str) -> tuple[int, int, int, int]:
    """Return the sort key of an address: domain, bus, device and function."""
    domain, bus, slot_and_function = address.split(":")
    device, function = slot_and_function.split(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


def find_places(files: Files) -> tuple[dict[str, FunctionPlace], list[str]]:
    """Return the place of each function, in the order of their addresses, and notes about assumptions.

    Raises TopologyError for an entry that is no function, or that leads to no root complex.
    """
    places: dict[str, FunctionPlace] = {}
    folders: list[str] = []
    for name in files.names(TOP):
        target = files.link(f"{TOP}/{name}")
        if target is None and ADDRESS.fullmatch(name) and files.names(f"{TOP}/{name}"):
            folders.append(name)
            continue
        if target is None or not ADDRESS.fullmatch(name) or not target.endswith(f"/{name}"):
            raise TopologyError(f"{files.path(TOP)}/{name} is not a link to a PCI function")
        if not any(ROOT_COMPLEX.fullmatch(step) for step in target.split("/")):
            raise TopologyError(f"{files.path(TOP)}/{name} leads to {target}, which is not below a pciDDDD:BB")
        _add_way(target, places)
    notes: list[str] = []
    if folders:
        for name in files.names("sys/devices"):
            if ROOT_COMPLEX.fullmatch(name):
                _add_below(files, f"sys/devices/{name}", places)
        notes = _add_by_buses(files, [name for name in folders if name not in places], places)
    return {address: places[address] for address in sorted(places, key=address_key)}, notes


def linked_address(files: Files, path: str) -> str | None:
    """Return the address that a link leads to, or the one in the ``uevent`` of a directory in its place."""
    target = files.link(path)
    if target is not None:
        return target.rsplit("/", 1)[-1]
    match = re.search(r"^PCI_SLOT_NAME=(.*)$", files.text_or_none(f"{path}/uevent") or "", re.MULTILINE)
    return match[1] if match else None


def _add_way(target: str, places: dict[str, FunctionPlace]) -> None:
    """Add all functions on the path to ``target``: a bridge may be missing from the listing."""
    steps = target.split("/")
    for depth, step in enumerate(steps):
        if ADDRESS.fullmatch(step):
            parent_step = steps[depth - 1]
            complexes = [name for name in steps[:depth] if ROOT_COMPLEX.fullmatch(name)]
            parent = parent_step if ADDRESS.fullmatch(parent_step) else None
            places[step] = FunctionPlace("/".join(steps[: depth + 1]), parent, complexes[-1])


def _add_below(files: Files, directory: str, places: dict[str, FunctionPlace]) -> None:
    for name in files.names(directory):
        # Links are skipped: they lead out of the tree, or in circles.
        if ADDRESS.fullmatch(name) and files.link(f"{directory}/{name}") is None:
            _add_way(f"{directory}/{name}", places)
            _add_below(files, f"{directory}/{name}", places)


def _add_by_buses(files: Files, folders: list[str], places: dict[str, FunctionPlace]) -> list[str]:
    """Add functions that have only a directory: each is below the bridge whose secondary bus it is on."""
    bridges = {}
    for name in (*places, *folders):
        bus = _secondary_bus(files, f"{places[name].directory if name in places else f'{TOP}/{name}'}/config")
        if bus:
            bridges[name.split(":")[0], bus] = name
    notes = []
    for name in sorted(folders, key=address_key):
        place = _by_buses(files, name, bridges, places)
        places[name] = place
        root = ROOT_COMPLEX.fullmatch(place.root_complex)
        if root and place.parent is None and root[2] != "00" and not files.exists(f"sys/devices/{place.root_complex}"):
            text = (
                f"bus {root[1]}:{root[2]} is not below any copied bridge, and is treated as a root bus of its own: the "
                "distances of its devices from others are uncertain; copy /sys with its links (tar)"
            )
            notes += [text] if text not in notes else []
    return notes


def _by_buses(
    files: Files, name: str, bridges: dict[tuple[str, int], str], places: dict[str, FunctionPlace]
) -> FunctionPlace:
    """Return the place of one function. Raises TopologyError if bridges are below each other in a circle."""
    directory = f"{TOP}/{name}"
    parent: str | None = None
    step, seen = name, {name}
    while step not in places:
        domain, bus, _rest = step.split(":")
        parent_bridge = bridges.get((domain, int(bus, 16)))
        if parent_bridge is None and files.exists(f"{TOP}/{step}/physfn"):
            # A virtual function may be on a bus behind that of its physical function.
            physical = linked_address(files, f"{TOP}/{step}/physfn") or ":"
            parent_bridge = (
                bridges.get((domain, int(physical.split(":")[1] or "0", 16))) if ADDRESS.fullmatch(physical) else None
            )
        parent = parent_bridge if step == name else parent
        if parent_bridge is None:
            return FunctionPlace(directory, parent, f"pci{domain}:{bus}")
        if parent_bridge in seen:
            raise TopologyError(f"{files.path(TOP)}/{parent_bridge}/config: its buses make it a bridge above itself")
        seen.add(parent_bridge)
        step = parent_bridge
    return FunctionPlace(directory, parent, places[step].root_complex)


def _secondary_bus(files: Files, path: str) -> int | None:
    """Return the bus below a bridge, 0 if unset; None if it is no bridge or its config space was not copied."""
    head = files.bytes_or_none(path, HEAD_BYTES)
    if head is None or len(head) < HEAD_BYTES:
        return None
    bridge = head[r.PCI_HEADER_TYPE] & r.PCI_HEADER_TYPE_MASK == r.PCI_HEADER_TYPE_BRIDGE
    return head[r.PCI_SECONDARY_BUS] if bridge else None
