# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rule table row by row, on boards that NVIDIA's tool does not know: HGX boards with other switches."""

from __future__ import annotations

import gpudirect_servers as servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BARE_METAL,
    VIRTUAL_MACHINES,
)


def masks(plan):
    """Return {address: (role, mask)}."""
    return {port.address: (port.role, port.mask.text) for port in plan.ports}


def above(host, kind):
    return {item.parent for item in host.functions if item.kind == kind}


@pytest.mark.parametrize("switch", [servers.BROADCOM, servers.MICROCHIP], ids=["Broadcom", "Microchip"])
@pytest.mark.parametrize(("gpus", "nics"), [(1, 1), (2, 1), (2, 2), (1, 3)])
def test_the_masks_of_hgx_boards_for_virtual_machines(switch, gpus, nics):
    host = servers.hgx(switch, gpus, nics)
    found = masks(servers.apply_plan(host, VIRTUAL_MACHINES))
    assert {found[port] for port in above(host, "nic")} == {("nic_port", "1x11101")}
    assert {found[port] for port in above(host, "gpu")} == {("gpu_port", "xx111x1")}
    assert {found[port] for port in above(host, "nvme")} == {("other_port", "xx111x1")}
    roots = {port for port in found if host.function(port).port_type == "root_port"}
    assert {found[port] for port in roots} == {("root_port", "xx111x1")}
    # Nothing that is passed through is below the root ports of the NVSwitches.
    assert not roots & above(host, "nvswitch")


@pytest.mark.parametrize(("gpus", "nics"), [(1, 1), (2, 2)])
def test_the_masks_of_hgx_boards_on_bare_metal(gpus, nics):
    host = servers.hgx(gpus=gpus, nics=nics, ats=False)
    found = masks(servers.apply_plan(host, BARE_METAL))
    assert {mask for _role, mask in found.values()} == {"xx000x0"}
    assert above(host, "nvme") <= set(found)


def test_the_plan_has_only_ports_on_the_paths_of_passed_through_devices():
    host = servers.hgx()
    gpu, nic = (next(item for item in host.functions if item.kind == kind) for kind in ("gpu", "nic"))
    found = masks(AcsPlan(host, [gpu, nic], VIRTUAL_MACHINES))
    switch = host.function(gpu.parent).parent
    assert set(found) == {
        host.path(gpu.address)[0].address,
        *(item.address for item in host.functions if item.parent == switch),
    }


def test_a_nic_without_a_gpu_on_its_switch_keeps_the_kernel_default():
    host = servers.hgx()
    nic = next(item for item in host.functions if item.kind == "nic")
    other = [item for item in host.functions if item.kind == "gpu"][-1]
    found = masks(AcsPlan(host, [nic, other], VIRTUAL_MACHINES))
    assert {mask for _role, mask in found.values()} == {"xx111x1"}


def test_the_upper_of_two_switch_levels_redirects_the_traffic():
    """The NIC's and the GPU's switches are below a third, and only its ports redirect the traffic between them."""
    build = servers.Build()
    to_nics, to_gpus = build.switch(build.root(0), 2)
    (nic_port,) = build.switch(to_nics, 1)
    nic = build.device(nic_port, servers.CX7, "nic", ats=True)
    (gpu_port,) = build.switch(to_gpus, 1)
    gpu = build.device(gpu_port, servers.H100, "gpu")
    plan = AcsPlan(build.done(), [nic, gpu], VIRTUAL_MACHINES)
    assert masks(plan)[to_nics.address] == ("nic_port", "1x11101")
    assert masks(plan)[to_gpus.address] == ("gpu_port", "xx111x1")
    assert masks(plan)[nic_port.address] == masks(plan)[gpu_port.address] == ("other_port", "xx111x1")


def test_virtual_functions_use_the_port_of_their_physical_function():
    host = servers.hgx()
    pf = next(item for item in host.functions if item.kind == "nic")
    vf = servers.Build().device(host.function(pf.parent), servers.CX7, "nic", ats=True, function=1)
    vf.physical_function = pf.address
    host.functions.append(vf)
    gpus = [item for item in host.functions if item.kind == "gpu"]
    plan = AcsPlan(host, [vf, *gpus], VIRTUAL_MACHINES)
    assert masks(plan)[pf.parent] == ("nic_port", "1x11101")


def test_a_data_direct_function_changes_the_gpu_port_but_not_the_nic_port():
    """The GPU's port gets the rule for data-direct, and the NIC's port keeps its own."""
    build = servers.Build()
    to_dma, to_nic, to_gpu = build.switch(build.root(0), 3, servers.CX_SWITCH)
    build.device(to_dma, servers.DATA_DIRECT, "other")
    nic, gpu = build.device(to_nic, servers.CX8, "nic", ats=True), build.device(to_gpu, servers.B300, "gpu")
    plan = AcsPlan(build.done(), [nic, gpu], VIRTUAL_MACHINES)
    assert masks(plan)[to_dma.address] == ("dma_port", "xx110x1")
    assert masks(plan)[to_gpu.address] == ("gpu_port", "xx101x1")
    assert masks(plan)[to_nic.address] == ("nic_port", "1x11101")
    assert [port.mask.text for port in plan.ports if port.role == "root_port"] == ["xx111x0"]


def test_gpus_without_nics_communicate_below_their_switch_on_bare_metal():
    plan = servers.apply_plan(servers.pcie_cards(), BARE_METAL)
    assert {port.mask.text for port in plan.ports} == {"xx000x0"}
    plan = servers.apply_plan(servers.pcie_cards(), VIRTUAL_MACHINES)
    assert {port.mask.text for port in plan.ports} == {"xx111x1"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda nic, gpu: setattr(nic, "ats", None), "has an ATS capability"),
        (lambda nic, gpu: setattr(nic, "iommu_group", gpu.iommu_group), "are different"),
        (lambda nic, gpu: setattr(gpu, "iommu_group", None), "are different"),
    ],
)
def test_checks_require_ats_and_different_iommu_groups(change, what):
    host = servers.hgx()
    plan = servers.apply_plan(host, VIRTUAL_MACHINES)
    assert all(claim.holds for claim in plan.claims())
    nic = host.function(plan.nics[0])
    gpu = next(host.function(gpu) for gpu in plan.gpus if plan.turns(nic.address, gpu))
    change(nic, gpu)
    (failed,) = [claim for claim in plan.claims() if not claim.holds]
    assert what in failed.claim
    assert nic.address in failed.claim


def test_a_capability_in_unread_config_space_does_not_hold():
    host = servers.hgx()
    nic = next(item for item in host.functions if item.kind == "nic")
    nic.ats, nic.config_bytes = None, 256
    plan = servers.apply_plan(host, VIRTUAL_MACHINES)
    assert [(claim.seen, claim.holds) for claim in plan.claims() if not claim.holds] == [(None, False)]


def test_the_plan_is_empty_without_passed_through_devices():
    plan = AcsPlan(servers.hgx(), [], VIRTUAL_MACHINES)
    assert (plan.ports, plan.claims()) == ([], [])
