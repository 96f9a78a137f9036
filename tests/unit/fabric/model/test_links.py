# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cables, the hops of paths over them, and cycles of buffers."""

from __future__ import annotations

import pytest
from refusals import refuses
from roce_path import LEAVES, LINKS, SPINES

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End, Hop, buffer_cycle

START, GOAL = End("gpu1", "mlx5_0"), End("gpu2", "mlx5_0")
UNLINKED = End("gpu9", "x")


@pytest.mark.parametrize("links", [LINKS, LINKS[::-1], [(peer, end) for end, peer in LINKS], LINKS + LINKS])
def test_the_hops_are_the_same_in_whatever_order_the_cables_are_given(links):
    fabric = Cabling(links, [*LEAVES, *SPINES])
    assert fabric.shortest_hops(START, GOAL) == [
        Hop("leaf1", "h1", "u1"),
        Hop("leaf1", "h1", "u2"),
        Hop("spine1", "leaf1", "leaf2"),
        Hop("spine2", "leaf1", "leaf2"),
        Hop("leaf2", "u1", "h1"),
        Hop("leaf2", "u2", "h1"),
    ]
    assert list(fabric.links()) == [
        (End("gpu1", "mlx5_0"), End("leaf1", "h1")),
        (End("gpu2", "mlx5_0"), End("leaf2", "h1")),
        (End("leaf1", "u1"), End("spine1", "leaf1")),
        (End("leaf1", "u2"), End("spine2", "leaf1")),
        (End("leaf2", "u1"), End("spine1", "leaf2")),
        (End("leaf2", "u2"), End("spine2", "leaf2")),
    ]
    assert fabric.hosts() == ["gpu1", "gpu2"]


def test_a_path_within_a_switch_has_one_hop():
    neighbour = End("gpu3", "mlx5_0")
    fabric = Cabling([*LINKS, (neighbour, End("leaf1", "h2"))], [*LEAVES, *SPINES])
    assert fabric.shortest_hops(START, neighbour) == [Hop("leaf1", "h1", "h2")]
    assert fabric.shortest_hops(neighbour, START) == [Hop("leaf1", "h2", "h1")]


def test_parallel_cables_and_longer_ways():
    """Both cables of two switches are used; the way over a third switch is longer and is not."""
    fabric = Cabling(
        [
            (START, End("a", "host")),
            (GOAL, End("b", "host")),
            (End("a", "1"), End("b", "1")),
            (End("a", "2"), End("b", "2")),
            (End("a", "3"), End("c", "1")),
            (End("c", "2"), End("b", "3")),
        ],
        "abc",
    )
    assert fabric.shortest_hops(START, GOAL) == [
        Hop("a", "host", "1"),
        Hop("a", "host", "2"),
        Hop("b", "1", "host"),
        Hop("b", "2", "host"),
    ]


def test_a_host_between_switches_forwards_nothing():
    fabric = Cabling(
        [
            (START, End("a", "host")),
            (GOAL, End("b", "host")),
            (End("gpu3", "0"), End("a", "1")),
            (End("gpu3", "1"), End("b", "1")),
        ],
        "ab",
    )
    with refuses("path gpu1 mlx5_0 - gpu2 mlx5_0", "a has", "to b"):
        fabric.shortest_hops(START, GOAL)


@pytest.mark.parametrize(
    ("links", "subject", "peers"),
    [
        ([(End("a", "1"), End("a", "2"))], "cable a 1 - a 2", ()),
        ([(End("a", "1"), End("b", "1")), (End("c", "1"), End("a", "1"))], "port a 1", ("b 1", "c 1")),
        ([(End("a", "1"), End("b", "1")), (End("b", "1"), End("a", "2"))], "port b 1", ("a 1", "a 2")),
    ],
)
def test_a_cable_that_cannot_be_is_refused(links, subject, peers):
    with refuses(subject, *peers):
        Cabling(links, "abc")


@pytest.mark.parametrize(
    ("ends", "subject"),
    [
        ((UNLINKED, GOAL), "NIC gpu9 x"),
        ((START, UNLINKED), "NIC gpu9 x"),
        ((START, START), "NIC gpu1 mlx5_0"),
    ],
)
def test_ends_that_have_no_path_are_refused(ends, subject):
    with refuses(subject):
        Cabling(LINKS, [*LEAVES, *SPINES]).shortest_hops(*ends)


def ring(size, hosted=None):
    """Return a ring of switches; those in ``hosted`` (all by default) have a host."""
    return Cabling(
        [
            *((End(f"s{number}", "right"), End(f"s{(number + 1) % size}", "left")) for number in range(size)),
            *(
                (End(f"h{number}", "0"), End(f"s{number}", "host"))
                for number in (range(size) if hosted is None else hosted)
            ),
        ],
        [f"s{number}" for number in range(size)],
    )


CLOCKWISE = [("s0", "s1"), ("s1", "s2"), ("s2", "s3"), ("s3", "s4"), ("s4", "s0")]


def test_the_cycle_of_a_ring_begins_at_its_first_link():
    assert buffer_cycle(ring(5)) == CLOCKWISE
    assert buffer_cycle(ring(4)) == [("s0", "s1"), ("s1", "s2"), ("s2", "s3"), ("s3", "s0")]
    assert buffer_cycle(ring(3)) == []
    assert buffer_cycle(ring(2)) == []


def test_only_lossless_links_wait():
    every = {**dict.fromkeys(CLOCKWISE, True), **{(to, start): True for start, to in CLOCKWISE}}
    assert buffer_cycle(ring(5), every) == CLOCKWISE
    assert buffer_cycle(ring(5), {}) == []
    for link in CLOCKWISE:
        back = buffer_cycle(ring(5), {**every, link: False})
        assert set(back) == {(to, start) for start, to in CLOCKWISE}
        assert back[0] == ("s0", "s4")
        assert buffer_cycle(ring(5), {**every, link: False, link[::-1]: False}) == []


@pytest.mark.parametrize(
    ("hosted", "cyclic"),
    [
        (range(5), True),
        ([1, 2, 3, 4], False),
        ([0, 1, 2, 3], False),
        ([0, 2], False),
        ([0], False),
        ([], False),
    ],
)
def test_only_switches_with_hosts_are_goals(hosted, cyclic):
    """Without traffic for one switch, no link of a ring of five waits for the second link after it."""
    assert bool(buffer_cycle(ring(5, hosted))) is cyclic


def test_a_cycle_is_found_beside_other_links():
    """The links that lead into a ring wait for it, but are not in the cycle."""
    fabric = Cabling(
        [
            *((End(f"s{number}", "right"), End(f"s{(number + 1) % 5}", "left")) for number in range(5)),
            *((End(f"h{number}", "0"), End(f"s{number}", "host")) for number in range(5)),
            (End("a", "1"), End("s0", "a")),
            (End("a0", "1"), End("a", "2")),
            (End("h8", "0"), End("a0", "host")),
        ],
        [*(f"s{number}" for number in range(5)), "a", "a0"],
    )
    assert buffer_cycle(fabric) == CLOCKWISE
