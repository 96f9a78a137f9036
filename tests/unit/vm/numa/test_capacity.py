# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The capacity of NUMA nodes, and what virtual machines need of it."""

from __future__ import annotations

import pytest
from machines import GIB

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.capacity import CPUS, asked, capacities
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

HOST = Host([NumaNode(0, [0, 1, 2, 3], [[0, 2], [1, 3]], 64 * GIB)], [], [])


def spec(**given):
    [found] = parse_specs([{"name": "vm", "memory_mib": 4096, **given}])
    return found


def test_all_cpus_are_available_without_virtual_machines():
    assert capacities(HOST, [], [], set()) == {(CPUS, 0): 4}


def test_kept_cores_and_cores_with_a_used_thread_are_not_counted():
    kept = [spec(vcpus=2, host_cores_per_node=1)]
    assert capacities(HOST, kept, [], set())[CPUS, 0] == 2
    assert capacities(HOST, kept, [], {3})[CPUS, 0] == 0


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
    room = capacities(HOST, [wanted], [], set())
    assert {kind for kind, _node in room if kind != CPUS} == kinds
    assert {kind for kind, _amount in asked(wanted, room) if kind != CPUS} == kinds


@pytest.mark.parametrize(("free", "wants"), [(8, 5), (9, 5), (2, 2), (0, 1)])
def test_a_machine_without_a_vcpu_number_needs_over_half_of_the_largest_node(free, wants):
    assert (CPUS, wants) in asked(spec(), {(CPUS, 0): free, (CPUS, 1): 0})
