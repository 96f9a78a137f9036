# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cores of sockets with several NUMA nodes that are kept for the host, and the cells of the rest."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest
from machines import GIB, recording

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import parse_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import host_cores
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Processors, arrange
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def host(*sockets: int | None, cores: int = 4) -> Host:
    """Return a host with one node for each of ``sockets``; node N has the cores [100 N, 100 N + 1] and so on."""
    made = []
    for node, socket in enumerate(sockets):
        siblings = [[100 * node + 2 * core, 100 * node + 2 * core + 1] for core in range(cores)]
        made.append(NumaNode(node, [cpu for core in siblings for cpu in core], siblings, 8 * GIB, socket=socket))
    return Host(made, [], [])


def arranged(of: Host, *ids: int, taken: tuple[int, ...] = (), held: tuple[int, ...] = (), **spec: Any) -> Processors:
    (one,) = parse_specs([{"name": "vm", "memory_mib": 4096 * len(ids), "huge_page_mib": 1024, **spec}])
    return arrange(one, of, list(ids), {*taken}, {*held}, 288)


def sizes(processors: Processors) -> dict[int, int]:
    return {cell.host_node: len(cell.vcpus) for cell in processors.cells}


def test_each_socket_keeps_its_cores_on_one_node_after_the_other():
    of = host(0, 0, 1, 1)
    assert host_cores.kept(of, 1) == {0: [[0, 1]], 1: [], 2: [[200, 201]], 3: []}
    assert host_cores.kept(of, 3) == {
        0: [[0, 1], [2, 3]],
        1: [[100, 101]],
        2: [[200, 201], [202, 203]],
        3: [[300, 301]],
    }
    assert host_cores.kept(of, 0) == {0: [], 1: [], 2: [], 3: []}
    assert host_cores.kept(of, 99)[3] == of.numa_nodes[3].siblings


def test_nodes_of_unknown_sockets_are_sockets_of_their_own():
    assert host_cores.kept(host(None, None), 1) == {0: [[0, 1]], 1: [[100, 101]]}
    assert sizes(arranged(host(None, None), 0, 1)) == {0: 6, 1: 6}


def test_one_core_of_a_socket_is_kept_and_the_others_are_in_equal_sockets():
    processors = arranged(host(0, 0, 1, 1), 0, 1, 2, 3)
    assert sizes(processors) == {1: 8, 0: 6, 3: 8, 2: 6}
    assert (processors.sockets, processors.threads, processors.kept_cpus) == (2, 2, [0, 1, 200, 201])
    # Within a socket the smaller cell is last, so that the guest's processor ids begin with whole nodes.
    assert [cell.host_node for cell in processors.cells] == [1, 0, 3, 2]
    assert [cpu for cell in processors.cells for cpu in cell.vcpus] == list(range(28))
    share = processors.share
    assert (share.kept, share.free, share.vcpus) == (4, 0, 28)


def test_the_same_number_of_vcpus_gives_the_same_cells_whatever_other_machines_hold():
    of = host(0, 0, 1, 1)
    without_number = arranged(of, 0, 1, 2, 3)
    assert arranged(of, 0, 1, 2, 3, vcpus=28) == without_number
    # What fits into equal cells is in equal cells, each a socket of its own.
    equal = arranged(of, 0, 1, 2, 3, vcpus=24)
    assert (set(sizes(equal).values()), equal.sockets) == ({6}, 4)
    assert sizes(arranged(of, 0, 1, vcpus=6, taken=(102, 103))) == sizes(arranged(of, 0, 1, vcpus=6))
    with pytest.raises(DomainError, match="needs 8 CPUs of NUMA node 1, but 6 are left"):
        arranged(of, 0, 1, 2, 3, vcpus=28, taken=(102, 103))


@pytest.mark.parametrize(
    ("ids", "vcpus", "cause"),
    [
        ((0, 1, 2, 3), 29, "29 vCPUs cannot be divided evenly among its 2 sockets"),
        ((0, 1, 2, 3), 2, "2 vCPUs cannot be divided evenly among its 4 NUMA cells"),
        ((0, 1, 2, 3), 30, "needs "),
        # Sockets with one and two nodes cannot be equal.
        ((0, 1, 2), 14, "14 vCPUs cannot be divided evenly among its 3 NUMA cells"),
    ],
)
def test_a_number_of_vcpus_that_no_equal_sockets_have_is_refused(ids, vcpus, cause):
    with pytest.raises(DomainError) as caught:
        arranged(host(0, 0, 1, 1), *ids, vcpus=vcpus)
    assert caught.value.domain == "vm"
    assert caught.value.cause.startswith(cause)


def test_sockets_with_different_numbers_of_nodes_have_equal_cells():
    processors = arranged(host(0, 0, 1, 1), 0, 1, 2)
    assert (sizes(processors), processors.sockets) == ({0: 6, 1: 6, 2: 6}, 3)


def test_a_machine_on_another_node_of_the_socket_has_its_threads_on_the_kept_core():
    processors = arranged(host(0, 0, 1, 1), 1)
    assert (sizes(processors), processors.kept_cpus) == ({1: 8}, [0, 1])
    assert (processors.share.kept, processors.share.elsewhere) == (0, 24)


def plan_of(name: str) -> DomainPlan:
    of = recording(name)
    request = {"name": "vm", "numa_nodes": ["all"], "memory_mib": len(of.numa_nodes) * 4096, "huge_page_mib": 1024}
    return plan_domains(of, parse_specs([request]))[0]


@pytest.mark.parametrize(
    ("name", "vcpus", "threads", "sockets", "largest", "smallest"),
    [("forms/hwloc-1-epyc", 92, 96, 2, 12, 10), ("llnl-tioga", 126, 128, 1, 32, 30)],
)
def test_recorded_hosts_with_several_nodes_a_socket_keep_one_core_a_socket(
    name, vcpus, threads, sockets, largest, smallest
):
    plan = plan_of(name)
    assert (plan.processors.share.vcpus, plan.processors.share.threads) == (vcpus, threads)
    root = ET.fromstring(render(plan))
    topology = root.find("cpu/topology")
    assert topology is not None
    counts = {key: int(value) for key, value in topology.attrib.items()}
    # libvirt: "CPU topology doesn't match maximum vcpu count".
    assert counts["sockets"] * counts["dies"] * counts["cores"] * counts["threads"] == int(root.findtext("vcpu", "0"))
    assert counts["sockets"] == sockets
    cells = [parse_ranges(cell.get("cpus", "")) for cell in root.findall("cpu/numa/cell")]
    assert sorted(cpu for cell in cells for cpu in cell) == list(range(vcpus))
    assert sorted({len(cell) for cell in cells}) == [smallest, largest]
    # A core of the guest is in one cell, on the threads of one core of the host.
    pins = {int(pin.get("vcpu", "")): int(pin.get("cpuset", "")) for pin in root.findall("cputune/vcpupin")}
    core_of = {cpu: core for node in plan.host.numa_nodes for core in map(tuple, node.siblings) for cpu in core}
    width = counts["threads"]
    for cell in cells:
        for first in range(cell[0], cell[-1] + 1, width):
            assert len({core_of[pins[vcpu]] for vcpu in range(first, first + width)}) == 1
    emulator = root.find("cputune/emulatorpin")
    assert emulator is not None
    assert len(parse_ranges(emulator.get("cpuset", ""))) == sockets * width
    assert not set(parse_ranges(emulator.get("cpuset", ""))) & set(pins.values())
    assert DomainPlan.from_dict(plan.to_dict(), plan.host) == plan
