# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan, judged by NVIDIA's own tool, on servers of the three topologies that it knows."""

from __future__ import annotations

import gpudirect_servers as servers
import pytest
import rdma_topo

from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_families
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import acs_rules

VIRTUAL, METAL = acs_rules.VIRTUAL_MACHINES, acs_rules.BARE_METAL
# {name: (server, purpose, the tool's arguments)}; data-direct needs no argument for the mode.
CASES = {
    "inline, virtual machines": (lambda: servers.inline(True), VIRTUAL, ["--virt"]),
    "inline, bare metal": (lambda: servers.inline(False), METAL, ["--no-virt"]),
    "beside BlueField-3, virtual machines": (lambda: servers.inline_beside_bluefield(True), VIRTUAL, ["--virt"]),
    "beside BlueField-3, bare metal": (lambda: servers.inline_beside_bluefield(False), METAL, ["--no-virt"]),
    "inline, detected": (lambda: servers.inline(True), VIRTUAL, []),
    "data-direct, virtual machines": (servers.dma_direct, VIRTUAL, []),
    "data-direct, bare metal": (servers.dma_direct, METAL, []),
    "Grace, virtual machines": (servers.numa, VIRTUAL, ["--virt"]),
    "Grace, bare metal": (servers.numa, METAL, ["--no-virt"]),
    "Vera, virtual machines": (lambda: servers.numa(servers.VERA_ROOT), VIRTUAL, ["--virt"]),
    "Vera, bare metal": (lambda: servers.numa(servers.VERA_ROOT), METAL, ["--no-virt"]),
}


@pytest.mark.parametrize("name", CASES)
def test_rdma_topo_accepts_the_plan(name, tmp_path):
    build, purpose, arguments = CASES[name]
    host = build()
    plan = servers.apply_plan(host, purpose)
    status, lines = rdma_topo.check(host, tmp_path, *arguments)
    assert (status, [line for line in lines if not line.startswith("OK\t")]) == (0, [])
    assert [claim for claim in plan.claims() if not claim.holds] == []


@pytest.mark.parametrize("name", CASES)
def test_rdma_topo_and_the_mask_refuse_one_flipped_bit(name, tmp_path):
    """The bits are all those that the rules name, on each port, one at a time.

    The tool accepts translation blocking, which the mask of a NIC's port turns off, and does not look at root ports
    without a GPU below them on a host where GPUs and NICs share switches.
    """
    build, purpose, arguments = CASES[name]
    host = build()
    plan = servers.apply_plan(host, purpose)
    for port in plan.ports:
        acs = host.function(port.address).acs
        for bit in (index for index in range(7) if (port.mask.on | port.mask.off) & 1 << index):
            acs.control ^= 1 << bit
            status, lines = rdma_topo.check(host, tmp_path, *arguments)
            refused = [line for line in lines if line.startswith("FAIL") and port.address in line]
            judged = bit != 1 and not (
                name.startswith("beside") and (port.topology, port.role) == ("numa", "root_port")
            )
            assert (status == 100, bool(refused)) == (judged, judged), f"bit {bit} of {port}"
            assert not port.mask.holds(acs.control, acs.capability)
            acs.control ^= 1 << bit


def test_a_bluefield_of_the_host_itself_does_not_change_the_verdict_on_bare_metal(tmp_path):
    host = servers.inline_beside_bluefield(False)
    of_users = [function for function in servers.passed(host) if function.device_id in (0x1023, 0x3182)]
    plan = servers.apply_plan(host, METAL, devices=of_users)
    assert rdma_topo.check(host, tmp_path, "--no-virt")[0] == 0
    assert {port.mask.text for port in plan.ports if not port.below} == {"xx000x0"}


@pytest.mark.parametrize("purpose", [VIRTUAL, METAL])
def test_nothing_is_expected_of_the_nics_that_the_tool_does_not_look_at(purpose):
    host = servers.inline_beside_bluefield(purpose == VIRTUAL)
    plan = servers.apply_plan(host, purpose)
    others = [item for item in host.functions if item.kind == "nic" and item.device_id in (0xA2DC, 0x101B)]
    assert [claim for claim in plan.claims() if any(nic.address in claim.claim for nic in others)] == []
    assert ["ATS_ENABLED" in nic_families.values(nic, plan) for nic in others] == [False, False]
    beside = host.function(next(nic for nic in plan.nics if plan.expected_of(nic) == acs_rules.INLINE))
    assert nic_families.values(beside, plan)["ATS_ENABLED"] is (purpose == VIRTUAL)


def test_wrong_groups_and_missing_ats_are_refused_as_by_rdma_topo(tmp_path):
    host = servers.inline(True)
    plan = servers.apply_plan(host, VIRTUAL)
    nic, gpu = plan.nics[0], plan.gpus[0]
    group = host.function(nic).iommu_group
    host.function(nic).iommu_group = host.function(gpu).iommu_group
    assert rdma_topo.check(host, tmp_path, "--virt")[0] == 100
    assert [claim.holds for claim in plan.claims() if not claim.holds] == [False]
    host.function(nic).iommu_group = group
    host.function(nic).ats = None
    assert rdma_topo.check(host, tmp_path, "--virt")[0] == 100
    assert [claim.seen for claim in plan.claims() if not claim.holds] == ["absent"]


def test_a_data_direct_function_in_another_group_than_its_gpu_is_refused(tmp_path):
    host = servers.dma_direct()
    plan = servers.apply_plan(host, VIRTUAL)
    host.function(plan.gpus[0]).iommu_group = 99
    assert rdma_topo.check(host, tmp_path)[0] == 100
    assert [claim.wanted for claim in plan.claims() if not claim.holds] == ["same"]
