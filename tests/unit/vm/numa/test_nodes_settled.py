# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The choice of nodes for virtual machines whose devices and settings give none."""

from __future__ import annotations

from typing import Any

import pytest
from machines import GIB, endpoint
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import nodes
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.capacity import CPUS, Capacities
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def host(count: int = 2, memory: int = 64 * GIB) -> Host:
    made = [
        NumaNode(number, list(range(number * 4, number * 4 + 4)), [], memory, distances={}) for number in range(count)
    ]
    return Host(made, [], [])


def capacities(cpus: int = 4, memory_mib: int = 8192, count: int = 2) -> Capacities:
    found: Capacities = {}
    for node in range(count):
        found[CPUS, node], found[1024, node] = cpus, memory_mib
    return found


def specs(*requests: dict[str, Any]) -> Any:
    return parse_specs(
        [
            {"name": f"vm{at}", "memory_mib": 2048, "huge_page_mib": 1024, "vcpus": 2, **each}
            for at, each in enumerate(requests)
        ]
    )


def settled(
    *requests: dict[str, Any],
    of: Host | None = None,
    held: dict[str, Holdings] | None = None,
    there: Capacities | None = None,
) -> dict[str, list[int]]:
    made = specs(*requests)
    devices: dict[str, Any] = {spec.name: [] for spec in made}
    one = of or host()
    found = nodes.settle(one, made, devices, held or {}, capacities() if there is None else there)
    assert nodes.settle(one, made[::-1], devices, held or {}, capacities() if there is None else there) == found
    return found


@pytest.mark.parametrize(
    ("cpus", "memory", "able"), [([0], GIB, True), ([], GIB, False), ([0], 0, False), ([], 0, False)]
)
def test_a_node_serves_a_cell_if_it_has_cpus_and_memory(cpus, memory, able):
    assert nodes.serves(NumaNode(0, cpus, [], memory)) is able


def test_a_host_without_such_a_node_is_refused():
    with pytest.raises(DomainError) as caught:
        nodes.serving(host(memory=0))
    assert caught.value.remedy
    assert nodes.serving(host(3)) == [0, 1, 2]


def test_a_node_that_serves_no_cell_is_served_by_the_nearest():
    one = host(4)
    for number in (1, 3):
        one.numa_nodes[number].cpus = []
    one.numa_nodes[1].distances = {"0": 21, "2": 11}
    assert [nodes.serving_node(one, number) for number in (0, 1, 2)] == [0, 2, 2]
    # Unknown distances are the farthest, and of equal ones the lowest node serves.
    assert nodes.serving_node(one, 3) == 0
    one.numa_nodes[3].distances = {"2": 254}
    assert nodes.serving_node(one, 3) == 2
    one.numa_nodes[3].distances = {"2": 255}
    assert nodes.serving_node(one, 3) == 0
    with raises(DomainError, "NUMA node 4", "no such node"):
        nodes.serving_node(one, 4)


def test_requested_nodes_are_all_or_those_of_the_list():
    one = host(3)
    one.numa_nodes[1].memory_bytes = 0
    asked = [
        nodes.requested_nodes(one, specs({"numa_nodes": given})[0]) for given in ([], ["all"], ["2", "0", "2"], [0])
    ]
    assert asked == [[], [0, 2], [0, 2], [0]]
    for given in (["1"], ["0", "7"]):
        with raises(DomainError, "vm0", "numa_nodes", given[-1], "0", "2"):
            nodes.requested_nodes(one, specs({"numa_nodes": given})[0])


def test_nodes_of_devices_and_of_the_request_are_joined():
    one = host(3)
    one.numa_nodes[2].memory_bytes = 0
    (spec,) = specs({"numa_nodes": ["0"]})
    (plain,) = specs({})

    def of(which: Any, *numbers: int | None) -> dict[str, list[int]]:
        devices = [endpoint("0000:13:00.0", None, "pci0000:10", numa_node=number) for number in numbers]
        return nodes.settle(one, [which], {"vm0": devices}, {}, capacities())

    assert of(spec, 1) == {"vm0": [0, 1]}
    assert of(plain, 1, None) == {"vm0": [1]}
    # A node without memory is served by another one.
    assert of(plain, 2) == {"vm0": [0]}
    assert of(plain, None) == of(plain) == {"vm0": [0]}


def test_a_machine_keeps_the_nodes_of_its_memory_or_else_of_its_cpus():
    assert settled({}, held={"vm0": Holdings(memory_mib={1: 2048})}) == {"vm0": [1]}
    assert settled({}, held={"vm0": Holdings(memory_mib={1: 2048}, cpus=[0])}) == {"vm0": [1]}
    assert settled({}, held={"vm0": Holdings(cpus=[5])}) == {"vm0": [1]}
    assert settled({}, held={"vm0": Holdings(cpus=[0, 5])}) == {"vm0": [0, 1]}
    assert settled({"numa_nodes": ["0"]}, held={"vm0": Holdings(cpus=[5])}) == {"vm0": [0]}
    # It does not keep nodes that are gone, or that its request cannot be divided among.
    assert settled({}, held={"vm0": Holdings(memory_mib={7: 2048})}) == {"vm0": [0]}
    assert settled({"vcpus": 1}, held={"vm0": Holdings(cpus=[0, 5])}) == {"vm0": [0]}
    assert settled({"memory_mib": 1024}, held={"vm0": Holdings(cpus=[0, 5])}) == {"vm0": [0]}


@pytest.mark.parametrize(
    ("spec", "count", "divides"),
    [
        ({}, 1, True),
        ({}, 2, True),
        ({}, 3, False),
        ({"memory_mib": 3072}, 2, False),
        ({"memory_mib": 3072, "huge_page_mib": 0}, 2, True),
        ({"memory_mib": 3, "huge_page_mib": 0}, 2, False),
        ({"vcpus": 3}, 2, False),
        ({"vcpus": None}, 2, True),
    ],
)
def test_a_request_is_divided_evenly_in_whole_pages(spec, count, divides):
    assert nodes.divides(specs(spec)[0], count) is divides


@pytest.mark.parametrize(
    ("requests", "there", "found"),
    [
        # The first node on which it fits.
        ([{}], capacities(), {"vm0": [0]}),
        ([{}], {**capacities(), (CPUS, 0): 1}, {"vm0": [1]}),
        ([{}], {**capacities(), (1024, 0): 1024}, {"vm0": [1]}),
        # Two nodes if it does not fit on one, even if it fits nowhere.
        ([{"vcpus": 8, "memory_mib": 8192}], capacities(), {"vm0": [0, 1]}),
        ([{"vcpus": 8, "memory_mib": 65536}], capacities(), {"vm0": [0, 1]}),
        ([{"vcpus": 5}], capacities(), {"vm0": [0]}),
        # The largest is placed first: the one with most vCPUs, then with most memory, then by name.
        ([{"vcpus": 2}, {"vcpus": 4}], capacities(), {"vm0": [1], "vm1": [0]}),
        ([{"memory_mib": 2048}, {"memory_mib": 8192}], capacities(), {"vm0": [1], "vm1": [0]}),
        ([{}, {}], capacities(), {"vm0": [0], "vm1": [1]}),
        ([{"vcpus": None}, {"vcpus": 4}], capacities(), {"vm0": [1], "vm1": [0]}),
        # The less loaded node.
        ([{}], {**capacities(), (CPUS, 0): 5, (CPUS, 1): 6}, {"vm0": [1]}),
    ],
)
def test_a_machine_gets_the_fewest_and_least_loaded_nodes(requests, there, found):
    assert settled(*requests, there=there) == found


def test_a_machine_without_a_number_of_vcpus_takes_its_share_of_the_nodes():
    four = {"of": host(4), "there": capacities(count=4)}
    open_ended = {"vcpus": None, "memory_mib": 4096}
    assert settled(open_ended, **four) == {"vm0": [0, 1, 2, 3]}
    assert settled(open_ended, open_ended, **four) == {"vm0": [0, 1], "vm1": [2, 3]}
    # Three of them get one node each.
    assert settled(open_ended, open_ended, open_ended, **four) == {"vm0": [0], "vm1": [1], "vm2": [2]}
    # What cannot be divided among three is on two.
    assert settled({"vcpus": None}, of=host(3), there=capacities(count=3)) == {"vm0": [0, 1]}
    # What can only be divided among more than its share gets as few of them as possible.
    assert settled(*[{"vcpus": None}] * 5, of=host(4), there=capacities(count=4))["vm0"] == [0]


def test_used_capacity_of_placed_machines_counts():
    assert settled({"numa_nodes": ["0"], "vcpus": 4}, {}) == {"vm0": [0], "vm1": [1]}
    assert settled({"vcpus": 4}, {}, held={"vm0": Holdings(cpus=[0])}) == {"vm0": [0], "vm1": [1]}


def test_a_request_that_cannot_be_divided_at_all_is_on_one_node():
    assert settled({"memory_mib": 1000}) == {"vm0": [0]}
    assert settled({"memory_mib": 1000, "vcpus": None}) == {"vm0": [0]}
