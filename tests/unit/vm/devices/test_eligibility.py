# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The devices of one virtual machine: the nearest ones first, and refusals."""

from __future__ import annotations

from itertools import permutations

from eight_gpus import addresses, big, small
from machines import hypervisor, lab, observed, plan, request
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def test_counts_select_the_nearest_devices() -> None:
    chosen = addresses(plan())
    assert chosen == [
        f"0000:{address}" for address in ("13:00.0", "14:00.0", "15:10.0", "83:00.0", "84:00.0", "85:10.0")
    ]


def test_the_nic_beside_the_gpu_is_preferred() -> None:
    host = big()
    requested = small("a", 0, nics={"per_gpu": 1, "functions": "pf"})
    requested["gpus"] = {"addresses": ["0000:23:00.0"]}
    assert addresses(plan_domains(host, parse_specs([requested]))[0]) == ["0000:23:00.0", "0000:25:00.0"]


def test_gpus_are_packed_by_switch_in_any_order_of_the_requests() -> None:
    requests = [small("a", 1), small("b", 2), small("c", 1), small("d", 4)]
    wanted = {
        "a": ["0000:93:00.0"],
        "b": ["0000:83:00.0", "0000:84:00.0"],
        "c": ["0000:94:00.0"],
        "d": ["0000:13:00.0", "0000:14:00.0", "0000:23:00.0", "0000:24:00.0"],
    }
    for order in permutations(requests):
        plans = plan_domains(big(), parse_specs(list(order)))
        assert [plan.name for plan in plans] == [item["name"] for item in order]
        assert {plan.name: addresses(plan) for plan in plans} == wanted


def test_a_request_larger_than_a_node_fills_a_node_and_then_a_switch() -> None:
    got = addresses(plan_domains(big(), parse_specs([small("a", 6, vcpus=8)]))[0])
    assert got[:4] == ["0000:13:00.0", "0000:14:00.0", "0000:23:00.0", "0000:24:00.0"]
    assert got[4:] == ["0000:83:00.0", "0000:84:00.0"]


def test_a_device_that_was_hot_plugged_into_a_listed_domain_is_not_chosen_for_another() -> None:
    host = big()
    first, second = plan_domains(host, parse_specs([small("a", 1), small("b", 1)]))
    taken = addresses(second)[0]
    domain = observed(first)
    domain.live_xml = render(plan_domains(host, parse_specs([small("a", 0) | {"gpus": {"addresses": [taken]}}]))[0])
    there = hypervisor(domains={"a": domain})
    again, other = plan_domains(host, parse_specs([small("a", 1), small("b", 1)]), there)
    assert addresses(again) == addresses(first)
    assert addresses(other) not in ([], [taken], addresses(first))
    # If no other is free, it is planned for a restart of its holder in the same run.
    rest = plan_domains(host, parse_specs([small("a", 1), small("b", 7)]), there)[1]
    assert taken in addresses(rest)


def test_an_existing_domain_keeps_its_devices_and_cpus() -> None:
    host = big()
    named = small("b", 0) | {"gpus": {"addresses": ["0000:23:00.0", "0000:24:00.0"]}}
    first, second = plan_domains(host, parse_specs([small("a", 1), named]))
    assert addresses(first) == ["0000:13:00.0"]
    # A new machine would be on the first switch.
    there = hypervisor(domains={"b": observed(second)})
    assert addresses(plan_domains(host, parse_specs([small("b", 2)]))[0]) == ["0000:13:00.0", "0000:14:00.0"]
    assert addresses(plan_domains(host, parse_specs([small("b", 2)]), there)[0]) == addresses(second)
    # New machines do not move it, whatever they would gain, and its CPUs stay as well.
    newer, kept = plan_domains(host, parse_specs([small("0", 4), small("b", 2)]), there)
    assert addresses(kept) == addresses(second)
    assert addresses(newer) == ["0000:83:00.0", "0000:84:00.0", "0000:93:00.0", "0000:94:00.0"]
    beside, kept = plan_domains(host, parse_specs([small("0", 1) | {"vcpus": 8}, small("b", 2)]), there)
    assert addresses(beside) == ["0000:13:00.0"]
    assert kept.processors.cells[0].cpus == second.processors.cells[0].cpus
    assert first.processors.cells[0].cpus != second.processors.cells[0].cpus
    *big_ones, kept = plan_domains(host, parse_specs([small("0", 4), small("1", 2), small("b", 2)]), there)
    assert [addresses(item) for item in [*big_ones, kept]] == [
        ["0000:83:00.0", "0000:84:00.0", "0000:93:00.0", "0000:94:00.0"],
        ["0000:13:00.0", "0000:14:00.0"],
        ["0000:23:00.0", "0000:24:00.0"],
    ]


def test_a_domain_that_gets_more_gpus_does_not_move_the_others() -> None:
    host = big()
    first, second = plan_domains(host, parse_specs([small("a", 1), small("b", 2)]))
    there = hypervisor(domains={"a": observed(first), "b": observed(second)})
    grown, kept = plan_domains(host, parse_specs([small("a", 3) | {"vcpus": 8}, small("b", 2)]), there)
    assert addresses(kept) == addresses(second)
    assert [cell.cpus for cell in kept.processors.cells] == [cell.cpus for cell in second.processors.cells]
    assert addresses(first)[0] in addresses(grown)
    # Another machine may get, in the same call, a device that is removed from a list.
    named = small("b", 0) | {"gpus": {"addresses": ["0000:83:00.0"]}}
    taking = small("c", 0) | {"gpus": {"addresses": [addresses(second)[0]]}}
    assert addresses(plan_domains(host, parse_specs([named, taking]), there)[1]) == [addresses(second)[0]]


def test_devices_and_cpus_of_another_domain_are_not_assigned() -> None:
    other = plan(name="other", gpus={"addresses": ["0000:13:00.0"]}, nics={}, memory_mib=1024, vcpus=1)
    there = hypervisor(domains={"other": observed(other)})
    with raises(DomainError, "2 GPUs", "only 1", "0000:13:00.0", "virtual machine other"):
        plan(hypervisor=there)
    with raises(DomainError, "0000:13:00.0", "virtual machine other"):
        plan(hypervisor=there, gpus={"addresses": ["0000:13:00.0"]})
    beside = plan(hypervisor=there, gpus={"count": 1}, nics={"addresses": ["0000:15:10.0"]}, vcpus=2)
    assert addresses(beside) == ["0000:15:10.0", "0000:83:00.0"]
    assert beside.processors.cells[0].cpus == [2]


def test_an_unknown_address_is_refused() -> None:
    with raises(DomainError, "function 0000:77:00.0"):
        plan(gpus={"addresses": ["77:00.0"]})


def test_more_gpus_than_the_host_has_are_refused() -> None:
    with raises(DomainError, "3", "2", "free"):
        plan(gpus={"count": 3})


def test_a_device_that_the_host_uses_is_refused() -> None:
    with raises(DomainError, "0000:00:02.0", "mounted file system"):
        plan(nvme={"addresses": ["00:02.0"]})


def test_a_bridge_is_refused_as_a_device() -> None:
    with raises(DomainError, "0000:12:00.0", "bridge"):
        plan(nvme={"addresses": ["12:00.0"]})


def test_a_device_is_refused_if_the_host_uses_another_of_its_group() -> None:
    host = lab()
    known = host.by_address()
    known["0000:15:10.0"].iommu_group = known["0000:14:00.0"].iommu_group
    with raises(DomainError, "17", "0000:14:00.0"):
        plan(host, nics={"addresses": ["0000:15:10.0"]})
    # Counts avoid it; there is no problem if both are in the same virtual machine, or if the other one is free.
    assert "0000:15:10.2" in addresses(plan(host, nics={"per_gpu": 1}))
    assert "0000:15:10.0" in addresses(plan(host, nics={"addresses": ["0000:15:10.0", "0000:14:00.0"]}))
    known["0000:14:00.0"].driver = "vfio-pci"
    assert "0000:15:10.0" in addresses(plan(host, nics={"addresses": ["0000:15:10.0"]}))


def test_two_virtual_machines_never_share_a_group() -> None:
    host = lab()
    known = host.by_address()
    known["0000:15:10.2"].iommu_group = known["0000:15:10.0"].iommu_group
    requests = [
        request(name="a", gpus={}, nics={"addresses": ["0000:15:10.0"]}, memory_mib=1024, vcpus=1),
        request(name="b", gpus={}, nics={"addresses": ["0000:15:10.2"]}, memory_mib=1024, vcpus=1),
    ]
    for item in requests:
        item["interfaces"] = []
    with raises(DomainError, "0000:15:10.2", "virtual machine b"):
        plan_domains(host, parse_specs(requests))


def test_a_physical_function_is_refused_if_one_of_its_vfs_is_assigned() -> None:
    with raises(DomainError, "0000:15:10.0", "virtual machine gpu-vm"):
        plan(nics={"addresses": ["0000:15:00.0", "0000:15:10.0"]})


def test_nics_per_gpu_without_a_gpu_are_refused() -> None:
    with raises(DomainError, "nics.per_gpu", "GPUs", "nics.addresses"):
        plan(gpus={}, nics={"per_gpu": 1})


def test_more_virtual_functions_than_are_free_are_refused() -> None:
    with raises(DomainError, "6", "4", "virtual functions"):
        plan(nics={"per_gpu": 3})
