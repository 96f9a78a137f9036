# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes enter and leave service; the lines have the form of Slurm 22.05, which tests/scheduler runs."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.service import GATE, SPARE, changes, read_nodes

BY = "[root@2026-11-28T05:00:00]"


def nodes(**states):
    """Return the nodes of states such as a=("IDLE+DRAIN", reason)."""
    return read_nodes(
        "\n".join(
            f"NodeName={name} Arch=x86_64 State={state} ThreadsPerCore=1" + (f" Reason={reason} {BY}" if reason else "")
            for name, (state, reason) in states.items()
        )
    )


def made(proved, spares=(), **states):
    return [(change.node, change.state, change.reason) for change in changes(nodes(**states), proved, spares)]


IDLE, GATED, RESERVE = ("IDLE", ""), ("IDLE+DRAIN", GATE), ("IDLE+DRAIN", SPARE)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (GATED, [("a", "RESUME", "")]),
        (("DOWN", "sailloft-gate: reimage"), [("a", "RESUME", "")]),
        (("DOWN*", GATE), []),
        (("UNKNOWN+DRAIN", GATE), []),
        (("IDLE+DRAIN", "sailloft: sick: GPU 4"), []),
        (("IDLE+DRAIN", "ticket 7"), []),
        (("IDLE+DRAIN", "not sailloft-gate: by me"), []),
        (IDLE, []),
        (("MIXED", ""), []),
    ],
)
def test_only_the_gate_is_opened(state, expected):
    assert made(["a"], a=state) == expected
    assert made([], a=state) == []


def test_spares_serve_while_other_nodes_do_not():
    assert made(["s"], ["s"], a=IDLE, s=GATED) == [("s", "DRAIN", SPARE)]
    assert made([], ["s"], a=IDLE, s=RESERVE) == []
    assert made([], ["s", "t"], a=("DOWN*", "Not responding"), s=RESERVE, t=RESERVE) == [("s", "RESUME", "")]
    assert made([], ["s", "t"], a=("IDLE+DRAIN", "sailloft: sick"), s=IDLE, t=RESERVE) == []
    assert made([], ["s"], a=IDLE, s=("ALLOCATED", "")) == [("s", "DRAIN", SPARE)]
    # Not the first start, not a moment without an answer, and no spare that is sick itself or off.
    assert made([], ["s"], a=GATED, s=RESERVE) == []
    assert made([], ["s"], a=("IDLE*", ""), s=RESERVE) == []
    assert made([], ["s"], a=("DOWN", "x"), s=("IDLE+DRAIN", "sailloft: sick")) == []
    assert made([], ["s"], a=("DOWN", "x"), s=("IDLE*+DRAIN", SPARE)) == []
    # A new spare goes into service at once where one is missing.
    assert made(["s"], ["s"], a=("DOWN", "x"), s=GATED) == [("s", "RESUME", "")]


def test_a_reason_ends_before_its_author():
    assert nodes(a=("IDLE+DRAIN", "a [b] c"))["a"].reason == "a [b] c"
    assert read_nodes("") == {}
    with raises(SchedulerError, "controller"):
        read_nodes("slurm_load_node error")
