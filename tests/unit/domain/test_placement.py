# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from itertools import permutations

import pytest
from machines import bridge, endpoint, hypervisor, lab, observed, plan, wish

from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.plan import DomainPlan, plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.spec import parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import Host, NumaNode, RootComplex


def addresses(of: DomainPlan) -> list[str]:
    return [function.address for function in of.chosen.all()]


def big() -> Host:
    """Two nodes, a root complex each, two switches each, two GPUs and a NIC a switch: 8 GPUs, 4 NICs."""
    functions = []
    for node, base in enumerate((0x10, 0x80)):
        name = f"pci0000:{base:02x}"
        for switch in (0, 1):
            port = f"0000:{base:02x}:0{switch}.0"
            first = base + 1 + switch * 0x10
            functions.append(bridge(port, None, name, "root_port"))
            functions.append(bridge(f"0000:{first:02x}:00.0", port, name, "switch_upstream"))
            for leaf in range(3):
                down = f"0000:{first + 1:02x}:0{leaf}.0"
                functions.append(bridge(down, f"0000:{first:02x}:00.0", name, "switch_downstream"))
                kind = "nic" if leaf == 2 else "gpu"
                functions.append(endpoint(f"0000:{first + 2 + leaf:02x}:00.0", down, name, kind, numa_node=node))
    nodes = [
        NumaNode(node, list(range(node * 16, node * 16 + 16)), [], 64 << 30, distances={"0": 10, "1": 10})
        for node in (0, 1)
    ]
    for node in nodes:
        node.distances = {str(other): 10 if other == node.id else 21 for other in (0, 1)}
    return Host(nodes, [RootComplex("pci0000:10", 0, 0x10, 0), RootComplex("pci0000:80", 0, 0x80, 1)], functions)


def small(name: str, gpus: int, **more: object) -> dict[str, object]:
    return {"name": name, "memory_mib": 4096, "vcpus": 4, "gpus": {"count": gpus}, **more}


def test_counts_take_the_nearest() -> None:
    chosen = addresses(plan())
    assert chosen == [
        f"0000:{address}" for address in ("13:00.0", "14:00.0", "15:10.0", "83:00.0", "84:00.0", "85:10.0")
    ]


def test_the_nic_beside_the_gpu_comes_before_any_other() -> None:
    host = big()
    wished = small("a", 0, nics={"per_gpu": 1, "functions": "pf"})
    wished["gpus"] = {"addresses": ["0000:23:00.0"]}
    assert addresses(plan_domains(host, parse_specs([wished]))[0]) == ["0000:23:00.0", "0000:25:00.0"]


def test_gpus_of_one_switch_go_together_and_the_fuller_place_fills_first() -> None:
    wishes = [small("a", 1), small("b", 2), small("c", 1), small("d", 4)]
    wanted = {
        "a": ["0000:93:00.0"],
        "b": ["0000:83:00.0", "0000:84:00.0"],
        "c": ["0000:94:00.0"],
        "d": ["0000:13:00.0", "0000:14:00.0", "0000:23:00.0", "0000:24:00.0"],
    }
    for order in permutations(wishes):
        plans = plan_domains(big(), parse_specs(list(order)))
        assert [plan.name for plan in plans] == [item["name"] for item in order]
        assert {plan.name: addresses(plan) for plan in plans} == wanted


def test_more_than_a_node_has_takes_whole_places() -> None:
    got = addresses(plan_domains(big(), parse_specs([small("a", 6, vcpus=8)]))[0])
    assert got[:4] == ["0000:13:00.0", "0000:14:00.0", "0000:23:00.0", "0000:24:00.0"]
    assert got[4:] == ["0000:83:00.0", "0000:84:00.0"]


def test_what_a_domain_has_it_keeps() -> None:
    host = big()
    named = small("b", 0) | {"gpus": {"addresses": ["0000:23:00.0", "0000:24:00.0"]}}
    first, second = plan_domains(host, parse_specs([small("a", 1), named]))
    assert addresses(first) == ["0000:13:00.0"]
    # Fresh it would be on the first switch.
    there = hypervisor(domains={"b": observed(second)})
    assert addresses(plan_domains(host, parse_specs([small("b", 2)]))[0]) == ["0000:13:00.0", "0000:14:00.0"]
    assert addresses(plan_domains(host, parse_specs([small("b", 2)]), there)[0]) == addresses(second)
    # New ones do not move it, whatever they would gain, and its CPUs stay, too.
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


def test_one_that_grows_does_not_move_the_others() -> None:
    host = big()
    first, second = plan_domains(host, parse_specs([small("a", 1), small("b", 2)]))
    there = hypervisor(domains={"a": observed(first), "b": observed(second)})
    grown, kept = plan_domains(host, parse_specs([small("a", 3) | {"vcpus": 8}, small("b", 2)]), there)
    assert addresses(kept) == addresses(second)
    assert [cell.cpus for cell in kept.processors.cells] == [cell.cpus for cell in second.processors.cells]
    assert addresses(first)[0] in addresses(grown)
    # What a device list lets go of, another one may have in the same call.
    named = small("b", 0) | {"gpus": {"addresses": ["0000:83:00.0"]}}
    taking = small("c", 0) | {"gpus": {"addresses": [addresses(second)[0]]}}
    assert addresses(plan_domains(host, parse_specs([named, taking]), there)[1]) == [addresses(second)[0]]


def test_another_domains_devices_and_cpus_are_left_to_it() -> None:
    other = plan(name="other", gpus={"addresses": ["0000:13:00.0"]}, nics={}, memory_mib=1024, vcpus=1)
    there = hypervisor(domains={"other": observed(other)})
    with pytest.raises(DomainError) as caught:
        plan(hypervisor=there)
    assert "asks for 2 GPUs, this host has 2, free 1" in str(caught.value)
    assert "0000:13:00.0: virtual machine other has it" in str(caught.value)
    with pytest.raises(DomainError, match=r"0000:13:00.0 cannot be given to it: virtual machine other has it"):
        plan(hypervisor=there, gpus={"addresses": ["0000:13:00.0"]})
    beside = plan(hypervisor=there, gpus={"count": 1}, nics={"addresses": ["0000:15:10.0"]}, vcpus=2)
    assert addresses(beside) == ["0000:15:10.0", "0000:83:00.0"]
    assert beside.processors.cells[0].cpus == [2]


def test_a_server_console_is_no_gpu_to_choose() -> None:
    host = lab()
    console = next(item for item in host.functions if item.address == "0000:00:01.0")
    console.kind = "gpu"
    assert "0000:00:01.0" not in addresses(plan(host))


def test_unknown_address() -> None:
    with pytest.raises(DomainError, match=r"no PCI function 0000:77:00.0 on this host"):
        plan(gpus={"addresses": ["77:00.0"]})


def test_more_gpus_than_there_are() -> None:
    with pytest.raises(DomainError, match="asks for 3 GPUs, this host has 2, free 2; ask for fewer"):
        plan(gpus={"count": 3})


def test_a_device_that_the_host_uses() -> None:
    with pytest.raises(
        DomainError, match=r"0000:00:02.0 cannot be given to it: the host itself uses it .holds the mounted"
    ):
        plan(nvme={"addresses": ["00:02.0"]})


def test_a_bridge_is_no_device() -> None:
    with pytest.raises(DomainError, match=r"0000:12:00.0 cannot be given to it: it is a bridge"):
        plan(nvme={"addresses": ["12:00.0"]})


def test_a_group_with_a_foreign_member() -> None:
    host = lab()
    known = host.by_address()
    known["0000:15:10.0"].iommu_group = known["0000:14:00.0"].iommu_group
    with pytest.raises(DomainError) as caught:
        plan(host, nics={"addresses": ["0000:15:10.0"]})
    assert "its IOMMU group 17 also holds 0000:14:00.0 (driver igb): give that to the same virtual machine" in str(
        caught.value
    )
    # Counts go round it; with both in the same virtual machine, or the other one free, there is nothing wrong.
    assert "0000:15:10.2" in addresses(plan(host, nics={"per_gpu": 1}))
    assert "0000:15:10.0" in addresses(plan(host, nics={"addresses": ["0000:15:10.0", "0000:14:00.0"]}))
    known["0000:14:00.0"].driver = "vfio-pci"
    assert "0000:15:10.0" in addresses(plan(host, nics={"addresses": ["0000:15:10.0"]}))


def test_two_tenants_never_share_a_group() -> None:
    host = lab()
    known = host.by_address()
    known["0000:15:10.2"].iommu_group = known["0000:15:10.0"].iommu_group
    wishes = [
        wish(name="a", gpus={}, nics={"addresses": ["0000:15:10.0"]}, memory_mib=1024, vcpus=1),
        wish(name="b", gpus={}, nics={"addresses": ["0000:15:10.2"]}, memory_mib=1024, vcpus=1),
    ]
    for item in wishes:
        item["interfaces"] = []
    with pytest.raises(DomainError, match=r"also holds 0000:15:10.2, which belongs to virtual machine b"):
        plan_domains(host, parse_specs(wishes))


def test_a_physical_function_whose_vfs_are_given_away() -> None:
    with pytest.raises(DomainError, match=r"its virtual function 0000:15:10.0 belongs to virtual machine gpu-vm"):
        plan(nics={"addresses": ["0000:15:00.0", "0000:15:10.0"]})


def test_nics_near_no_gpu() -> None:
    with pytest.raises(DomainError, match=r"nics.per_gpu chooses NICs near its GPUs, and it has none"):
        plan(gpus={}, nics={"per_gpu": 1})


def test_too_few_virtual_functions() -> None:
    with pytest.raises(DomainError, match="asks for 6 virtual functions, this host has 4, free 4"):
        plan(nics={"per_gpu": 3})
