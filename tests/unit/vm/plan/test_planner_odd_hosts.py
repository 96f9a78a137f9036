# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Unusual but possible hosts: the plan is right, or says why there is none."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest
from machines import GIB, endpoint, lab, plan, recording
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, NumaNode, RootComplex
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.host_record import read

GPUS = {"addresses": ["0000:13:00.0", "0000:83:00.0"]}
NOTHING = {"nics": {}, "disks": [], "interfaces": []}


def test_a_device_that_does_not_answer_is_not_assigned() -> None:
    host = lab()
    # The reader reports this for a listed function whose config space cannot be read.
    host.function("0000:13:00.0").config_bytes = 0
    with raises(DomainError, "0000:13:00.0", "answer"):
        plan(host, gpus=GPUS, **NOTHING)
    with raises(DomainError, "2", "1", "0000:13:00.0", "answer"):
        plan(host, gpus={"count": 2}, **NOTHING)
    (gpu,) = plan(host, gpus={"count": 1}, vcpus=2, **NOTHING).chosen.gpus
    assert gpu.address == "0000:83:00.0"


def test_devices_are_assigned_if_no_config_space_was_read() -> None:
    host = lab()
    for function in host.functions:
        function.config_bytes = 0
    assert len(plan(host, gpus={"count": 2}, **NOTHING).chosen.gpus) == 2


def test_a_pci_domain_with_five_digits_is_rendered() -> None:
    # Linux numbers the domains below an Intel VMD like this.
    host = lab()
    host.root_complexes.append(RootComplex("pci10000:e0", 0x10000, 0xE0, 1))
    host.functions.append(endpoint("10000:e1:00.0", None, "pci10000:e0", "nvme", config_bytes=256))
    got = plan(host, gpus={}, nvme={"addresses": ["10000:e1:00.0"]}, vcpus=2, **NOTHING)
    assert 'domain="0x10000" bus="0xe1"' in render(got)


def test_nodes_of_gpu_memory_do_not_become_cells() -> None:
    host = recording("llnl-lassen")
    # The kernel shows the memory of each V100 as a node without CPUs.
    host.numa_nodes += [NumaNode(number, [], [], 16 * GIB) for number in (252, 253, 254, 255)]
    gpus = [function.address for function in host.functions if function.kind == "gpu"]
    got = plan(host, gpus={"addresses": gpus}, huge_page_mib=0, **NOTHING)
    assert [cell.host_node for cell in got.processors.cells] == [0, 8]
    assert got.fidelity.share == 1


def test_a_device_on_a_node_without_cpus_gets_the_nearest_cell_and_a_note() -> None:
    host = lab()
    host.numa_nodes.append(NumaNode(2, [], [], GIB, distances={"0": 40, "1": 20, "2": 10}))
    host.function("0000:13:00.0").numa_node = 2
    got = plan(host, gpus=GPUS, vcpus=2, **NOTHING)
    assert [cell.host_node for cell in got.processors.cells] == [1]
    assert got.fidelity.differences == [
        {"pair": ["gpu 0000:13:00.0", "gpu 0000:83:00.0"], "host": "SYS", "guest": "NODE"}
    ]
    assert any("NUMA node 2 of 0000:13:00.0 has no CPUs or no memory" in note for note in got.notes)


def test_a_root_complex_with_several_nodes_gets_the_node_of_most_devices() -> None:
    host = lab()
    host.function("0000:13:00.0").numa_node = 1
    nics = {"addresses": ["0000:14:00.0", "0000:15:10.0"], "per_gpu": 0}
    got = plan(host, gpus=GPUS, nics=nics, disks=[], interfaces=[])
    assert {device["host_address"]: device["cell"] for device in got.to_dict()["devices"]} == {
        "0000:13:00.0": 0,
        "0000:14:00.0": 0,
        "0000:15:10.0": 0,
        "0000:83:00.0": 1,
    }
    assert any(
        note.startswith(
            "0000:13:00.0 is on NUMA node 1 of the host; in the guest it is on the cell of node 0, with the others"
        )
        for note in got.notes
    )


@pytest.mark.parametrize("unknown", ["0000:13:00.0", "0000:14:00.0"])
def test_a_device_without_a_node_does_not_change_the_node_of_its_neighbours(unknown: str) -> None:
    host = lab()
    host.function(unknown).numa_node = None
    next(item for item in host.root_complexes if item.name == "pci0000:10").numa_node = None
    nics = {"addresses": ["0000:14:00.0"], "per_gpu": 0}
    got = plan(host, gpus=GPUS, nics=nics, disks=[], interfaces=[])
    assert [expander.cell for expander in got.root.expanders] == [0, 1]
    assert any(f"does not report which NUMA node {unknown} is on; in the guest it is on" in note for note in got.notes)


def test_a_device_without_a_node_gets_that_of_its_root_complex() -> None:
    host = lab()
    host.function("0000:83:00.0").numa_node = None
    assert [item.numa_node for item in host.root_complexes if item.name == "pci0000:80"] == [1]
    got = plan(host, gpus=GPUS, **NOTHING)
    found = {device["host_address"]: (device["host_node"], device["cell"]) for device in got.to_dict()["devices"]}
    assert found == {"0000:13:00.0": (0, 0), "0000:83:00.0": (1, 1)}
    assert {row.address: row.node for row in read(fromstring(render(got))).values()} == {
        "0000:13:00.0": "0",
        "0000:83:00.0": "1",
    }


def test_a_note_reports_unknown_bars() -> None:
    host = lab()
    for function in host.functions:
        if function.kind == "gpu":
            function.bars = []
    (note,) = (note for note in plan(host, gpus=GPUS, **NOTHING).notes if "BARs" in note)
    assert note.startswith(
        "the topology does not contain the BARs of 0000:13:00.0, 0000:83:00.0: the window for large BARs has no room"
    )
    assert not any("does not contain the BARs" in note for note in plan(gpus=GPUS, **NOTHING).notes)


def test_32_bit_bars_that_do_not_fit_below_4_gib_are_refused() -> None:
    host = lab()
    host.function("0000:13:00.0").bars = [Bar(0, GIB, "memory", 32, False)]
    with raises(DomainError, "4 GiB", "0000:13:00.0", "1024"):
        plan(host, gpus=GPUS, **NOTHING)
