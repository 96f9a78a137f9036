# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPUs, their virtual functions, chosen on request and never both, and IOMMU groups that no partition fits."""

from __future__ import annotations

from typing import Any

import pytest
from baseboards import gpus, hgx, vm, with_vfs
from machines import hypervisor, observed
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.whole_host import whole_host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def plans(host: Host, *requests: dict[str, Any], **more: Any) -> dict[str, DomainPlan]:
    return {plan.name: plan for plan in plan_domains(host, parse_specs(list(requests)), **more)}


def chosen(plan: DomainPlan) -> list[str]:
    return [item.address for item in plan.chosen.gpus]


def virtual(name: str, count: int) -> dict[str, Any]:
    return vm(name, 0, gpus={"count": count, "functions": "vf"})


def amd(gpus_with_vfs: int = 8, of_each: int = 1) -> Host:
    return with_vfs(hgx(switches=0), gpus_with_vfs, of_each)


def owners(host: Host, plan: DomainPlan) -> set[str]:
    return {host.function(address).physical_function or address for address in chosen(plan)}


def test_only_gpus_without_virtual_functions_are_chosen_by_count() -> None:
    host = amd(6)
    whole = [address for address in gpus(host) if address.endswith(".0")]
    got = plans(host, vm("a", 1), vm("b", 1))
    assert sorted([*chosen(got["a"]), *chosen(got["b"])]) == whole[6:]
    with raises(DomainError, "3", "2", "8"):
        plans(host, vm("a", 3))


def test_virtual_functions_are_chosen_on_request_only() -> None:
    host = amd(8, of_each=2)
    got = plans(host, virtual("a", 8), virtual("b", 8))
    both = sorted([*chosen(got["a"]), *chosen(got["b"])])
    assert both == [address for address in gpus(host) if not address.endswith(".0")]
    again = plans(host, virtual("a", 8), hypervisor=hypervisor(domains={"a": observed(got["a"])}))
    assert chosen(again["a"]) == chosen(got["a"])


def test_whole_gpus_and_virtual_functions_of_others_are_planned_together() -> None:
    host = amd(4)
    got = plans(host, vm("a", 4), virtual("b", 3), virtual("c", 1))
    assert all(address.endswith(".0") for address in chosen(got["a"]))
    assert not any(address.endswith(".0") for name in "bc" for address in chosen(got[name]))
    of = [owner for plan in got.values() for owner in owners(host, plan)]
    assert len(of) == len(set(of)) == 8


def test_without_virtual_functions_the_error_names_the_driver_that_makes_them() -> None:
    with raises(DomainError, "1 virtual function", "0", "gim") as error:
        plans(amd(0), virtual("a", 1))
    assert error.value.domain == "a"


@pytest.mark.parametrize("others", [1, 2])
def test_a_gpu_with_virtual_functions_is_refused_by_address_too(others: int) -> None:
    host = amd(1, of_each=others)
    (owner,) = {item.physical_function for item in host.functions if item.physical_function}
    with pytest.raises(DomainError, match=f"{owner}.* virtual functions"):
        plans(host, vm("a", 0, gpus={"addresses": [owner]}))
    child = f"{owner[:-1]}1"
    with pytest.raises(DomainError, match=child):
        plans(host, vm("a", 0, gpus={"addresses": [owner]}), vm("b", 0, gpus={"addresses": [child]}))
    assert chosen(plans(host, vm("b", 0, gpus={"addresses": [child]}))["b"]) == [child]


def test_the_request_for_a_whole_host_has_no_virtual_function() -> None:
    host = amd(3)
    assert whole_host(host)["gpus"]["addresses"] == [item for item in gpus(host) if item.endswith(".0")][3:]
    with pytest.raises(DomainError, match="would disappear"):
        whole_host(amd(8))


def test_virtual_functions_of_nvidia_are_refused() -> None:
    host = amd(8)
    for function in host.functions:
        if function.kind == "gpu":
            function.vendor_id, function.device_id = 0x10DE, 0x26B9
    with pytest.raises(DomainError, match="vGPU"):
        plans(host, virtual("a", 1))


@pytest.mark.parametrize("count", [1, 2])
def test_iommu_groups_that_no_partition_fits_are_named(count: int) -> None:
    host = hgx()
    # The second GPU of each pair of switches with the first of the next: no partition of two is whole groups.
    for first, second in zip(gpus(host)[1::2], gpus(host)[2::2] + gpus(host)[:1]):
        host.function(second).iommu_group = host.function(first).iommu_group
    with pytest.raises(DomainError) as caught:
        plans(host, vm("a", count))
    assert "numa_nodes" not in str(caught.value)
    for address in gpus(host):
        assert address in caught.value.cause
