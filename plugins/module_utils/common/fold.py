# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fold host names into a list with ranges, and unfold it, in the form of ClusterShell and, by ``hostlist``, of Slurm.

An example: ``gpu[001-006,009],leaf1``.

ClusterShell itself is not used: a callback must not need a package that Ansible does not have. A test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges

# The last number of a name: the part that differs between hosts of a kind.
NUMBER = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def fold(names: Iterable[str]) -> str:
    """Return the names as one text; ``nodeset -e`` expands it again."""
    return ",".join(_folded(sorted(set(names))))


def hostlist(names: Iterable[str]) -> str:
    """Return the names as a text that Slurm expands: each name with ranges ends with one (slurm.conf(5), NodeName)."""
    return ",".join(_folded(sorted(set(names)), ranges_end=True))


def unfold(text: str) -> list[str]:
    """Return the names of a folded text, in its order."""
    names = []
    for item in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        parts = [_numbers(part[1:-1]) if part[0] == "[" else [part] for part in re.findall(r"\[[^\]]*\]|[^\[]+", item)]
        names += ["".join(chosen) for chosen in product(*parts)]
    return names


def _numbers(text: str) -> list[str]:
    numbers = []
    for part in text.split(","):
        first, _dash, last = part.partition("-")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
    return numbers


def _folded(names: list[str], ranges_end: bool = False) -> list[str]:
    """Return sorted names as texts, folded by their last number first, and then the part before it in the same way.

    ``ranges_end``: a text with ranges ends with one; names for which there is none are not folded.
    """
    texts: list[str] = []
    families: dict[tuple[str, str, int], list[int]] = {}
    for name in names:
        match = NUMBER.fullmatch(name)
        if not match:
            texts.append(name)
            continue
        digits = match[2]
        # Numbers of any width belong to one family when they have no leading zeros.
        width = len(digits) if digits.startswith("0") else -len(digits)
        families.setdefault((match[1], match[3], width), []).append(int(digits))
    for (prefix, suffix, width), numbers in sorted(families.items()):
        # 1-9 and 10-99 are one family, and so are 01-09 and 10-99.
        if width < 0:
            padded = families.get((prefix, suffix, -width))
            target = padded if padded is not None else families.setdefault((prefix, suffix, 0), [])
            target += numbers
            del families[prefix, suffix, width]
    ends: dict[str, list[str]] = {}
    for (prefix, suffix, width), numbers in sorted(families.items()):
        if ranges_end and (suffix or len(numbers) == 1):
            texts += [f"{prefix}{number:0{width}d}{suffix}" for number in numbers]
            continue
        number = format_ranges(numbers, width)
        if len(numbers) > 1:
            number = f"[{number}]"
        ends.setdefault(f"{number}{suffix}", []).append(prefix)
    for end, prefixes in ends.items():
        texts += [prefix + end for prefix in _folded(prefixes)]
    return sorted(texts)
