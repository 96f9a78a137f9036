# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""IOMMU groups: two virtual machines never share one."""

from __future__ import annotations

from itertools import chain

import pytest
from eight_gpus import addresses, big, small, together
from machines import hypervisor, observed
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Acs,
    Host,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def one_group(host: Host, *members: str, acs: Acs | None = None) -> Host:
    """Put ``members`` into one IOMMU group, as behind switch ports without ACS."""
    known = host.by_address()
    for address in members:
        known[address].iommu_group = 99
        parent = known[address].parent
        assert parent is not None
        known[parent].acs = acs
    return host


def test_all_gpus_of_a_group_are_assigned_together() -> None:
    host = one_group(big(), "0000:13:00.0", "0000:14:00.0")
    assert together(host, small("a", 2))["a"] == ["0000:13:00.0", "0000:14:00.0"]
    got = together(host, small("a", 1), small("b", 1), small("c", 2))
    assert not {"0000:13:00.0", "0000:14:00.0"} & {*got["a"], *got["b"]}
    # There are eight GPUs, four single requests, and a request for a pair: the pair gets the group.
    got = together(host, *(small(name, 1) for name in "abcd"), small("z", 2))
    assert not {"0000:13:00.0", "0000:14:00.0"} & set(chain.from_iterable(got[name] for name in "abcd"))
    with raises(DomainError, "vm-6", "8 GPUs", "each", "together"):
        plan_domains(host, parse_specs([small(f"vm-{at}", 1, vcpus=1) for at in range(7)]))


def test_two_virtual_machines_behind_ports_without_acs_are_refused() -> None:
    host = big()
    for switch in (("0000:13:00.0", "0000:14:00.0"), ("0000:23:00.0", "0000:24:00.0")):
        one_group(host, *switch)
        for address in switch:
            host.by_address()[address].iommu_group = int(switch[0][5:7], 16)
    host.functions = [item for item in host.functions if item.numa_node != 1]
    with raises(
        DomainError,
        "virtual machine a",
        "1",
        "4",
        "19",
        "0000:13:00.0",
        "0000:14:00.0",
        "0000:10:00.0",
        "0000:12:00.0",
        "0000:12:01.0",
        "group 35 contains 0000:23:00.0, 0000:24:00.0",
    ):
        plan_domains(host, parse_specs([small("a", 1), small("b", 1)]))
    # With addresses, one member is enough to own the group.
    named = [small(name, 0) | {"gpus": {"addresses": [f"0000:{bus}:00.0"]}} for name, bus in (("a", 13), ("b", 14))]
    with raises(DomainError, "0000:14:00.0", "virtual machine b"):
        plan_domains(host, parse_specs(named))
    # ACS that exists but is off is reported.
    known = host.by_address()
    for port in ("0000:12:00.0", "0000:12:01.0"):
        known[port].acs = Acs(0x5F, 0)
    with raises(DomainError, "ACS", "0000:12:00.0", "0000:12:01.0", "gpu_host"):
        plan_domains(host, parse_specs(named))


def test_a_nic_is_not_chosen_from_a_group_of_another_machine() -> None:
    host = one_group(big(), "0000:13:00.0", "0000:15:00.0")
    nics = {"per_gpu": 1, "functions": "pf"}
    a = small("a", 0) | {"gpus": {"addresses": ["0000:13:00.0"]}}
    b = small("b", 0, nics=nics) | {"gpus": {"addresses": ["0000:14:00.0"]}}
    assert together(host, a, b)["b"] == ["0000:14:00.0", "0000:25:00.0"]
    # Two NICs are in one group: the machine that gets one owns the group.
    host = one_group(big(), "0000:15:00.0", "0000:25:00.0")
    for gone in ("0000:85:00.0",):
        host.by_address()[gone].used_by_host = ["carries a route"]
    c = small("c", 0, nics=nics) | {"gpus": {"addresses": ["0000:23:00.0"]}}
    got = together(host, b, c)
    assert {got["b"][1], got["c"][1]} in ({"0000:15:00.0", "0000:95:00.0"}, {"0000:25:00.0", "0000:95:00.0"})


def test_a_gpu_is_not_chosen_if_its_group_contains_the_last_free_nic() -> None:
    host = big()
    for gone in ("0000:85:00.0", "0000:95:00.0", "0000:25:00.0"):
        host.by_address()[gone].used_by_host = ["carries a route"]
    # The only NIC is in the group of the GPU that a would get if it were alone.
    one_group(host, "0000:13:00.0", "0000:15:00.0")
    b = small("b", 0, nics={"per_gpu": 1, "functions": "pf"}) | {"gpus": {"addresses": ["0000:23:00.0"]}}
    got = together(host, small("a", 1), b)
    assert got["b"] == ["0000:15:00.0", "0000:23:00.0"]
    assert got["a"] != ["0000:13:00.0"]


def test_a_machine_may_have_several_devices_of_one_group() -> None:
    nics = {"per_gpu": 1, "functions": "pf"}
    host = one_group(big(), "0000:13:00.0", "0000:15:00.0")
    gpu = small("a", 0, nics=nics) | {"gpus": {"addresses": ["0000:13:00.0"]}}
    assert together(host, gpu)["a"] == ["0000:13:00.0", "0000:15:00.0"]
    nic = small("a", 1) | {"nics": {"addresses": ["0000:15:00.0"]}}
    assert together(host, nic, small("b", 7, vcpus=2))["a"] == ["0000:13:00.0", "0000:15:00.0"]


@pytest.mark.parametrize("gpu", ["0000:13:00.0", "0000:14:00.0"])
def test_the_gpu_in_the_group_of_the_only_nic_is_assigned_with_that_nic(gpu: str) -> None:
    host = one_group(big(), gpu, "0000:15:00.0")
    for gone in ("0000:25:00.0", "0000:85:00.0", "0000:95:00.0"):
        host.by_address()[gone].used_by_host = ["carries a route"]
    got = together(host, small("a", 1, nics={"per_gpu": 1, "functions": "pf"}), small("b", 7, vcpus=2))
    assert got["a"] == [gpu, "0000:15:00.0"]


def test_a_device_that_one_machine_releases_is_available_in_the_same_call() -> None:
    host = big()
    first = plan_domains(host, parse_specs([small("a", 2)]))[0]
    there = hypervisor(domains={"a": observed(first)})
    got = together(host, small("a", 1), small("b", 7, vcpus=2), hypervisor=there)
    assert set(got["a"]) < set(addresses(first))
    assert len(got["b"]) == 7
