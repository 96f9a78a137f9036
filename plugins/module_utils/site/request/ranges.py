# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expand names with number ranges, in the form of Ansible's inventory: ``Ethernet[0:248:8]``, ``swp[1:32]s[0:3]``."""

from __future__ import annotations

import re
from itertools import product

# A range's ends are included, as in Ansible's inventory; leading zeros of the first number give the width.
RANGE = re.compile(r"\[(\d+):(\d+)(?::(\d+))?\]")
# A modular switch has some 1,000 ports; many more indicate a mistake in the range.
NAMES_MAX = 4096


def expand(text: str) -> tuple[str, ...]:
    """Return all names for the ranges in ``text``; the last range varies fastest. Raises ValueError."""
    parts = RANGE.split(text)
    fixed, choices = parts[0::4], []
    for first, last, step in zip(parts[1::4], parts[2::4], parts[3::4]):
        every = int(step or 1)
        numbers = range(int(first), int(last) + 1, every) if every else ()
        if not numbers:
            raise ValueError(f"the range [{first}:{last}{':' + step if step else ''}] is empty")
        choices.append([str(value).zfill(len(first)) for value in numbers])
    count = 1
    for values in choices:
        count *= len(values)
    if count > NAMES_MAX:
        raise ValueError(f"{text!r} expands to {count} names, but the maximum is {NAMES_MAX}")
    if any(bracket in part for part in fixed for bracket in "[]"):
        raise ValueError(f"{text!r} has a bracket that is not part of a range [FIRST:LAST] or [FIRST:LAST:STEP]")
    return tuple(
        fixed[0] + "".join(number + literal for number, literal in zip(chosen, fixed[1:]))
        for chosen in product(*choices)
    )
