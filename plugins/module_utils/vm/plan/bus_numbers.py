# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The bus numbers that the firmware will assign, and the check that they fit before anything is defined. Pure.

SeaBIOS and OVMF number a root bus's tree depth first, by slot and function: each bridge takes the next number for the
bus below it. A PCI Express guest has one domain of 256 buses. An expander bus starts at its ``busNr``. The buses below
it must end before the next expander bus starts; otherwise the firmware enumerates fewer devices without an error.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.pci_tree import EXPANDER, Port

BUSES = 256
# The largest of these spacings with which everything fits is used. Round numbers are easier to read in lspci.
SPACINGS = (32, 16, 8, 4, 2, 1)


def needed(port: Port) -> int:
    """Return the number of buses of one root bus: itself and one for each bridge below, without expander buses.

    Expander buses below the root are counted separately. An expander bus with one switch of L leaves needs L + 3:
    itself, the root port's, the upstream port's, and L.
    """
    return 1 + sum(needed(child) for child in port.ports if child.model != EXPANDER)


def assign(name: str, root: Port) -> None:
    """Give every bus of the tree its number. Raises DomainError if 256 do not suffice."""
    total = needed(root) + sum(needed(expander) for expander in root.expanders)
    if total > BUSES:
        parts = ", ".join(f"{expander.host} {needed(expander)}" for expander in root.expanders)
        raise DomainError(
            f"its PCI tree needs {total} buses, but a guest has {BUSES} (the guest's own root bus {needed(root)}, "
            f"{parts})",
            "assign fewer devices to it",
            domain=name,
        )
    attempts = (_starts(root, spacing) for spacing in SPACINGS)
    starts = next(starts_or_none for starts_or_none in attempts if starts_or_none is not None)
    number(root, 0)
    for expander, start in zip(root.expanders, starts):
        number(expander, start)
    check_ranges(name, root)


def _starts(root: Port, spacing: int) -> list[int] | None:
    """Return the first buses of the expanders, each a multiple of ``spacing``, or None if they do not fit."""
    starts, free = [], needed(root)
    for expander in root.expanders:
        start = -(-free // spacing) * spacing
        starts.append(start)
        free = start + needed(expander)
    return starts if free <= BUSES else None


def number(port: Port, bus: int) -> int:
    """Number the buses as firmware does, from a root bus whose number is ``bus``; return the next free number."""
    port.bus = bus
    free = bus + 1
    for child in sorted(port.ports, key=lambda item: (item.slot, item.function)):
        if child.model != EXPANDER:
            free = number(child, free)
    port.last_bus = free - 1
    return free


def check_ranges(name: str, root: Port) -> None:
    """Check an assignment: no bus number twice, none past the end or in the range of the next root bus."""
    roots = [root, *root.expanders]
    for first, second in zip(roots, [*roots[1:], None]):
        end = BUSES if second is None else second.bus
        if first.last_bus >= end:
            raise DomainError(f"buses {first.bus}-{first.last_bus} of {first.host} run into bus {end}", domain=name)
    numbers = [port.bus for port in root.walk()]
    if len(set(numbers)) != len(numbers):
        raise DomainError(f"a bus number is used twice: {sorted(numbers)}", domain=name)
