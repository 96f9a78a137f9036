# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan as text: each line agrees with the plan."""

from __future__ import annotations

import machines
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Link
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Fidelity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.terminal import fidelity_line, show


def text(host, **changes):
    plan = machines.plan(host, **changes)
    return plan, "\n".join(show("gpu17", [plan], host))


def test_the_plan_of_the_lab_is_shown_as_a_tree():
    host = machines.lab()
    host.function("0000:13:00.0").link = Link(32.0, 16, 32.0, 16)
    host.function("0000:83:00.0").link = Link(None, None, None, None)
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
      │  └─ NIC 44:00.0, host 84:00.0, 2.5 GT/s x1
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
