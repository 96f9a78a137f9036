# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Derive the class of each DSCP from the class maps and policy maps that EOS and NX-OS have alike.

A packet takes the first class that it matches. What a class takes is known where it matches DSCPs. Any other condition
(a CoS, an access list, a length) may take some packets of each DSCP, so that several classes are possible for it.

``match-all`` with several conditions counts as both of its meanings: NX-OS reads it as ``match-any`` in the releases
whose guide says so (Nexus 9000 NX-OS QoS guide 7.x, "Guidelines and Limitations for Classification").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, DSCPS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import CliLine, CliReader

ALL = frozenset(range(DSCPS))
NONE: frozenset[int] = frozenset()
TakenBy = Callable[[CliLine, str], tuple["Taken", Sequence[str]]]
CLASS_DEFAULT = "class-default"
_CLASS = re.compile(r"class (?:type (?:qos|quality-of-service) )?(\S+)")
# Lines of an access list that can permit no packet of RoCE, which is UDP.
_NO_UDP = re.compile(
    r"(\d+ )?(remark|deny|permit (tcp|icmp|icmpv6|icmp6|igmp|ospf|pim|pcp|ahp|esp|gre|sctp|vrrp|eigrp)) |"
    r"statistics |counters |fragments "
)


class Taken(NamedTuple):
    """The DSCPs whose packets a class takes: all of their packets (``certain``), or perhaps some (``possible``).

    ``others``: it also takes packets of any DSCP that are certainly not RoCE's.
    """

    certain: frozenset[int]
    possible: frozenset[int]
    others: bool = False


NOT_UNDERSTOOD = Taken(NONE, ALL)
NOT_ROCE = Taken(NONE, NONE, others=True)


class Classification(NamedTuple):
    """The possible classes of each DSCP, and the conditions that leave it open which one a packet gets."""

    possible: tuple[frozenset[int], ...]
    conditions: tuple[str, ...]  # "class NAME match cos 3"

    @property
    def classes(self) -> tuple[int | None, ...]:
        """Return the class of each DSCP; None where it depends on more than the DSCP."""
        return tuple(next(iter(classes)) if len(classes) == 1 else None for classes in self.possible)

    @property
    def used(self) -> set[int]:
        """Return all classes that a packet can get."""
        return set().union(*self.possible)


def exactly(dscps: Iterable[int]) -> Taken:
    """Return what a condition takes that matches these DSCPs."""
    matched = frozenset(dscps)
    return Taken(matched, matched)


def complement(taken: Taken) -> Taken:
    """Return what is taken where a condition is not met."""
    return NOT_UNDERSTOOD if taken.others else Taken(ALL - taken.possible, ALL - taken.certain)


def together(conditions: Sequence[tuple[str, Taken]], all_of: bool) -> tuple[Taken, list[str]]:
    """Return what a class map takes, and its conditions (text, what it takes) that more than the DSCP decides.

    It takes packets that meet one of its conditions, or, if ``all_of``, all of them.
    """
    certain = [taken.certain for _text, taken in conditions]
    possible = NONE.union(*(taken.possible for _text, taken in conditions))
    needs_all = all_of and len(conditions) > 1
    return (
        Taken(
            ALL.intersection(*certain) if needs_all else NONE.union(*certain),
            possible,
            any(taken.others for _text, taken in conditions),
        ),
        [text for text, taken in conditions if needs_all or taken.others or taken.certain != taken.possible],
    )


def of_access_list(lines: Sequence[str]) -> Taken:
    """Return what an access list takes, of which ``lines`` are all lines, none where it is not there."""
    return NOT_ROCE if lines and all(_NO_UDP.match(f"{line} ") for line in lines) else NOT_UNDERSTOOD


def classified(
    reader: CliReader,
    policy: CliLine,
    taken_by: TakenBy,
    action: str,
    otherwise: Sequence[int],
) -> Classification:
    """Return the classes that ``policy`` leads to.

    ``taken_by``: what a class takes, and its conditions, by its line and name. ``action``: the words before the class
    ("set qos-group "). ``otherwise``: the class of each DSCP where no class of the policy sets one.
    """
    entries = list(_entries(reader, policy, taken_by, action))
    possible: list[set[int]] = [set() for _dscp in range(DSCPS)]
    perhaps: list[frozenset[int]] = []  # of each entry: the DSCPs of which it takes some packets, or none
    undecided = ALL
    for _name, taken, _conditions, number in entries:
        for dscp in taken.possible & undecided:
            possible[dscp].add(otherwise[dscp] if number is None else number)
        perhaps.append((taken.possible - taken.certain) & undecided)
        undecided -= taken.certain
    for dscp in undecided:
        possible[dscp].add(otherwise[dscp])
    # Packets without a DSCP have 0, whose class is that of other traffic.
    of_dscps = set().union(*possible) - possible[0]
    return Classification(
        tuple(map(frozenset, possible)),
        tuple(
            f"class {name} {condition}"
            for (name, taken, conditions, number), dscps in zip(entries, perhaps)
            if (taken.others and number in of_dscps) or any(len(possible[dscp]) > 1 for dscp in dscps)
            for condition in conditions
        ),
    )


def _entries(
    reader: CliReader, policy: CliLine, taken_by: TakenBy, action: str
) -> Iterator[tuple[str, Taken, Sequence[str], int | None]]:
    """Return each class of a policy map: its name, what it takes, its conditions, and the class that it sets."""
    for entry in policy.children:
        match = _CLASS.fullmatch(entry.text)
        if match:
            name, number = match[1], None
            taken, conditions = (exactly(ALL), ()) if name == CLASS_DEFAULT else taken_by(entry, name)
            for line in entry.children:
                if line.text.startswith(action):
                    number = reader.number(line, line.text[len(action) :], 0, CLASSES - 1)
            yield name, taken, conditions, number
