# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sets of numbers (CPUs, NUMA nodes, DSCPs) as the kernel, libvirt and switches write them: "0-3,8"."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each range, ascending: [8, 0, 1, 2] is [(0, 2), (8, 8)]."""
    limits: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if limits and limits[-1][1] == number - 1:
            limits[-1] = (limits[-1][0], number)
        else:
            limits.append((number, number))
    return limits


def format_ranges(numbers: Iterable[int], width: int = 0) -> str:
    """Return ascending ranges: [8, 0, 1, 2] is "0-2,8". Numbers have at least ``width`` digits."""
    return ",".join(
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
        for first, last in ranges(numbers)
    )


def parse_ranges(text: str) -> list[int]:
    """Parse the text of ``format_ranges``, and libvirt's exclusions ("^2"). Raises ValueError on anything else."""
    included: set[int] = set()
    excluded: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        target = excluded if part.startswith("^") else included
        first, _dash, last = part.lstrip("^").partition("-")
        target.update(range(int(first), int(last or first) + 1))
    return sorted(included - excluded)
