# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Boards whose NVSwitches are managed through ConnectX functions: full passthrough, partitions, NICs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from baseboards import gpus, hgx, hgx_nvlink5, vm
from machines import hypervisor, observed
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import mark_management
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, Sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices import nvswitch_boards
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.whole_host import whole_host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_partitions, parse_specs

MANAGEMENT = [f"0000:04:00.{number}" for number in range(4)]
NICS = ["0000:08:00.0", "0000:09:00.0"]


def plans(host: Host, *requests: dict[str, Any], **more: Any) -> dict[str, DomainPlan]:
    return {plan.name: plan for plan in plan_domains(host, parse_specs(list(requests)), **more)}


def addresses(plan: DomainPlan, kind: str) -> list[str]:
    return [item.address for item in plan.chosen.all() if item.kind == kind]


@pytest.mark.parametrize(("gpu", "name"), [(0x2901, "HGX B200"), (0x3182, "HGX B300")])
def test_the_board_has_fifteen_partitions_and_is_known_by_its_gpus(gpu: int, name: str) -> None:
    fabric = nvswitch_boards.recognise(hgx_nvlink5(gpu))
    assert fabric is not None
    assert (fabric.board.name, fabric.sizes, [item.id for item in fabric.partitions]) == (
        name, [1, 2, 4, 8], list(range(1, 16)),
    )  # fmt: skip
    assert [item.address for item in fabric.nvswitches] == MANAGEMENT
    unread = nvswitch_boards.recognise(hgx_nvlink5(gpu, read=False))
    assert unread is not None
    assert (unread.board.name, unread.nvswitches) == (name, [])
    assert nvswitch_boards.recognise(hgx(0x2941, switches=0)) is None  # GB200: no such board


def test_a_machine_with_all_gpus_gets_the_management_of_the_nvswitches() -> None:
    host = hgx_nvlink5()
    plan = plans(host, vm("a", 8))["a"]
    assert addresses(plan, "nvswitch_management") == MANAGEMENT
    assert [note for note in plan.notes if "NVLSM run in the guest" in note]
    assert plan.cliques.cliques == ()
    again = plans(host, vm("a", 8), hypervisor=hypervisor(domains={"a": observed(plan)}))["a"]
    assert again.to_dict()["devices"] == plan.to_dict()["devices"]
    assert len(plans(host, whole_host(host))["whole-host"].chosen.nvswitches) == 4


def test_management_functions_are_never_chosen_as_nics() -> None:
    host = hgx_nvlink5()
    plan = plans(host, vm("a", 1, nics={"per_gpu": 2, "functions": "pf"}))["a"]
    assert addresses(plan, "nic") == NICS
    with raises(DomainError, "3 physical NIC functions", "2", "free"):
        plans(host, vm("a", 1, nics={"per_gpu": 3, "functions": "pf"}))
    assert whole_host(host)["nics"]["addresses"] == NICS


@pytest.mark.parametrize("count", [3, 5, 6, 7])
def test_a_number_without_a_partition_is_refused(count: int) -> None:
    for host in (hgx_nvlink5(), hgx_nvlink5(read=False)):
        with raises(DomainError, "1, 2, 4 or 8", "HGX B200"):
            plans(host, vm("a", count))


def test_parts_of_the_board_leave_its_management_with_the_host() -> None:
    got = plans(hgx_nvlink5(), vm("a", 4), vm("b", 2), vm("c", 1))
    assert all(addresses(plan, "nvswitch_management") == [] for plan in got.values())
    notes = {name: " ".join(plan.notes) for name, plan in got.items()}
    assert "must activate partition 2 (GPU physical id 1, 2, 3, 4)" in notes["a"]
    assert "must activate partition 6 (GPU physical id 5, 6)" in notes["b"]
    assert "must activate partition 14 (GPU physical id 7)" in notes["c"]
    assert all(
        "functions that manage the NVSwitches of the HGX B200 stay with the host" in note for note in notes.values()
    )


def test_a_service_machine_has_the_management_and_no_gpu() -> None:
    host = hgx_nvlink5()
    service = plans(host, vm("service", 0, nics={"addresses": MANAGEMENT}))["service"]
    assert addresses(service, "nvswitch_management") == MANAGEMENT
    domains = {"service": observed(service)}
    plan = plans(host, vm("a", 8), hypervisor=hypervisor(domains=domains))["a"]
    assert plan.chosen.nvswitches == []
    assert any("must activate partition 1 (GPU physical id 1, 2, 3" in note for note in plan.notes)


@pytest.mark.parametrize("count", [1, 4])
def test_some_gpus_never_go_with_the_management_of_all(count: int) -> None:
    with raises(DomainError, f"{count} of the 8 GPUs", "0000:04:00.1") as error:
        plans(hgx_nvlink5(), vm("a", count, nics={"addresses": [MANAGEMENT[1]]}))
    assert error.value.domain == "a"
    switches = [f"0000:0{bus}:00.0" for bus in range(4, 8)]
    with raises(DomainError, "NVLink", "0000:04:00.0"):
        plans(hgx(), vm("a", count, nvme={"addresses": switches}))


def test_without_vpd_no_function_is_a_nic_and_the_whole_board_is_refused() -> None:
    host = hgx_nvlink5(read=False)
    for request in (
        vm("a", 8),
        vm("a", 1, nics={"per_gpu": 1, "functions": "pf"}),
        vm("a", 1, nics={"addresses": [NICS[0]]}),
    ):
        with pytest.raises(DomainError, match="VPD"):
            plans(host, request)
    assert chosen_count(plans(host, vm("a", 4))["a"]) == 4


def chosen_count(plan: DomainPlan) -> int:
    return len(plan.chosen.gpus)


@pytest.mark.parametrize("read", [True, False])
def test_no_machine_gets_a_virtual_function_of_the_management(read: bool) -> None:
    host = hgx_nvlink5(read=read)
    owner, virtual = host.function(MANAGEMENT[0]), "0000:04:01.0"
    owner.sriov = Sriov(8, 1, [virtual])
    host.functions.append(
        replace(owner, address=virtual, kind="nic", sriov=None, physical_function=owner.address, iommu_group=777)
    )
    mark_management(host.functions)
    for nics in ({"per_gpu": 1, "functions": "vf"}, {"addresses": [virtual]}):
        for count in (0, 1, 8):
            with pytest.raises(DomainError):
                plans(host, vm("a", count, nics=nics))
    if read:
        with pytest.raises(DomainError) as error:
            plans(host, vm("a", 8))
        assert f"{owner.address}/sriov_numvfs" in error.value.remedy
        assert plans(host, vm("a", 4))["a"].chosen.shared.switches == tuple(MANAGEMENT)


def test_given_partitions_take_the_place_of_the_table() -> None:
    host = hgx_nvlink5()
    given = parse_partitions({"3": [1, 5], 7: [2, 6, 3, 4]})
    got = plans(host, vm("a", 2), vm("b", 4), gpu_partitions=given)
    address = gpus(host)
    assert addresses(got["a"], "gpu") == [address[0], address[4]]
    assert addresses(got["b"], "gpu") == [address[number - 1] for number in (2, 3, 4, 6)]
    with raises(DomainError, "partitions of 2 or 4"):
        plans(host, vm("a", 1), gpu_partitions=given)
    with raises(DomainError, "partition 1", "9", "HGX B200"):
        plans(host, vm("a", 1), gpu_partitions={1: (1, 9)})
    with raises(DomainError, "gpu_partitions", "NVSwitch board"):
        plans(hgx(switches=0), vm("a", 1), gpu_partitions=given)


@pytest.mark.parametrize("data", [{"x": [1]}, {"1": []}, {"1": [1, 1]}, {"1": 4}, {"1": ["a"]}, {"-1": [1]}])
def test_an_invalid_partition_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(DomainError, match="gpu_partitions"):
        parse_partitions(data)
