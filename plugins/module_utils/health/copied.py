# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The copy of a node's state that its boot servers keep, because a node without a disk forgets its own. Pure.

A copy is two lines, the format with the node's name and a number, and the state as JSON; after them the signature of
both by the node's SSH host key. The number is greater in each copy. roles/boot_server/files/sailloft-health-keeper
takes a copy only from the node itself, and never an older one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple, TypeVar

from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RoundMemory
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import ENDED, Condition, Fault, ranked
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Moment
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import State, StateError, dump, load

FORMAT, NAMESPACE = "sailloft-health-copy/1", "sailloft-health"
LIMIT_BYTES = 1 << 20
_HEADER = re.compile(rf"{FORMAT} ([a-z0-9.-]+) ([1-9][0-9]{{0,17}})")
# A fault that goes on is copied again after so many seconds, for the time when it was seen last.
AGAIN_S = 3600
_T = TypeVar("_T")


class StateCopy(NamedTuple):
    """A copy whose signature was not checked yet."""

    number: int
    state: State
    signed: bytes
    signature: bytes


def text(node: str, number: int, state: State) -> bytes:
    """Return what the node signs. Memory, values and places in logs belong to the boot, and are left out."""
    lasting = replace(state, checks={}, values={}, memory=RoundMemory(), kept={}, left=())
    return f"{FORMAT} {node} {number}\n".encode() + dump(lasting)


def parse(data: bytes, node: str) -> StateCopy:
    """Return the copy of a node. Raises StateError if it is none."""
    lines = data.split(b"\n", 2)
    header = _HEADER.fullmatch(lines[0].decode(errors="replace"))
    if not header or len(lines) < 3:
        raise StateError("not a copy of a node's health", "look at the file on the boot server")
    if header[1] != node:
        raise StateError(f"the copy is of node {header[1]}, not of {node}", "look at the file on the boot server")
    return StateCopy(int(header[2]), load(lines[1]), b"\n".join(lines[:2]) + b"\n", lines[2])


def essence(condition: Condition) -> str:
    """Return a digest that differs when a new copy is needed: other faults, drains or words of persons."""
    faults = tuple(replace(fault, last=_hour(fault.last), count=0, seen="") for fault in condition.faults)
    lasting = replace(condition, faults=faults, unmeasured=())
    return sha256(dump(State("", condition=lasting))).hexdigest()


def _hour(moment: Moment) -> Moment:
    return Moment(moment.unix_s // AGAIN_S, moment.boot_id, 0.0)


def merged(state: State, copy: State) -> State:
    """Return a state with all that its copy of before says too. What was said since stays."""
    new, old = state.condition, copy.condition
    faults = {(fault.check, fault.place): fault for fault in old.faults}
    for fault in new.faults:
        faults[fault.check, fault.place] = _joined(fault, faults.get((fault.check, fault.place)))
    unmeasured = {(item.check, item.place): item for item in (*old.unmeasured, *new.unmeasured)}
    condition = Condition(
        ranked(faults.values()),
        tuple(unmeasured.values()),
        new.drain or old.drain,
        new.maintenance or old.maintenance,
        tuple(_once((*old.ended, *new.ended)))[-ENDED:],
        new.slurm_drain or old.slurm_drain,
    )
    return replace(state, round=state.round or copy.round, condition=condition)


def _joined(fault: Fault, old: Fault | None) -> Fault:
    if old is None:
        return fault
    return replace(fault, since=old.since, count=fault.count + old.count, is_event=fault.is_event or old.is_event)


def _once(items: Iterable[_T]) -> list[_T]:
    result: list[_T] = []
    for item in items:
        if item not in result:
            result.append(item)
    return result
