# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole results of the arrangement of cells, and its limits."""

from __future__ import annotations

from typing import Any

import pytest
from machines import GIB

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import (
    Cell,
    Processors,
    Share,
    arrange,
    sorted_cores,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def host(nodes: int = 2, cores: int = 4, threads: int = 1, gib: int = 4) -> Host:
    """Return a host whose nodes have ``cores`` each; the second threads of all cores follow the first ones."""
    made = []
    for node in range(nodes):
        siblings = [[node * cores + core + turn * nodes * cores for turn in range(threads)] for core in range(cores)]
        distances = {str(other): 10 if other == node else 20 + other + node for other in range(nodes)}
        cpus = sorted(cpu for core in siblings for cpu in core)
        made.append(NumaNode(node, cpus, siblings, gib * GIB, distances=distances))
    return Host(made, [], [])


def arranged(
    of: Host, *ids: int, taken: tuple[int, ...] = (), held: tuple[int, ...] = (), most: int = 288, **spec: Any
) -> Processors:
    (one,) = parse_specs([{"name": "vm", "memory_mib": 2048, "huge_page_mib": 1024, **spec}])
    return arrange(one, of, list(ids), {*taken}, {*held}, most)


def refused(of: Host, *ids: int, **more: Any) -> str:
    with pytest.raises(DomainError) as caught:
        arranged(of, *ids, **more)
    assert caught.value.domain == "vm"
    return str(caught.value).removeprefix("virtual machine vm: ")


def test_two_cells_and_what_they_share():
    assert arranged(host(3), 2, 0, vcpus=4, taken=(3, 9)) == Processors(
        cells=[
            Cell(0, 0, 1024, [0, 1], [1, 2], {"0": 10, "1": 22}),
            Cell(1, 2, 1024, [2, 3], [10, 11], {"0": 22, "1": 10}),
        ],
        sockets=2,
        threads=1,
        kept_cpus=[0, 8],
        share=Share(
            threads=12,
            vcpus=4,
            kept=2,
            taken=2,
            free=0,
            elsewhere=4,
            vcpu_limit=255,
            nodes_without_cell=[1],
            memory_mib=12288,
        ),
    )


def test_unpinned_cells_have_no_cpus_and_may_have_more_vcpus_than_cpus():
    found = arranged(host(1), 0, vcpus=9, pin_cpus=False)
    assert found.cells == [Cell(0, 0, 2048, list(range(9)), [], {"0": 10})]
    assert (found.kept_cpus, found.share.free, found.share.vcpus) == ([], 0, 9)


def test_missing_distances_are_10_on_a_node_and_20_between_nodes():
    one = host()
    for node in one.numa_nodes:
        node.distances = {}
    assert [cell.distances for cell in arranged(one, 0, 1, vcpus=2).cells] == [{"0": 10, "1": 20}, {"0": 20, "1": 10}]


def test_a_node_that_serves_no_cell_is_not_one_without_a_cell():
    one = host(3)
    one.numa_nodes[1].memory_bytes = 0
    one.numa_nodes[2].cpus = []
    share = arranged(one, 0, vcpus=1).share
    assert (share.nodes_without_cell, share.elsewhere, share.memory_mib) == ([], 4, 8192)


def test_cores_that_it_holds_today_come_first_and_only_whole_ones():
    one = host(1, cores=6)
    assert arranged(one, 0, vcpus=2, held=(4, 5)).cells[0].cpus == [4, 5]
    assert arranged(one, 0, vcpus=3, held=(5,)).cells[0].cpus == [1, 2, 5]
    # A core that is kept for the host now, or was taken by another machine, is lost.
    assert arranged(one, 0, vcpus=2, held=(0, 3), taken=(3,)).cells[0].cpus == [1, 2]
    two = host(1, cores=4, threads=2)
    assert arranged(two, 0, vcpus=2, held=(3, 7)).cells[0].cpus == [3, 7]
    assert arranged(two, 0, vcpus=2, held=(3,)).cells[0].cpus == [1, 5]


@pytest.mark.parametrize(
    ("vcpus", "threads", "cpus"),
    [
        (1, 1, [1]),
        (2, 2, [1, 5]),
        (3, 1, [1, 2, 3]),
        (4, 2, [1, 5, 2, 6]),
        (5, 1, [1, 2, 3, 5, 6]),
        (6, 2, [1, 5, 2, 6, 3, 7]),
        (None, 2, [1, 5, 2, 6, 3, 7]),
    ],
)
def test_an_even_number_of_vcpus_has_sibling_threads(vcpus, threads, cpus):
    found = arranged(host(1, threads=2), 0, vcpus=vcpus)
    assert (found.threads, found.cells[0].cpus) == (threads, cpus)
    assert found.kept_cpus == [0, 4]
    assert (found.share.kept, found.share.free) == (2, 6 - len(cpus))


def test_cores_of_different_widths_are_used_thread_by_thread():
    one = host(1, threads=2)
    one.numa_nodes[0].siblings[3] = [3]
    one.numa_nodes[0].cpus.remove(7)
    found = arranged(one, 0, vcpus=None)
    assert (found.threads, found.cells[0].cpus) == (1, [1, 2, 3, 5, 6])
    assert sorted_cores([[1, 5], [2]], 2, 1) == [1, 2]
    assert sorted_cores([[1, 5], [2]], 3, 1) == [1, 2, 5]
    assert sorted_cores([], 0, 1) == []
    assert sorted_cores([[4, 9], [1, 6], [0, 5]], 4, 2) == [1, 6, 4, 9]


def test_cores_without_siblings_are_single_cpus():
    one = host(1)
    one.numa_nodes[0].siblings = []
    assert arranged(one, 0, vcpus=2, host_cores_per_socket=2).cells[0].cpus == [2, 3]


@pytest.mark.parametrize(
    ("most", "more", "count"),
    [
        (288, {}, 254),
        (255, {}, 254),
        (254, {}, 254),
        (253, {}, 252),
        (288, {"guest_iommu": True}, 288),
        (288, {"interrupt_remapping": True}, 288),
        (4096, {"interrupt_remapping": True}, 598),
    ],
)
def test_all_cpus_are_used_up_to_the_limit_in_equal_cells(most, more, count):
    found = arranged(host(2, cores=300), 0, 1, vcpus=None, most=most, **more)
    assert sum(len(cell.vcpus) for cell in found.cells) == count
    assert found.share.vcpu_limit == (most if more else min(most, 255))


def test_the_node_with_the_fewest_cpus_sets_the_number():
    found = arranged(host(2, threads=2), 0, 1, vcpus=None, taken=(5, 13))
    assert [len(cell.vcpus) for cell in found.cells] == [4, 4]
    assert (found.share.taken, found.share.free) == (2, 2)
    # A whole number of cores.
    assert len(arranged(host(1, cores=5, threads=2), 0, vcpus=None, most=7).cells[0].vcpus) == 6


@pytest.mark.parametrize(
    ("ids", "spec", "message"),
    [
        ((0,), {"memory_mib": 0}, "memory_mib is missing; set the amount of memory"),
        (
            (0,),
            {"memory_mib": 4097, "huge_page_mib": 0},
            "memory_mib 4097 is more than the NUMA nodes that it is bound to have: 4096 MiB (node 0 4096); give it "
            "less memory",
        ),
        (
            (1,),
            {"memory_mib": 8193, "huge_page_mib": 0, "strict_memory": False},
            "memory_mib 8193 is more than this host has: 8192 MiB (node 0 4096, node 1 4096); give it less memory",
        ),
        (
            (0,),
            {"memory_mib": 1023},
            "memory_mib 1023 cannot be divided evenly among 1 NUMA cell in huge pages of 1024 MiB; use 1024",
        ),
        (
            (0, 1),
            {"memory_mib": 5, "huge_page_mib": 2},
            "memory_mib 5 cannot be divided evenly among 2 NUMA cells in huge pages of 2 MiB; use 4 or 8",
        ),
        (
            (0, 1),
            {"memory_mib": 1, "huge_page_mib": 0},
            "memory_mib 1 cannot be divided evenly among 2 NUMA cells; use 2",
        ),
        ((0,), {"vcpus": 256}, "vcpus 256 is over the limit of 255; interrupt_remapping lifts the limit of 255"),
        ((0,), {"vcpus": 255, "most": 254}, "vcpus 255 is over the limit of 254; request fewer"),
        (
            (0,),
            {"vcpus": 256, "most": 255, "guest_iommu": True},
            "vcpus 256 is over the limit of 255; request fewer",
        ),
        (
            (0, 1),
            {"vcpus": 3},
            "3 vCPUs cannot be divided evenly among its 2 NUMA cells (host nodes 0, 1); use a multiple of 2",
        ),
        (
            (0, 1),
            {"vcpus": 6, "taken": (5,)},
            "needs 3 CPUs of NUMA node 1, but 2 are left (host_cores_per_socket keeps 1 cores for the host, other "
            "virtual machines have theirs); lower vcpus or the reserve",
        ),
        (
            (0, 1),
            {"vcpus": None, "host_cores_per_socket": 4},
            "no CPU is left on NUMA node 0 (host_cores_per_socket keeps 4 cores for the host, other virtual machines "
            "have theirs); lower vcpus or the reserve",
        ),
    ],
)
def test_a_request_that_cannot_be_arranged_is_refused(ids, spec, message):
    assert refused(host(), *ids, **spec) == message


def test_limits_that_are_just_met_are_accepted():
    assert arranged(host(1), 0, vcpus=3, memory_mib=4096).cells[0].memory_mib == 4096
    loose = {"strict_memory": False, "huge_page_mib": 0}
    assert arranged(host(), 1, vcpus=3, memory_mib=8192, **loose).cells[0].memory_mib == 8192
    assert len(arranged(host(1, cores=300), 0, vcpus=255).cells[0].vcpus) == 255
    assert len(arranged(host(1), 0, vcpus=None, host_cores_per_socket=3).cells[0].vcpus) == 1
    assert arranged(host(1), 0, vcpus=4, host_cores_per_socket=0).kept_cpus == []


def test_cells_are_in_the_order_of_the_nodes_whatever_the_order_of_the_host():
    one = host()
    one.numa_nodes.reverse()
    assert [cell.host_node for cell in arranged(one, 1, 0, vcpus=2).cells] == [0, 1]
