# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lines of a plan as text, one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from machines import GIB, MIB, lab, plan

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, Link, Sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell, Share
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import terminal
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.terminal import Line


@pytest.mark.parametrize(
    ("number", "word", "text"),
    [
        (0, "NIC", ""),
        (1, "NIC", "1 NIC"),
        (2, "NIC", "2 NICs"),
        (1, "complex", "1 complex"),
        (2, "complex", "2 complexes"),
        (2, "NVSwitch", "2 NVSwitches"),
    ],
)
def test_a_number_has_its_word(number, word, text):
    assert terminal._count(number, word) == text


@pytest.mark.parametrize(
    ("mib", "text"), [(0, "0 MiB"), (1023, "1023 MiB"), (1024, "1 GiB"), (1025, "1025 MiB"), (2048, "2 GiB")]
)
def test_memory_is_in_whole_gib_if_it_can_be(mib, text):
    assert terminal._mib(mib) == text


def test_a_tree_has_a_branch_for_each_line():
    lines = [Line("a", [Line("b", [Line("c")]), Line("d")]), Line("e", [Line("f")])]
    assert terminal._draw(lines, ">") == [
        ">├─ a",
        ">│  ├─ b",
        ">│  │  └─ c",
        ">│  └─ d",
        ">└─ e",
        ">   └─ f",
    ]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(0, 1, 1024, [0], [5], {}), "cell 0, host node 1: 1 vCPU on CPUs 5, 1 GiB"),
        (Cell(2, 3, 100, [0, 1, 2], [5, 6, 9], {}), "cell 2, host node 3: 3 vCPUs on CPUs 5-6,9, 100 MiB"),
        (Cell(0, 0, 1024, [0, 1], [], {}), "cell 0, host node 0: 2 vCPUs, 1 GiB"),
    ],
)
def test_a_cell_names_its_cpus_only_if_it_is_pinned(cell, text):
    assert terminal._cell(cell) == text


def share(kept: int, taken: int, free: int, elsewhere: int) -> str:
    made = Share(16, 4, kept, taken, free, elsewhere, 255, [], 5900)
    return terminal._share(
        SimpleNamespace(processors=SimpleNamespace(share=made), spec=SimpleNamespace(memory_mib=2048))
    )


def test_the_share_names_where_the_other_threads_are():
    assert share(0, 0, 0, 0) == "share: 4 vCPUs for 16 threads of the host, 2 GiB of 5.8 GiB"
    assert share(1, 2, 3, 4) == (
        "share: 4 vCPUs for 16 threads of the host (1 kept for the host, 2 with other virtual machines, 3 unused, 4 on "
        "nodes without a cell), 2 GiB of 5.8 GiB"
    )


def drawn(host: Any = None, **changes: Any) -> list[str]:
    one = host or lab()
    return terminal._machine(plan(one, **changes), one)


def test_pages_are_named_if_there_are_any():
    assert drawn()[0] == ("virtual machine gpu-vm: 4 vCPUs, 2 GiB in pages of 1 GiB, 64-bit MMIO window 32 GiB")
    assert drawn(huge_page_mib=0, memory_mib=1000)[0] == (
        "virtual machine gpu-vm: 4 vCPUs, 1000 MiB, 64-bit MMIO window 32 GiB"
    )


def differing(number: int) -> list[str]:
    host = lab()
    made = plan(host)
    rows = [{"pair": [f"a{at}", "b"], "host": "PIX", "guest": "SYS"} for at in range(number)]
    made.fidelity = Fidelity(100, 100 - number, rows)
    lines = terminal._machine(made, host)
    after = next(at for at, line in enumerate(lines) if line.startswith("fidelity "))
    return [line for line in lines[after + 1 :] if line.startswith(("  a", "  and "))]


def test_at_most_eight_pairs_that_differ_are_listed():
    listed = [f"  a{at} and b: PIX on the host, SYS in the guest" for at in range(8)]
    assert differing(8) == listed
    assert differing(9) == [*listed, "  and 1 more"]
    assert differing(1) == listed[:1]


def test_a_device_whose_node_is_unknown_is_below_no_cell():
    host = lab()
    for function in host.functions:
        if function.root_complex == "pci0000:80":
            function.numa_node = None
    host.root_complexes[2].numa_node = None
    lines = drawn(host, nics={}, vcpus=2)
    assert "└─ root complex pci0000:40, host pci0000:80" in lines
    assert "├─ cell 0, host node 0: 2 vCPUs on CPUs 1-2, 2 GiB" in lines


def test_a_switch_that_the_host_lacks_is_named():
    host = lab()
    made = plan(host)
    for port in made.root.walk():
        if port.host == "0000:11:00.0":
            port.host = None
    assert "│     ├─ switch 21:00.0, none on the host" in terminal._machine(made, host)


@pytest.mark.parametrize(
    ("link", "text"),
    [
        (None, ""),
        (Link(16.0, 8, 32.0, 16), ", 16 GT/s x8"),
        (Link(2.5, None, None, None), ""),
        (Link(None, 8, None, None), ""),
    ],
)
def test_a_device_has_its_link_if_it_is_known(link, text):
    host = lab()
    host.function("0000:13:00.0").link = link
    (line,) = [line for line in drawn(host) if "GPU 23:00.0" in line]
    assert line == f"│     │  ├─ GPU 23:00.0, host 13:00.0{text}"


def test_devices_that_nobody_has_stay_free_or_with_the_host():
    host = lab()
    host.function("0000:84:00.0").sriov = Sriov(8, 1, [])
    host.function("0000:14:00.0").sriov = None
    made = plan(host, gpus={"addresses": ["0000:13:00.0"]}, nics={}, vcpus=2, memory_mib=1024)
    assert terminal._left([made], host) == [
        "stays free: 1 GPU (83:00.0), 5 NICs (14:00.0, 15:10.0, 15:10.2, 85:10.0, 85:10.2)",
        "stays with the host: 4 NICs (00:03.0, 15:00.0, 84:00.0, 85:00.0)",
        "node 0 keeps CPUs 0,3, 1.8 GiB",
        "node 1 keeps CPUs 4-7, 2.9 GiB",
    ]
    nothing = lab()
    nothing.functions = [item for item in nothing.functions if item.address.startswith(("0000:1", "0000:8"))]
    nothing.functions = [item for item in nothing.functions if item.kind in ("bridge", "gpu")]
    everything = plan(nothing, nics={}, vcpus=2, host_cores_per_socket=0)
    everything.processors.cells[0].cpus = [0, 1, 2, 3]
    left = terminal._left([everything], nothing)
    assert left[:2] == ["stays free: no device", "node 0 keeps CPUs none, 1.8 GiB"]


def test_what_was_not_read_is_listed():
    host = lab()
    assert terminal._unknown(host) == []
    host.source = "saved"
    assert terminal._unknown(host) == ["what the host itself uses"]
    for function in host.functions:
        function.config_bytes, function.iommu_group = 0, None
        if function.kind == "gpu":
            function.bars = []
    assert terminal._unknown(host) == [
        "BARs (the MMIO window)", "ATS", "IOMMU groups", "what the host itself uses",
    ]  # fmt: skip
    gpus = [function for function in host.functions if function.kind == "gpu"]
    gpus[1].bars, gpus[0].iommu_group, gpus[0].config_bytes = [Bar(0, MIB, "memory", 64, True)], 0, 64
    assert terminal._unknown(host) == ["what the host itself uses"]


def test_the_first_line_counts_the_devices_of_the_host():
    host = lab()
    assert terminal.show("h", [], host)[0] == "h: 2 NUMA nodes, 3 root complexes, 2 GPUs, 9 NICs"
    host.numa_nodes, host.root_complexes = host.numa_nodes[:1], host.root_complexes[:1]
    host.functions = [host.function("0000:13:00.0")]
    assert terminal.show("h", [], host)[0] == "h: 1 NUMA node, 1 root complex, 1 GPU"


def test_nothing_is_said_of_gpudirect_without_a_gpu_or_a_nic():
    assert not any("GPUDirect" in line for line in drawn(nics={}))
    assert not any("GPUDirect" in line for line in drawn(gpus={}, nics={"addresses": ["0000:14:00.0"]}, vcpus=2))
    assert any(line.startswith("GPUDirect: ") for line in drawn())


def test_a_window_is_in_mib_if_it_is_no_whole_gib():
    host = lab()
    made = plan(host)
    made.window.window_bytes = 32 * GIB + MIB
    assert terminal._machine(made, host)[0].endswith("64-bit MMIO window 32769 MiB")
