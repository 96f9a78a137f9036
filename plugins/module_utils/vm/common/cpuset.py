# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sets of CPUs or nodes as text, the way the kernel and libvirt write them: "0-3,8"."""

from __future__ import annotations

from collections.abc import Iterable


def format_set(numbers: Iterable[int]) -> str:
    """Return ascending ranges: [8, 0, 1, 2] is "0-2,8"."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def parse_set(text: str) -> list[int]:
    """Parse the text of ``format_set``, and libvirt's exclusions ("^2"). Raises ValueError on anything else."""
    inside: set[int] = set()
    outside: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        target = outside if part.startswith("^") else inside
        first, _dash, last = part.lstrip("^").partition("-")
        target.update(range(int(first), int(last or first) + 1))
    return sorted(inside - outside)
