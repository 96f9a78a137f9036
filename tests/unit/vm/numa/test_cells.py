# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from machines import lab, plan
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError


def threaded() -> Host:
    """Return the lab with 8 CPUs per node, two hardware threads per core: node 0 has cores 0+16, 1+17 ..."""
    host = lab()
    for at, node in enumerate(host.numa_nodes):
        node.siblings = [[at * 4 + core, 16 + at * 4 + core] for core in range(4)]
        node.cpus = sorted(cpu for core in node.siblings for cpu in core)
    return host


def test_cells_are_on_the_nodes_of_the_devices() -> None:
    cells = plan().processors.cells
    assert [(cell.id, cell.host_node, cell.memory_mib, cell.vcpus, cell.cpus) for cell in cells] == [
        (0, 0, 1024, [0, 1], [1, 2]),
        (1, 1, 1024, [2, 3], [5, 6]),
    ]
    assert [cell.distances for cell in cells] == [{"0": 10, "1": 21}, {"0": 21, "1": 10}]
    only = plan(gpus={"addresses": ["83:00.0"]}, nics={}, vcpus=2).processors.cells
    assert [(cell.id, cell.host_node, cell.memory_mib) for cell in only] == [(0, 1, 2048)]


def test_vcpus_on_sibling_threads_are_adjacent() -> None:
    processors = plan(threaded(), vcpus=8).processors
    assert processors.threads == 2
    assert [cell.cpus for cell in processors.cells] == [[1, 17, 2, 18], [5, 21, 6, 22]]
    assert processors.kept_cpus == [0, 4, 16, 20]


def test_an_odd_number_of_vcpus_per_cell_uses_one_thread_per_core() -> None:
    processors = plan(threaded(), vcpus=6).processors
    assert processors.threads == 1
    assert [cell.cpus for cell in processors.cells] == [[1, 2, 3], [5, 6, 7]]


def test_vcpus_default_to_the_remaining_cpus() -> None:
    assert sum(len(cell.vcpus) for cell in plan(vcpus=None).processors.cells) == 6
    assert sum(len(cell.vcpus) for cell in plan(vcpus=None, host_cores_per_socket=2).processors.cells) == 4
    host = lab()
    for at, node in enumerate(host.numa_nodes):
        node.cpus = list(range(at * 256, at * 256 + 256))
        node.siblings = [[cpu] for cpu in node.cpus]
    assert sum(len(cell.vcpus) for cell in plan(host, vcpus=None).processors.cells) == 254
    assert sum(len(cell.vcpus) for cell in plan(host, vcpus=None, guest_iommu=True).processors.cells) == 288


def test_a_device_on_a_node_without_cpus_or_memory_gets_the_nearest_cell() -> None:
    host = lab()
    host.numa_nodes[1].memory_bytes = 0
    got = plan(host, vcpus=2)
    assert [cell.host_node for cell in got.processors.cells] == [0]
    assert any("NUMA node 1 of 0000:83:00.0 has no CPUs or no memory" in note for note in got.notes)
    assert {expander.cell for expander in got.root.expanders} == {0}


def test_a_device_on_an_unknown_node_gets_no_cell_and_a_note() -> None:
    host = lab()
    for item in host.functions:
        if item.address == "0000:83:00.0":
            item.numa_node = None
    host.root_complexes[2].numa_node = None
    got = plan(host, nics={}, vcpus=2)
    assert [cell.host_node for cell in got.processors.cells] == [0]
    assert [expander.cell for expander in got.root.expanders] == [0, None]
    assert any("does not report which NUMA node 0000:83:00.0 is on" in note for note in got.notes)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"memory_mib": None}, ("memory_mib",)),
        ({"memory_mib": 1024}, ("memory_mib 1024", "2 NUMA cells", "1024 MiB", "2048")),
        ({"memory_mib": 3072}, ("2048", "4096")),
        ({"memory_mib": 2049, "huge_page_mib": 0}, ("2 NUMA cells", "2048", "2050")),
        ({"vcpus": 3}, ("3 vCPUs", "2 NUMA cells", "0, 1", "multiple of 2")),
        ({"vcpus": 8}, ("4 CPUs", "NUMA node 0", "3")),
        ({"vcpus": 256}, ("vcpus 256", "255", "interrupt_remapping")),
        ({"vcpus": 300, "guest_iommu": True}, ("vcpus 300", "288")),
        ({"vcpus": None, "host_cores_per_socket": 4}, ("CPU", "NUMA node 0")),
    ],
)
def test_memory_and_vcpus_that_cannot_be_provided_are_refused(changes: dict[str, object], facts: tuple[str]) -> None:
    with raises(DomainError, "gpu-vm", *facts):
        plan(**changes)
