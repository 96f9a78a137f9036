# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan as text: each line agrees with the plan."""

from __future__ import annotations

import machines
import pytest
from machines import GIB, MIB

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, Link, Sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Share
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.terminal import fidelity_line, show


def text(host, **changes):
    plan = machines.plan(host, **changes)
    return plan, "\n".join(show("gpu17", [plan], host))


def test_the_plan_of_the_lab_is_shown_as_a_tree():
    host = machines.lab()
    host.function("0000:13:00.0").link = Link(32.0, 16, 32.0, 16)
    host.function("0000:83:00.0").link = Link(2.5, None, None, None)
    host.function("0000:84:00.0").link = Link(None, 8, None, None)
    _plan, shown = text(host)
    tree = """\
gpu17: 2 NUMA nodes, 3 root complexes, 2 GPUs, 9 NICs
virtual machine gpu-vm: 4 vCPUs, 2 GiB in pages of 1 GiB, 64-bit MMIO window 32 GiB
├─ cell 0, host node 0: 2 vCPUs on CPUs 1-2, 1 GiB
│  └─ root complex pci0000:20, host pci0000:10
│     ├─ switch 21:00.0, host 11:00.0
│     │  ├─ GPU 23:00.0, host 13:00.0, 32 GT/s x16
│     │  └─ NIC 24:00.0, host 14:00.0, 2.5 GT/s x1
│     └─ VF 25:00.0, host 15:10.0 of 15:00.0, 2.5 GT/s x1
└─ cell 1, host node 1: 2 vCPUs on CPUs 5-6, 1 GiB
   └─ root complex pci0000:40, host pci0000:80
      ├─ switch 41:00.0, host 81:00.0
      │  ├─ GPU 43:00.0, host 83:00.0
      │  └─ NIC 44:00.0, host 84:00.0
      └─ VF 45:00.0, host 85:10.0 of 85:00.0, 2.5 GT/s x1
share: 4 vCPUs for 8 threads of the host (2 kept for the host, 2 unused), 2 GiB of 5.8 GiB
fidelity 100%: 15 of 15 pairs
"""
    assert shown.startswith(tree)
    assert shown.endswith(
        """
stays free: 2 NICs (15:10.2, 85:10.2)
stays with the host: 3 NICs (00:03.0, 15:00.0, 85:00.0)
node 0 keeps CPUs 0,3, 1.8 GiB
node 1 keeps CPUs 4,7, 1.9 GiB"""
    )


def test_a_flat_guest_is_shown_with_a_pair_that_differs():
    plan, shown = text(machines.lab(), mirror_topology=False)
    assert "root complex pci0000:00, the guest's own" in shown
    assert plan.fidelity.equal < plan.fidelity.total
    assert "fidelity 100%" not in shown
    first = plan.fidelity.differences[0]
    assert f"{' and '.join(first['pair'])}: {first['host']} on the host, {first['guest']} in the guest" in shown


def test_addresses_include_the_domain_if_the_host_has_several_domains():
    host = machines.recording("llnl-lassen")
    plan = machines.plan(host, gpus={"count": 1}, nics={}, memory_mib=2048)
    shown = "\n".join(show("lassen", [plan], host))
    (device,) = plan.to_dict()["devices"]
    assert f"GPU {device['guest_address']}, host {device['host_address']}" in shown


def test_information_that_a_recording_lacks_is_listed():
    host = machines.recording("nvidia-dgx2")
    plan = machines.plan(host, gpus={"count": 1}, nics={}, memory_mib=2048, vcpus=1)
    last = show("dgx2", [plan], host)[-1]
    assert last == (
        "not in this recording, and so not checked: BARs (the MMIO window), ATS, IOMMU groups, what the host itself "
        "uses"
    )


@pytest.mark.parametrize(
    ("total", "equal", "message"),
    [
        (120, 120, "fidelity 100%: 120 of 120 pairs"),
        (1000, 999, "fidelity 99%: 999 of 1000 pairs"),
        (0, 0, "fidelity: no two devices to compare"),
    ],
)
def test_fidelity_is_100_percent_only_if_all_pairs_are_equal(total, equal, message):
    assert fidelity_line(Fidelity(total, equal)) == message


def test_the_text_contains_the_outlook_of_gpudirect():
    _plan, shown = text(machines.lab())
    first = "GPUDirect: 0 of 2 pairs of GPU and NIC are direct"
    (line,) = [line for line in shown.splitlines() if line.startswith("GPUDirect:")]
    assert line.startswith(first)
    # The emulated NIC has no ATS, and its port no ACS.
    assert "  the NIC has no ATS capability (GPU 0000:13:00.0 and NIC 0000:14:00.0 and 1 more)" in shown
    assert "has no ACS: GPU and NIC are in one IOMMU group" in shown


def test_a_flat_guest_is_shown_with_the_cause_and_the_remedy():
    _plan, shown = text(machines.lab(), mirror_topology=False)
    assert "GPU and NIC share a switch on the host (PIX), but in the guest they are" in shown
    assert "remedy: mirror_topology: true" in shown


def test_pages_and_pinned_cpus_are_named_only_where_there_are_any():
    plan = machines.plan(huge_page_mib=0, memory_mib=1000, pin_cpus=False)
    plan.window.window_bytes = 32 * GIB + MIB
    _host, machine, *lines = show("h", [plan], machines.lab())
    assert machine == "virtual machine gpu-vm: 4 vCPUs, 1000 MiB, 64-bit MMIO window 32769 MiB"
    assert not any("on CPUs" in line for line in lines)


def test_the_share_names_where_the_other_threads_are():
    plan = machines.plan()
    for share, use in (
        (Share(16, 4, 0, 0, 0, 0, 255, [], 5900), ""),
        (
            Share(16, 4, 1, 2, 3, 4, 255, [], 5900),
            " (1 kept for the host, 2 with other virtual machines, 3 unused, 4 on nodes without a cell)",
        ),
    ):
        plan.processors.share = share
        assert f"share: 4 vCPUs for 16 threads of the host{use}, 2 GiB of 5.8 GiB" in show("h", [plan], machines.lab())


def test_at_most_eight_pairs_that_differ_are_listed():
    plan = machines.plan()
    for count in (1, 8, 9):
        pairs = [{"pair": [f"a{number}", "b"], "host": "PIX", "guest": "SYS"} for number in range(count)]
        plan.fidelity = Fidelity(100, 100 - count, pairs)
        lines = show("h", [plan], machines.lab())
        assert [line.split()[0] for line in lines if "SYS in the guest" in line] == [f"a{n}" for n in range(8)][:count]
        assert [line for line in lines if line.startswith("  and ")] == ["  and 1 more"][: count == 9]


def test_a_device_whose_node_is_unknown_is_below_no_cell():
    host = machines.lab()
    for function in host.functions:
        if function.root_complex == "pci0000:80":
            function.numa_node = None
    host.root_complexes[2].numa_node = None
    shown = text(host, nics={}, vcpus=2)[1]
    assert "\n└─ root complex pci0000:40, host pci0000:80\n" in shown
    assert "\n├─ cell 0, host node 0: 2 vCPUs on CPUs 1-2, 2 GiB\n" in shown


def test_a_switch_that_the_host_lacks_is_named():
    plan = machines.plan()
    for port in plan.root.walk():
        if port.host == "0000:11:00.0":
            port.host = None
    assert "│     ├─ switch 21:00.0, none on the host" in show("h", [plan], machines.lab())


def test_devices_that_nobody_has_stay_free_or_with_the_host():
    host = machines.lab()
    host.function("0000:84:00.0").sriov = Sriov(8, 1, [])
    host.function("0000:14:00.0").sriov = Sriov(8, 0, [])
    _plan, shown = text(host, gpus={"addresses": ["0000:13:00.0"]}, nics={}, vcpus=2, memory_mib=1024)
    assert "stays free: 1 GPU (83:00.0), 5 NICs (14:00.0, 15:10.0, 15:10.2, 85:10.0, 85:10.2)" in shown
    assert "stays with the host: 4 NICs (00:03.0, 15:00.0, 84:00.0, 85:00.0)" in shown
    host = machines.lab()
    host.functions = [item for item in host.functions if item.kind in ("bridge", "gpu")]
    plan = machines.plan(host, nics={}, vcpus=2, host_cores_per_socket=0)
    plan.processors.cells[0].cpus = [0, 1, 2, 3]
    lines = show("h", [plan], host)
    assert {"stays free: no device", "node 0 keeps CPUs none, 1.8 GiB"} <= set(lines)
    assert not any("GPUDirect" in line or line.startswith("stays with the host") for line in lines)


def test_facts_that_were_not_read_are_listed():
    host = machines.lab()
    plan = machines.plan(host)

    def unread() -> str:
        return show("h", [plan], host)[-1].partition("not checked: ")[2]

    assert unread() == ""
    host.source = "saved"
    assert unread() == "what the host itself uses"
    gpus = [function for function in host.functions if function.kind == "gpu"]
    for function in host.functions:
        function.config_bytes, function.iommu_group = 0, None
    for gpu in gpus:
        gpu.bars = []
    assert unread() == "BARs (the MMIO window), ATS, IOMMU groups, what the host itself uses"
    gpus[1].bars, gpus[0].iommu_group, gpus[0].config_bytes = [Bar(0, MIB, "memory", 64, True)], 0, 64
    assert unread() == "what the host itself uses"


def test_the_first_line_counts_the_devices_of_the_host():
    host = machines.lab()
    host.numa_nodes, host.root_complexes = host.numa_nodes[:1], host.root_complexes[:1]
    host.functions = [host.function("0000:13:00.0")]
    assert show("h", [], host)[0] == "h: 1 NUMA node, 1 root complex, 1 GPU"


def test_nothing_is_said_of_gpudirect_without_a_gpu():
    assert "GPUDirect" not in text(machines.lab(), gpus={}, nics={"addresses": ["0000:14:00.0"]}, vcpus=2)[1]
