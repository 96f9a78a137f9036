# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The costs, places and limits of the search for GPUs, on units that are made up here."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices import pack_gpus
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.pack_gpus import (
    NODE,
    PHB,
    PIX,
    PXB,
    SYS,
    WEIGHTS,
    GpuRequest,
    Packing,
    Unit,
    path_distance,
)

Gpus = dict[str, list[str]]


def unit(number: int, node: int = 0, root: int = 0, switch: int = 0, **more: Any) -> Unit:
    """Return the unit of GPU ``number`` on a switch of a root complex of a node."""
    values: dict[str, Any] = {"addresses": (f"gpu{number}",), **more}
    return Unit(path=(f"{node}", f"root {node}.{root}", "port", f"switch {switch}"), node=node, **values)


def everywhere(_gpus: Gpus) -> bool:
    return True


def chosen(
    units: list[Unit], *requests: GpuRequest, capacities: Any = None, completes: Any = everywhere
) -> Gpus | None:
    return Packing(units, [], capacities or {}).choose(list(requests), {}, completes)


PATH = ("0", "root 0", "port", "switch 1", "leaf 1")


@pytest.mark.parametrize(
    ("other", "distance"),
    [
        (PATH, PIX),
        (("0", "root 0", "port", "switch 1", "leaf 2"), PXB),
        (("0", "root 0", "port", "switch 2", "leaf 1"), PXB),
        (("0", "root 0", "port"), PXB),
        (("0", "root 0", "port 2", "switch 1"), PHB),
        (("0", "root 0"), PHB),
        (("0", "root 1", "port", "switch 1"), NODE),
        (("0",), NODE),
        (("1", "root 0", "port", "switch 1", "leaf 1"), SYS),
        ((), SYS),
    ],
)
def test_the_distance_of_two_places_is_where_their_paths_part(other: tuple[str, ...], distance: int) -> None:
    assert path_distance(PATH, other) == path_distance(other, PATH) == distance


def test_the_classes_have_the_order_and_weights_of_the_documentation() -> None:
    assert (PIX, PXB, PHB, NODE, SYS) == (0, 1, 2, 3, 4)
    assert WEIGHTS == (0, 1, 1024, 1048576, 1073741824)
    assert pack_gpus.BLOCKS == (16, 8, 4, 2)


# Two GPUs on a switch, one on another switch of the root complex, one on another root complex, one on another node.
FIVE = [unit(0), unit(1), unit(2, switch=1), unit(3, root=1), unit(4, node=1)]


def test_the_cost_of_units_is_the_sum_of_the_distances_of_their_pairs() -> None:
    packing = Packing(FIVE, [], {})
    far = {(0, 1): 0, (0, 2): 1, (1, 2): 1}
    for one, other in combinations(range(5), 2):
        pair = far.get((one, other), 1 << 20 if other == 3 else 1 << 30)
        assert packing.pairs(1 << one | 1 << other) == pair, (one, other)
    assert packing.pairs(0b00111) == 2
    assert packing.pairs(0b11111) == 2 + 3 * (1 << 20) + 4 * (1 << 30)
    assert [packing.pairs(mask) for mask in (0, 1, 0b10000)] == [0, 0, 0]


def test_a_unit_of_several_gpus_has_the_distance_of_each() -> None:
    pair, three = unit(0, addresses=("a", "b")), unit(1, switch=1, addresses=("c", "d", "e"))
    packing = Packing([pair, three], [], {})
    assert packing.pairs(0b11) == 6
    assert [packing.gpus(mask) for mask in (0, 0b01, 0b10, 0b11)] == [0, 2, 3, 5]


def test_what_is_left_is_rated_by_its_whole_blocks() -> None:
    """Two nodes of four GPUs in two switches; the partitions are the switches and the nodes."""
    units = [unit(number, node=number // 4, switch=number // 2) for number in range(8)]
    switches = [frozenset({number, number + 1}) for number in range(0, 8, 2)]
    partitions = [*switches, frozenset(range(4)), frozenset(range(4, 8)), frozenset(range(8))]
    packing = Packing(units, partitions, {})
    # For each size of 16, 8, 4, 2: minus the free partitions, minus the blocks in host, nodes and switches.
    assert packing.leftover(0b11111111) == (0, 0, -1, -1, -2, -4, -4, -12)
    assert packing.leftover(0b11110111) == (0, 0, 0, 0, -1, -2, -3, -9)
    assert packing.leftover(0b11110000) == (0, 0, 0, 0, -1, -2, -2, -6)
    assert packing.leftover(0) == (0,) * 8
    assert Packing(units, [], {}).leftover(0b11111111) == (0, 0, 0, -1, 0, -4, 0, -12)
    assert packing.board == 0b11111111
    assert Packing(units, switches[:1], {}).board == 0b11


def test_each_place_is_a_set_of_units_once() -> None:
    packing = Packing(FIVE, [], {})
    # The host, the nodes, the root complexes with their ports, and the switches; chains have the same units.
    assert packing.blocks == [0b00011, 0b00100, 0b00111, 0b01000, 0b01111, 0b10000, 0b11111]
    assert packing.everything == 0b11111


def test_the_nearest_gpus_are_chosen() -> None:
    assert chosen(FIVE, GpuRequest("a", 2)) == {"a": ["gpu0", "gpu1"]}
    assert chosen(FIVE, GpuRequest("a", 3)) == {"a": ["gpu0", "gpu1", "gpu2"]}
    assert chosen(FIVE, GpuRequest("a", 4)) == {"a": ["gpu0", "gpu1", "gpu2", "gpu3"]}
    assert chosen(FIVE, GpuRequest("a", 6)) is None
    # A single one is taken where it breaks no block.
    assert chosen(FIVE, GpuRequest("a", 1)) == {"a": ["gpu4"]}


def test_a_request_is_limited_to_its_units_and_nodes() -> None:
    assert chosen(FIVE, GpuRequest("a", 2, must=frozenset({4}))) == {"a": ["gpu2", "gpu4"]}
    assert chosen(FIVE, GpuRequest("a", 2, must=frozenset({2, 3}))) == {"a": ["gpu2", "gpu3"]}
    assert chosen(FIVE, GpuRequest("a", 1, only=frozenset({1, 3}))) == {"a": ["gpu1"]}
    assert chosen(FIVE, GpuRequest("a", 3, only=frozenset({1, 3}))) is None
    assert chosen(FIVE, GpuRequest("a", 1, within=frozenset({0}))) == {"a": ["gpu2"]}
    assert chosen(FIVE, GpuRequest("a", 2, within=frozenset({1}))) is None
    unknown = Unit(("x",), ("?", "root"), None)
    assert chosen([*FIVE, unknown], GpuRequest("a", 2, within=frozenset({1}))) == {"a": ["gpu4", "x"]}
    owned = [unit(0, owner="a"), unit(1, owner="b")]
    assert chosen(owned, GpuRequest("b", 1)) == {"b": ["gpu1"]}
    assert chosen(owned, GpuRequest("c", 1)) is None


def test_units_that_one_must_have_are_not_for_others() -> None:
    four = [unit(number, switch=number // 2) for number in range(4)]
    assert chosen(four, GpuRequest("a", 1, must=frozenset({0})), GpuRequest("b", 2)) == {
        "a": ["gpu0"],
        "b": ["gpu2", "gpu3"],
    }
    # A machine that gives up one of three leaves it to another one.
    got = chosen(four, GpuRequest("a", 2, only=frozenset({0, 1, 2})), GpuRequest("b", 2))
    assert got == {"a": ["gpu0", "gpu1"], "b": ["gpu2", "gpu3"]}


def test_a_request_with_nics_is_near_them_and_one_without_leaves_them() -> None:
    beside = [
        unit(0, switch=0, reach={"pf": SYS}),
        unit(1, switch=1, reach={"pf": PIX}),
        unit(2, switch=2, reach={"pf": PXB}),
    ]
    assert chosen(beside, GpuRequest("a", 1, near_nic="pf")) == {"a": ["gpu1"]}
    assert chosen(beside, GpuRequest("a", 2, near_nic="pf")) == {"a": ["gpu1", "gpu2"]}
    assert chosen(beside, GpuRequest("a", 1)) == {"a": ["gpu0"]}
    assert chosen(beside, GpuRequest("a", 2)) == {"a": ["gpu0", "gpu2"]}


def found(packing: Packing, request: GpuRequest, free: int | None = None) -> list[tuple[int, int]]:
    """Return the cost and units of each place, best first; places are compared as in a choice for the request."""
    packing.choose([request], {}, everywhere)
    return [
        (cost, mask) for cost, _rank, mask in packing.candidates(request, packing.everything if free is None else free)
    ]


def test_the_distance_of_nics_is_added_below_that_of_gpus() -> None:
    beside = [unit(0, reach={"pf": PXB}), unit(1, switch=1, reach={"pf": PHB}), unit(2, switch=2, reach={})]
    packing = Packing(beside, [], {})
    assert found(packing, GpuRequest("a", 1, near_nic="pf")) == [(PXB, 0b001), (PHB, 0b010), (SYS, 0b100)]
    assert found(packing, GpuRequest("a", 2, near_nic="pf")) == [
        ((1 << 10) + 3, 0b011), ((1 << 10) + 5, 0b101), ((1 << 10) + 6, 0b110),
    ]  # fmt: skip
    assert [cost for cost, _mask in found(packing, GpuRequest("a", 2))] == [1 << 10] * 3
    pair = Packing([unit(0, addresses=("a", "b"), reach={"pf": PHB})], [], {})
    assert found(pair, GpuRequest("a", 2, near_nic="pf")) == [(4, 0b1)]


def test_equivalent_places_are_tried_once() -> None:
    """Four switches with two GPUs each: alone, all switches are equal, and so are the GPUs of one."""
    units = [unit(number, switch=number // 2) for number in range(8)]
    packing = Packing(units, [], {})
    assert found(packing, GpuRequest("a", 1)) == [(0, 0b00000001)]
    assert found(packing, GpuRequest("a", 2)) == [(0, 0b00000011), (1 << 10, 0b00000101)]
    assert found(packing, GpuRequest("a", 8)) == [(24 << 10, 0b11111111)]
    assert found(packing, GpuRequest("a", 9)) == []
    assert found(packing, GpuRequest("a", 1), free=0b00010010) == [(0, 0b00000010)]
    # Nodes are never equivalent.
    units = [unit(number, node=number // 2) for number in range(4)]
    assert found(Packing(units, [], {}), GpuRequest("a", 1)) == [(0, 0b0001), (0, 0b0100)]


def test_only_partitions_have_gpus_of_a_board() -> None:
    """Units 0-3 are a board of two pairs, 4 and 5 are beside it."""
    units = [unit(number) for number in range(6)]
    packing = Packing(units, [frozenset({0, 2}), frozenset({1, 3}), frozenset(range(4))], {})
    assert sorted(mask for _cost, mask in found(packing, GpuRequest("a", 2))) == [0b000101, 0b001010, 0b110000]
    assert [mask for _cost, mask in found(packing, GpuRequest("a", 4))] == [0b001111]
    assert found(packing, GpuRequest("a", 3)) == []
    assert sorted(mask for _cost, mask in found(packing, GpuRequest("a", 2), free=0b110111)) == [0b000101, 0b110000]
    # Its own GPUs are kept even if they are no partition.
    own = GpuRequest("a", 2, must=frozenset({0, 1}))
    assert [mask for _cost, mask in found(packing, own)] == [0b000011]
    assert [mask for _cost, mask in found(packing, GpuRequest("a", 2, must=frozenset({2})))] == [0b000101]
    # Its own GPUs beside the board are one place.
    beside = GpuRequest("a", 2, must=frozenset({4, 5}))
    assert [mask for _cost, mask in found(packing, beside)] == [0b110000]
    # A GPU beside the board goes with others beside it.
    assert [mask for _cost, mask in found(packing, GpuRequest("a", 2, must=frozenset({4})))] == [0b110000]


def test_the_number_of_places_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    units = [unit(number, switch=number, reach={"pf": number}) for number in range(6)]
    assert pack_gpus.PLACES == 600
    packing = Packing(units, [], {})
    packing.tags = {number: (None, None, number, ()) for number in range(6)}
    assert len(packing.candidates(GpuRequest("a", 3), 0b111111)) == 20
    monkeypatch.setattr(pack_gpus, "PLACES", 5)
    limited = Packing(units, [], {})
    limited.tags = packing.tags
    assert len(limited.candidates(GpuRequest("a", 3), 0b111111)) == 5


def test_nodes_without_room_are_avoided_even_if_the_gpus_are_farther_apart() -> None:
    units = [unit(0), unit(1), unit(2, node=1), unit(3, node=1, switch=1)]
    wants = (("cpus", 4),)
    request = GpuRequest("a", 2, demand=wants)
    assert chosen(units, request, capacities={("cpus", 0): 4, ("cpus", 1): 4}) == {"a": ["gpu0", "gpu1"]}
    assert chosen(units, request, capacities={("cpus", 0): 3, ("cpus", 1): 4}) == {"a": ["gpu2", "gpu3"]}
    # What a request uses on other nodes in any case counts, too.
    both = GpuRequest("a", 1, demand=wants, nodes=frozenset({1}))
    assert chosen(units, both, capacities={("cpus", 0): 4, ("cpus", 1): 3}) == {"a": ["gpu0"]}
    assert chosen(units, request, GpuRequest("b", 2, demand=wants), capacities={("cpus", 0): 4, ("cpus", 1): 4}) == {
        "a": ["gpu0", "gpu1"],
        "b": ["gpu2", "gpu3"],
    }


def test_places_are_tried_in_the_order_of_the_room_on_their_nodes() -> None:
    units = [unit(number, node=number // 2) for number in range(6)]
    capacities = {("cpus", 0): 3, ("cpus", 1): 3, ("cpus", 2): 4}
    assert chosen(units, GpuRequest("a", 2, demand=(("cpus", 4),)), capacities=capacities) == {"a": ["gpu4", "gpu5"]}


def test_an_assignment_that_is_refused_is_not_kept() -> None:
    refused: list[Gpus] = []

    def completes(gpus: Gpus) -> bool:
        refused.append(dict(gpus))
        return gpus["a"] == ["gpu2"]

    three = [unit(number, switch=number, reach={"pf": number}, group=number) for number in range(3)]
    request = GpuRequest("a", 1, near_nic="pf")
    assert chosen(three, request, completes=completes) == {"a": ["gpu2"]}
    assert refused == [{"a": ["gpu0"]}, {"a": ["gpu1"]}, {"a": ["gpu2"]}]


def test_only_free_units_of_a_switch_are_taken() -> None:
    units = [unit(number, reach={"pf": number}) for number in range(3)]
    assert found(Packing(units, [], {}), GpuRequest("a", 1), free=0b110) == [(0, 0b100), (0, 0b010)]
    assert found(Packing(units, [], {}), GpuRequest("a", 1), free=0b101) == [(0, 0b100), (0, 0b001)]


def refusals(count: int, *requests: GpuRequest, group: int | None = 1) -> int:
    """Return how many assignments of ``count`` different GPUs are tried if each is refused."""
    asked: list[Gpus] = []
    units = [unit(number, switch=number, reach={"pf": number}, group=group) for number in range(count)]
    assert chosen(units, *requests, completes=lambda gpus: bool(asked.append(gpus))) is None
    return len(asked)


def test_each_assignment_is_tried_until_the_steps_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusals(3, GpuRequest("a", 1), GpuRequest("b", 1), GpuRequest("c", 1)) == 6
    monkeypatch.setattr(pack_gpus, "STEPS", 10)
    assert refusals(12, GpuRequest("a", 1)) == 10
    monkeypatch.setattr(pack_gpus, "STEPS", 0)
    assert chosen(FIVE, GpuRequest("a", 1)) is None


def test_a_refusal_is_final_where_no_gpu_brings_other_devices() -> None:
    assert refusals(12, GpuRequest("a", 1), GpuRequest("b", 1), group=None) == 1


def test_earlier_requests_move_for_one_that_has_no_other_place() -> None:
    """The GPU nearest to a NIC is the only one on node 1. Without the memory of dead ends, the steps do not suffice."""
    units = [unit(number, switch=number, reach={"pf": 1 + number}) for number in range(9)]
    units.append(unit(9, node=1, reach={"pf": PIX}))
    singles = [GpuRequest(name, 1, near_nic="pf") for name in "abcdefgh"]
    assert chosen(units, *singles[:1])["a"] == ["gpu9"]
    got = chosen(units, *singles, GpuRequest("z", 1, within=frozenset({1})))
    assert got is not None
    assert got["z"] == ["gpu9"]


def test_the_largest_has_the_best_place_unless_a_node_lacks_room() -> None:
    """Two pairs of GPUs, each on a switch, of which only one node has the CPUs that the later request needs."""
    units = [unit(0), unit(1), unit(2, node=1), unit(3, node=1, switch=1)]
    large, small = GpuRequest("a", 2, demand=(("cpus", 2),)), GpuRequest("b", 1, demand=(("cpus", 6),))
    assert chosen(units, large, small, capacities={("cpus", 0): 8, ("cpus", 1): 8})["a"] == ["gpu0", "gpu1"]
    assert chosen(units, large, small, capacities={("cpus", 0): 6, ("cpus", 1): 2}) == {
        "a": ["gpu2", "gpu3"],
        "b": ["gpu0"],
    }
    # Where no assignment has room everywhere, the best places remain.
    assert chosen(units, large, small, capacities={("cpus", 0): 2, ("cpus", 1): 2})["a"] == ["gpu0", "gpu1"]


def test_a_number_of_gpus_is_of_one_model_unless_the_machine_has_others():
    """One GPU of model a on the switch of two of model b: the near pair of two models is never chosen."""
    units = [
        unit(0, switch=0, model="a"),
        unit(1, switch=0, model="b"),
        unit(2, switch=1, model="b"),
        unit(3, node=1, model="a"),
    ]
    assert chosen(units, GpuRequest("vm", 2)) == {"vm": ["gpu1", "gpu2"]}
    assert chosen(units, GpuRequest("one", 2), GpuRequest("two", 2)) == {
        "one": ["gpu1", "gpu2"],
        "two": ["gpu0", "gpu3"],
    }
    assert chosen(units, GpuRequest("vm", 3)) is None
    # GPUs that it names or has today are of the models that it may have.
    assert chosen(units, GpuRequest("vm", 3, must=frozenset({3}))) is None
    assert chosen(units, GpuRequest("vm", 3, must=frozenset({0, 1}))) == {"vm": ["gpu0", "gpu1", "gpu2"]}
