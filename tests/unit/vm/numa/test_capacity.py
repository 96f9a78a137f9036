# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The capacity of NUMA nodes, and what virtual machines need of it."""

from __future__ import annotations

import pytest
from machines import GIB, MIB

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, HugePages, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.capacity import CPUS, demand_of, of_nodes, overflow
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

HOST = Host([NumaNode(0, [0, 1, 2, 3], [[0, 2], [1, 3]], 64 * GIB)], [], [])


def spec(**given):
    [found] = parse_specs([{"name": "vm", "memory_mib": 4096, "huge_page_mib": 1024, **given}])
    return found


def test_all_cpus_are_available_without_virtual_machines():
    assert of_nodes(HOST, [], [], set()) == {(CPUS, 0): 4}


def test_kept_cores_and_cores_with_a_used_thread_are_not_counted():
    kept = [spec(vcpus=2, host_cores_per_socket=1)]
    assert of_nodes(HOST, kept, [], set())[CPUS, 0] == 2
    assert of_nodes(HOST, kept, [], {3})[CPUS, 0] == 0


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ({"huge_page_mib": 1024, "strict_memory": False}, {1024}),
        ({"huge_page_mib": 0, "strict_memory": True}, {0}),
        ({"huge_page_mib": 0, "strict_memory": False}, set()),
    ],
)
def test_memory_counts_if_it_is_in_huge_pages_or_bound_to_nodes(given, kinds):
    wanted = spec(vcpus=2, **given)
    capacities = of_nodes(HOST, [wanted], [], set())
    assert {kind for kind, _node in capacities if kind != CPUS} == kinds
    assert {kind for kind, _amount in demand_of(wanted, capacities) if kind != CPUS} == kinds


@pytest.mark.parametrize(("free", "wants"), [(8, 5), (9, 5), (2, 2), (0, 1)])
def test_a_machine_without_a_vcpu_number_needs_over_half_of_the_largest_node(free, wants):
    assert (CPUS, wants) in demand_of(spec(), {(CPUS, 0): free, (CPUS, 1): 0})


def host_of(*nodes: NumaNode) -> Host:
    return Host(list(nodes), [], [])


def paged(number: int, total: int, size: int = GIB, memory: int = 64 * GIB) -> NumaNode:
    cpus = [number * 4 + at for at in range(4)]
    return NumaNode(number, cpus, [], memory, huge_pages=[HugePages(size, total, total)])


@pytest.mark.parametrize(
    ("nodes", "size", "capacities"),
    [
        # Without pages of the size, the rest of the memory could be reserved.
        ([paged(0, 0)], 1024, {0: 65536}),
        ([paged(0, 10, 2 * MIB)], 1024, {0: 65516}),
        ([paged(0, 10)], 1024, {0: 10240}),
        # A node without pages has none if another has some.
        ([paged(0, 10), paged(1, 0)], 1024, {0: 10240, 1: 0}),
        ([paged(0, 10), NumaNode(1, [4], [], 64 * GIB)], 1024, {0: 10240, 1: 0}),
        ([paged(0, 10), paged(1, 0)], 0, {0: 55296, 1: 65536}),
        ([paged(0, 10)], 2, {0: 55296}),
    ],
)
def test_memory_is_that_of_the_pages_or_what_could_be_reserved(nodes, size, capacities):
    found = of_nodes(host_of(*nodes), [spec(huge_page_mib=size, vcpus=1)], [], set())
    assert {node: amount for (kind, node), amount in found.items() if kind == size} == capacities


def test_memory_of_other_domains_is_taken_for_their_page_size_or_for_all():
    others = [
        Holdings(memory_mib={0: 1024}, page_mib=1024),
        Holdings(memory_mib={0: 2048, 1: 1}, page_mib=None),
        Holdings(memory_mib={0: 4096}, page_mib=2),
    ]
    found = of_nodes(host_of(paged(0, 10), paged(1, 10)), [spec(vcpus=1)], others, set())
    assert (found[1024, 0], found[1024, 1]) == (10240 - 3072, 10239)


def test_the_largest_reserve_of_the_requests_is_kept_and_the_lowest_cores_are():
    node = NumaNode(0, list(range(8)), [[6, 7], [0, 1], [2, 3], [4, 5]], 64 * GIB)
    specs = [spec(vcpus=1, host_cores_per_socket=1), spec(vcpus=1, host_cores_per_socket=2)]
    assert of_nodes(host_of(node), specs, [], set())[CPUS, 0] == 4
    assert of_nodes(host_of(node), specs, [], {0})[CPUS, 0] == 4
    assert of_nodes(host_of(node), specs, [], {5})[CPUS, 0] == 2
    # Without siblings, each CPU is a core.
    assert of_nodes(host_of(paged(0, 0)), [spec(vcpus=1, host_cores_per_socket=1)], [], {3})[CPUS, 0] == 2


@pytest.mark.parametrize(
    ("given", "wants"),
    [
        ({"vcpus": 3}, [(1024, 4096), (CPUS, 3)]),
        ({"vcpus": 3, "huge_page_mib": 2}, [(2, 4096), (CPUS, 3)]),
        ({"vcpus": 3, "huge_page_mib": 0}, [(0, 4096), (CPUS, 3)]),
        ({"vcpus": 3, "huge_page_mib": 0, "strict_memory": False}, [(CPUS, 3)]),
        ({"vcpus": 3, "pin_cpus": False}, [(1024, 4096)]),
        ({}, [(1024, 4096), (CPUS, 1)]),
    ],
)
def test_a_request_wants_its_memory_and_its_cpus(given, wants):
    assert demand_of(spec(**given), {}) == wants


def test_amounts_are_spread_over_the_nodes_and_their_excess_is_in_thousandths():
    capacities = {(CPUS, 0): 10, (CPUS, 1): 10, (0, 0): 4000}
    assert overflow(capacities, {}, [(CPUS, 20)], [1, 0]) == (0, {(CPUS, 0): 10, (CPUS, 1): 10})
    assert overflow(capacities, {}, [(CPUS, 21)], [0, 1]) == (200, {(CPUS, 0): 11, (CPUS, 1): 11})
    assert overflow(capacities, {}, [(CPUS, 12), (0, 4001)], [0]) == (200, {(CPUS, 0): 12, (0, 0): 4001})
    assert overflow(capacities, {}, [(0, 4004)], [0])[0] == 1
    # What was in excess before is not counted again.
    used = {(CPUS, 0): 12, (CPUS, 1): 9}
    assert overflow(capacities, used, [(CPUS, 2)], [0]) == (200, {(CPUS, 0): 14, (CPUS, 1): 9})
    assert overflow(capacities, used, [(CPUS, 2)], [1]) == (100, {(CPUS, 0): 12, (CPUS, 1): 11})
    assert used == {(CPUS, 0): 12, (CPUS, 1): 9}
    # A node without any capacity, or with less than none.
    assert overflow({(CPUS, 0): -5}, {}, [(CPUS, 2)], [0, 7]) == (2000, {(CPUS, 0): 1, (CPUS, 7): 1})
    assert overflow(capacities, {}, [], []) == (0, {})
