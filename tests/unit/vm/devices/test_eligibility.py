# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections import Counter
from itertools import chain, permutations

import pytest
from machines import GIB, bridge, endpoint, hypervisor, lab, observed, plan, recording, request

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Acs,
    Host,
    HugePages,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


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
    requested = small("a", 0, nics={"per_gpu": 1, "functions": "pf"})
    requested["gpus"] = {"addresses": ["0000:23:00.0"]}
    assert addresses(plan_domains(host, parse_specs([requested]))[0]) == ["0000:23:00.0", "0000:25:00.0"]


def test_gpus_of_one_switch_go_together_and_the_fuller_place_fills_first() -> None:
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
    assert "its IOMMU group 17 also holds 0000:14:00.0 (driver igb); give that to the same virtual machine" in str(
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
    requests = [
        request(name="a", gpus={}, nics={"addresses": ["0000:15:10.0"]}, memory_mib=1024, vcpus=1),
        request(name="b", gpus={}, nics={"addresses": ["0000:15:10.2"]}, memory_mib=1024, vcpus=1),
    ]
    for item in requests:
        item["interfaces"] = []
    with pytest.raises(DomainError, match=r"also holds 0000:15:10.2, which belongs to virtual machine b"):
        plan_domains(host, parse_specs(requests))


def test_a_physical_function_whose_vfs_are_given_away() -> None:
    with pytest.raises(DomainError, match=r"its virtual function 0000:15:10.0 belongs to virtual machine gpu-vm"):
        plan(nics={"addresses": ["0000:15:00.0", "0000:15:10.0"]})


def test_nics_near_no_gpu() -> None:
    with pytest.raises(DomainError, match=r"nics.per_gpu chooses NICs near its GPUs, and it has none"):
        plan(gpus={}, nics={"per_gpu": 1})


def test_too_few_virtual_functions() -> None:
    with pytest.raises(DomainError, match="asks for 6 virtual functions, this host has 4, free 4"):
        plan(nics={"per_gpu": 3})


def together(host: Host, *requests: dict[str, object], **more: object) -> dict[str, list[str]]:
    """The devices of each; the same in whatever order they are requested."""
    results = [
        {item.name: addresses(item) for item in plan_domains(host, parse_specs(list(order)), **more)}
        for order in permutations(requests)
    ]
    assert all(result == results[0] for result in results)
    return results[0]


def test_what_stays_free_is_whole() -> None:
    # Three single GPUs: two on one switch and one beside them, so that a whole node is free.
    got = together(big(), *(small(name, 1) for name in "abc"))
    assert sorted(chain.from_iterable(got.values())) == ["0000:13:00.0", "0000:14:00.0", "0000:23:00.0"]
    # Two of three: the third on the node that is broken already.
    got = together(big(), small("a", 3, vcpus=3), small("b", 3, vcpus=3))
    assert sorted(map(tuple, got.values())) == [
        ("0000:13:00.0", "0000:14:00.0", "0000:23:00.0"),
        ("0000:83:00.0", "0000:84:00.0", "0000:93:00.0"),
    ]


def test_all_gpus_of_a_host_in_any_sizes() -> None:
    for sizes in ((4, 2, 1, 1), (2, 2, 2, 2), (4, 4), (3, 1, 4), (2, 1, 2, 3), (5, 3), (1,) * 8):
        requests = [small(f"vm-{at}", size, vcpus=2 if size > 4 else 1) for at, size in enumerate(sizes)]
        got = plan_domains(big(), parse_specs(requests))
        assert sorted(address for item in got for address in addresses(item)) == [
            f"0000:{bus:02x}:00.0" for bus in (0x13, 0x14, 0x23, 0x24, 0x83, 0x84, 0x93, 0x94)
        ]
        # Whatever fits one node is on one node, and a pair that fits one switch on one switch.
        for item in got:
            assert len({function.numa_node for function in item.chosen.gpus}) == (2 if len(item.chosen.gpus) > 4 else 1)
            if len(item.chosen.gpus) == 2:
                assert len({address[:6] for address in addresses(item)}) == 1


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("supermicro-4029gp-ve", (4, 4)),
        ("supermicro-4029gp-ve", (1, 2, 4, 1)),
        ("llnl-corona", (4, 4)),
        ("llnl-corona", (1, 4, 2, 1)),
        ("llnl-lassen", (2, 1, 1)),
        ("llnl-tioga", (2, 2, 2, 2)),
        ("llnl-tioga", (1, 2, 4, 1)),
        ("aws-g4dn-metal", (4, 4)),
        ("aws-g4dn-metal", (1, 1, 2, 4)),
    ],
)
def test_recorded_machines(name: str, sizes: tuple[int, ...]) -> None:
    host = recording(name)
    requests = [small(f"vm-{at}", size, pin_cpus=False) for at, size in enumerate(sizes)]
    got = plan_domains(host, parse_specs(requests))
    given = [function.address for item in got for function in item.chosen.gpus]
    assert len(set(given)) == len(given) == sum(sizes)
    per_node = Counter(function.numa_node for function in host.functions if function.kind == "gpu")
    for item in got:
        nodes = Counter(function.numa_node for function in item.chosen.gpus)
        # As few nodes as hold so many.
        fewest = next(n for n in range(1, 5) if sum(sorted(per_node.values())[-n:]) >= len(item.chosen.gpus))
        assert len(nodes) == fewest


def test_all_together_are_too_many() -> None:
    with pytest.raises(DomainError) as caught:
        plan_domains(big(), parse_specs([small("a", 6, vcpus=8), small("b", 3)]))
    assert "virtual machines a (6 GPUs), b (3 GPUs): each has a place on this host" in str(caught.value)
    assert "8 GPUs are available; ask for fewer" in str(caught.value)
    with pytest.raises(DomainError) as caught:
        plan_domains(
            big(),
            parse_specs([small(name, 2, nics={"per_gpu": 2, "functions": "pf"}) for name in "ab"]),
        )
    assert "virtual machines a (4 physical NIC functions), b (4 physical NIC functions): each could have" in str(
        caught.value
    )


def test_a_nic_that_only_one_is_near_to_is_left_to_it() -> None:
    host = big()
    # a could have either of two switch-mates, b only the second.
    extra = endpoint("0000:16:00.0", "0000:12:02.0", "pci0000:10", "nic", numa_node=0)
    host.functions.append(extra)
    known = host.by_address()
    known["0000:25:00.0"].used_by_host = ["carries the default route"]
    nics = {"per_gpu": 1, "functions": "pf"}
    requests = [
        small("a", 0, nics=nics) | {"gpus": {"addresses": ["0000:13:00.0"]}},
        small("b", 0, nics={**nics, "per_gpu": 2}) | {"gpus": {"addresses": ["0000:14:00.0"]}},
        small("c", 0, nics=nics) | {"gpus": {"addresses": ["0000:83:00.0"]}},
    ]
    got = together(host, requests[0], requests[2])
    assert got == {"a": ["0000:13:00.0", "0000:15:00.0"], "c": ["0000:83:00.0", "0000:85:00.0"]}
    # Four NICs, two on each node: nobody's distance is the least without regard to the others.
    got = together(host, *requests)
    assert len(set(chain.from_iterable(got.values()))) == 3 + 4
    assert got["c"] == ["0000:83:00.0", "0000:85:00.0"]


def test_the_only_near_nic_goes_to_who_has_no_other() -> None:
    host = big()
    # In front of both switches of node 0 (PHB to either) one more NIC: a has it as near as b's only neighbour.
    port = "0000:10:05.0"
    host.functions.append(bridge(port, None, "pci0000:10", "root_port"))
    host.functions.append(endpoint("0000:19:00.0", port, "pci0000:10", "nic", numa_node=0))
    for gone in ("0000:15:00.0", "0000:85:00.0", "0000:95:00.0"):
        host.by_address()[gone].used_by_host = ["carries a route"]
    nics = {"per_gpu": 1, "functions": "pf"}
    a = small("a", 0, nics=nics) | {"gpus": {"addresses": ["0000:13:00.0"]}}  # 19 and 25 are both PHB to it
    b = small("b", 0, nics=nics) | {"gpus": {"addresses": ["0000:23:00.0"]}}  # 25 is on its switch
    assert together(host, a, b) == {"a": ["0000:13:00.0", "0000:19:00.0"], "b": ["0000:23:00.0", "0000:25:00.0"]}


def test_who_wants_a_nic_gets_the_gpu_beside_it() -> None:
    host = recording("llnl-corona")
    with_nic = small("z", 1, pin_cpus=False, nics={"per_gpu": 1, "functions": "pf"})
    got = together(host, with_nic, small("a", 1, pin_cpus=False), small("b", 4, pin_cpus=False))
    assert got["z"] == ["0000:c3:00.0", "0000:c4:00.0"]


def test_nics_that_a_domain_has_it_keeps() -> None:
    host = big()
    named = small("a", 0) | {"gpus": {"addresses": ["0000:13:00.0"]}, "nics": {"addresses": ["0000:85:00.0"]}}
    first = plan_domains(host, parse_specs([named]))[0]
    there = hypervisor(domains={"a": observed(first)})
    requests = [small(name, 1, nics={"per_gpu": 1, "functions": "pf"}) for name in "ab"]
    got = together(host, *requests, hypervisor=there)
    assert got["a"] == ["0000:13:00.0", "0000:85:00.0"]
    assert "0000:85:00.0" not in got["b"]


def pages(host: Host, *free_gib: int) -> Host:
    for node, total in zip(host.numa_nodes, free_gib):
        node.huge_pages = [HugePages(GIB, total, total)]
    return host


def test_a_switch_without_its_ports_is_a_place() -> None:
    """As in NCCL's files. The NIC on the GPU's own switch is nearer than that on the switch above."""
    name = "pci0000:10"
    top = bridge("0000:11:00.0", None, name, "switch_upstream")
    functions = [top, endpoint("0000:12:00.0", top.address, name, "nic")]
    for bus in (0x20, 0x30):
        inner = bridge(f"0000:{bus:02x}:00.0", top.address, name, "switch_upstream")
        functions += [
            inner,
            endpoint(f"0000:{bus + 1:02x}:00.0", inner.address, name),
            endpoint(f"0000:{bus + 2:02x}:00.0", inner.address, name, "nic"),
        ]
    host = Host([NumaNode(0, list(range(8)), [], 1 << 40)], [RootComplex(name, 0, 0x10, 0)], functions)
    got = together(host, *(small(vm, 1, vcpus=1, nics={"per_gpu": 1, "functions": "pf"}) for vm in "ab"))
    assert got == {"a": ["0000:21:00.0", "0000:22:00.0"], "b": ["0000:31:00.0", "0000:32:00.0"]}


def test_two_that_do_not_fit_a_node_together_are_on_two() -> None:
    a, b = (small(name, 1) | {"memory_mib": 20 * 1024} for name in "ab")
    nodes = {
        item.name: item.chosen.gpus[0].numa_node for item in plan_domains(pages(big(), 32, 32), parse_specs([a, b]))
    }
    assert sorted(nodes.values()) == [0, 1]
    # Where both fit, both are on one, so that the other stays whole.
    got = plan_domains(pages(big(), 64, 64), parse_specs([a, b]))
    assert [item.chosen.gpus[0].numa_node for item in got] == [0, 0]
    # A node without pages is none for them.
    got = plan_domains(pages(big(), 0, 64), parse_specs([a, b]))
    assert [item.chosen.gpus[0].numa_node for item in got] == [1, 1]
    # What another domain has is not there for them, and what an existing one has is counted once.
    other = plan_domains(pages(big(), 64, 64), parse_specs([small("0", 1) | {"memory_mib": 50 * 1024}]))[0]
    there = hypervisor(domains={"0": observed(other)})
    got = plan_domains(pages(big(), 64, 64), parse_specs([a, b]), there)
    assert [item.chosen.gpus[0].numa_node for item in got] == [1, 1]
    both = plan_domains(pages(big(), 64, 64), parse_specs([small("0", 1) | {"memory_mib": 50 * 1024}, a]), there)
    assert [item.chosen.gpus[0].numa_node for item in both] == [0, 1]


def test_two_that_take_what_cpus_are_left_are_on_two_nodes() -> None:
    requests = [small(name, 1) | {"vcpus": None} for name in "ab"]
    got = plan_domains(big(), parse_specs(requests))
    assert [item.chosen.gpus[0].numa_node for item in got] == [0, 1]
    # Who says how many is served before who takes the rest, in either order.
    mixed = [small("a", 4) | {"vcpus": None}, small("b", 4) | {"vcpus": 4}, small("c", 0) | {"gpus": {}, "vcpus": 2}]
    assert together(big(), *mixed)


def one_group(host: Host, *members: str, acs: Acs | None = None) -> Host:
    """``members`` in one IOMMU group, as behind switch ports without ACS."""
    known = host.by_address()
    for address in members:
        known[address].iommu_group = 99
        parent = known[address].parent
        assert parent is not None
        known[parent].acs = acs
    return host


def test_a_group_goes_as_a_whole() -> None:
    host = one_group(big(), "0000:13:00.0", "0000:14:00.0")
    assert together(host, small("a", 2))["a"] == ["0000:13:00.0", "0000:14:00.0"]
    got = together(host, small("a", 1), small("b", 1), small("c", 2))
    assert not {"0000:13:00.0", "0000:14:00.0"} & {*got["a"], *got["b"]}
    # Of four single ones and a pair in one group, and eight GPUs: the pair is the group.
    got = together(host, *(small(name, 1) for name in "abcd"), small("z", 2))
    assert not {"0000:13:00.0", "0000:14:00.0"} & set(chain.from_iterable(got[name] for name in "abcd"))
    with pytest.raises(DomainError, match="each has a place on this host, and all of them together have none"):
        plan_domains(host, parse_specs([small(f"vm-{at}", 1, vcpus=1) for at in range(7)]))


def test_two_virtual_machines_behind_ports_without_acs_are_refused() -> None:
    host = big()
    for switch in (("0000:13:00.0", "0000:14:00.0"), ("0000:23:00.0", "0000:24:00.0")):
        one_group(host, *switch)
        for address in switch:
            host.by_address()[address].iommu_group = int(switch[0][5:7], 16)
    host.functions = [item for item in host.functions if item.numa_node != 1]
    with pytest.raises(DomainError) as caught:
        plan_domains(host, parse_specs([small("a", 1), small("b", 1)]))
    assert "virtual machine a: asks for 1 GPU, and the 4 that are free come by whole IOMMU groups" in str(caught.value)
    assert (
        "in group 19 are 0000:13:00.0, 0000:14:00.0; port 0000:10:00.0, 0000:12:00.0, 0000:12:01.0 has no ACS; give "
        "all of them to one virtual machine" in str(caught.value)
    )
    assert "in group 35 are 0000:23:00.0, 0000:24:00.0" in str(caught.value)
    # By address: one is enough to have the group.
    named = [small(name, 0) | {"gpus": {"addresses": [f"0000:{bus}:00.0"]}} for name, bus in (("a", 13), ("b", 14))]
    with pytest.raises(DomainError, match=r"0000:14:00.0, which belongs to virtual machine b, and two .* never share"):
        plan_domains(host, parse_specs(named))
    # ACS that is there and off is said so.
    known = host.by_address()
    for port in ("0000:12:00.0", "0000:12:01.0"):
        known[port].acs = Acs(0x5F, 0)
    with pytest.raises(DomainError, match=r"ACS is off at port 0000:12:00.0, 0000:12:01.0; turn it on .role gpu_host"):
        plan_domains(host, parse_specs(named))


def test_no_nic_of_a_group_in_which_another_has_a_device() -> None:
    host = one_group(big(), "0000:13:00.0", "0000:15:00.0")
    nics = {"per_gpu": 1, "functions": "pf"}
    a = small("a", 0) | {"gpus": {"addresses": ["0000:13:00.0"]}}
    b = small("b", 0, nics=nics) | {"gpus": {"addresses": ["0000:14:00.0"]}}
    assert together(host, a, b)["b"] == ["0000:14:00.0", "0000:25:00.0"]
    # Two NICs in one group: who gets one has the group.
    host = one_group(big(), "0000:15:00.0", "0000:25:00.0")
    for gone in ("0000:85:00.0",):
        host.by_address()[gone].used_by_host = ["carries a route"]
    c = small("c", 0, nics=nics) | {"gpus": {"addresses": ["0000:23:00.0"]}}
    got = together(host, b, c)
    assert {got["b"][1], got["c"][1]} in ({"0000:15:00.0", "0000:95:00.0"}, {"0000:25:00.0", "0000:95:00.0"})


def test_a_gpu_is_not_chosen_where_that_would_take_the_last_nics() -> None:
    host = big()
    for gone in ("0000:85:00.0", "0000:95:00.0", "0000:25:00.0"):
        host.by_address()[gone].used_by_host = ["carries a route"]
    # The only NIC is in the group of the GPU that a alone would take.
    one_group(host, "0000:13:00.0", "0000:15:00.0")
    b = small("b", 0, nics={"per_gpu": 1, "functions": "pf"}) | {"gpus": {"addresses": ["0000:23:00.0"]}}
    got = together(host, small("a", 1), b)
    assert got["b"] == ["0000:15:00.0", "0000:23:00.0"]
    assert got["a"] != ["0000:13:00.0"]


def test_who_has_a_device_of_a_group_may_have_the_others() -> None:
    nics = {"per_gpu": 1, "functions": "pf"}
    host = one_group(big(), "0000:13:00.0", "0000:15:00.0")
    gpu = small("a", 0, nics=nics) | {"gpus": {"addresses": ["0000:13:00.0"]}}
    assert together(host, gpu)["a"] == ["0000:13:00.0", "0000:15:00.0"]
    nic = small("a", 1) | {"nics": {"addresses": ["0000:15:00.0"]}}
    assert together(host, nic, small("b", 7, vcpus=2))["a"] == ["0000:13:00.0", "0000:15:00.0"]


@pytest.mark.parametrize("gpu", ["0000:13:00.0", "0000:14:00.0"])
def test_the_gpu_whose_group_has_the_only_nic_goes_to_who_wants_that(gpu: str) -> None:
    host = one_group(big(), gpu, "0000:15:00.0")
    for gone in ("0000:25:00.0", "0000:85:00.0", "0000:95:00.0"):
        host.by_address()[gone].used_by_host = ["carries a route"]
    got = together(host, small("a", 1, nics={"per_gpu": 1, "functions": "pf"}), small("b", 7, vcpus=2))
    assert got["a"] == [gpu, "0000:15:00.0"]


def test_what_one_gives_up_another_may_have_at_once() -> None:
    host = big()
    first = plan_domains(host, parse_specs([small("a", 2)]))[0]
    there = hypervisor(domains={"a": observed(first)})
    got = together(host, small("a", 1), small("b", 7, vcpus=2), hypervisor=there)
    assert set(got["a"]) < set(addresses(first))
    assert len(got["b"]) == 7
