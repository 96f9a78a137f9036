# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Devices for several virtual machines of a host, allocated together."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from eight_gpus import addresses, big, small, together
from machines import GIB, bridge, endpoint, hypervisor, observed, recording
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Host,
    HugePages,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def test_gpus_are_packed_so_that_complete_nodes_remain_free() -> None:
    # Three single GPUs: two are on one switch and one is on the next, so that a whole node remains free.
    got = together(big(), *(small(name, 1) for name in "abc"))
    assert sorted(chain.from_iterable(got.values())) == ["0000:13:00.0", "0000:14:00.0", "0000:23:00.0"]
    # Two requests for three GPUs: the third GPU is on the node that is already partly used.
    got = together(big(), small("a", 3, vcpus=3), small("b", 3, vcpus=3))
    assert sorted(map(tuple, got.values())) == [
        ("0000:13:00.0", "0000:14:00.0", "0000:23:00.0"),
        ("0000:83:00.0", "0000:84:00.0", "0000:93:00.0"),
    ]


def test_all_gpus_of_a_host_are_allocated_for_any_mix_of_sizes() -> None:
    for sizes in ((4, 2, 1, 1), (2, 2, 2, 2), (4, 4), (3, 1, 4), (2, 1, 2, 3), (5, 3), (1,) * 8):
        requests = [small(f"vm-{at}", size, vcpus=2 if size > 4 else 1) for at, size in enumerate(sizes)]
        got = plan_domains(big(), parse_specs(requests))
        assert sorted(address for item in got for address in addresses(item)) == [
            f"0000:{bus:02x}:00.0" for bus in (0x13, 0x14, 0x23, 0x24, 0x83, 0x84, 0x93, 0x94)
        ]
        # Requests that fit one node are on one node, and a pair that fits one switch is on one switch.
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
def test_recorded_hosts_allocate_gpus_on_the_fewest_nodes(name: str, sizes: tuple[int, ...]) -> None:
    host = recording(name)
    requests = [small(f"vm-{at}", size, pin_cpus=False) for at, size in enumerate(sizes)]
    got = plan_domains(host, parse_specs(requests))
    given = [function.address for item in got for function in item.chosen.gpus]
    assert len(set(given)) == len(given) == sum(sizes)
    per_node = Counter(function.numa_node for function in host.functions if function.kind == "gpu")
    for item in got:
        nodes = Counter(function.numa_node for function in item.chosen.gpus)
        # The number of nodes is the least that has so many GPUs.
        fewest = next(n for n in range(1, 5) if sum(sorted(per_node.values())[-n:]) >= len(item.chosen.gpus))
        assert len(nodes) == fewest


def test_requests_that_fit_one_by_one_but_not_together_are_refused() -> None:
    with raises(DomainError, "a (6 GPUs)", "b (3 GPUs)") as caught:
        plan_domains(big(), parse_specs([small("a", 6, vcpus=8), small("b", 3)]))
    assert "8 GPUs are available; request fewer" in str(caught.value)
    with pytest.raises(DomainError) as caught:
        plan_domains(
            big(),
            parse_specs([small(name, 2, nics={"per_gpu": 2, "functions": "pf"}) for name in "ab"]),
        )
    names = "a (4 physical NIC functions), b (4 physical NIC functions)"
    assert f"virtual machines {names}: this host has enough for each, but not" in str(caught.value)


def test_nics_are_chosen_for_all_machines_together() -> None:
    host = big()
    # Two NICs are on a's switch, and b can only use the second of them.
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
    # There are four NICs, two on each node: no machine can have its nearest NICs without regard to the others.
    got = together(host, *requests)
    assert len(set(chain.from_iterable(got.values()))) == 3 + 4
    assert got["c"] == ["0000:83:00.0", "0000:85:00.0"]


def test_a_near_nic_is_assigned_to_the_machine_that_has_no_other() -> None:
    host = big()
    # One more NIC is in front of both switches of node 0 (PHB to each), as near to a as the only NIC on b's switch.
    port = "0000:10:05.0"
    host.functions.append(bridge(port, None, "pci0000:10", "root_port"))
    host.functions.append(endpoint("0000:19:00.0", port, "pci0000:10", "nic", numa_node=0))
    for gone in ("0000:15:00.0", "0000:85:00.0", "0000:95:00.0"):
        host.by_address()[gone].used_by_host = ["carries a route"]
    nics = {"per_gpu": 1, "functions": "pf"}
    a = small("a", 0, nics=nics) | {"gpus": {"addresses": ["0000:13:00.0"]}}  # 19 and 25 are both PHB to it
    b = small("b", 0, nics=nics) | {"gpus": {"addresses": ["0000:23:00.0"]}}  # 25 is on its switch
    assert together(host, a, b) == {"a": ["0000:13:00.0", "0000:19:00.0"], "b": ["0000:23:00.0", "0000:25:00.0"]}


def test_a_request_with_a_nic_gets_the_gpu_beside_the_nic() -> None:
    host = recording("llnl-corona")
    with_nic = small("z", 1, pin_cpus=False, nics={"per_gpu": 1, "functions": "pf"})
    got = together(host, with_nic, small("a", 1, pin_cpus=False), small("b", 4, pin_cpus=False))
    assert got["z"] == ["0000:c3:00.0", "0000:c4:00.0"]


def test_a_domain_keeps_its_nics() -> None:
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


def test_the_nearest_nic_is_found_below_switches_without_ports() -> None:
    """NCCL's files have such switches. The NIC on the GPU's own switch is nearer than the one on the switch above."""
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


def test_two_machines_are_on_two_nodes_if_one_node_lacks_memory_for_both() -> None:
    a, b = (small(name, 1) | {"memory_mib": 20 * 1024} for name in "ab")
    nodes = {
        item.name: item.chosen.gpus[0].numa_node for item in plan_domains(pages(big(), 32, 32), parse_specs([a, b]))
    }
    assert sorted(nodes.values()) == [0, 1]
    # If both fit on one node, they are on one, so that the other remains whole.
    got = plan_domains(pages(big(), 64, 64), parse_specs([a, b]))
    assert [item.chosen.gpus[0].numa_node for item in got] == [0, 0]
    # A node without pages is not used for them.
    got = plan_domains(pages(big(), 0, 64), parse_specs([a, b]))
    assert [item.chosen.gpus[0].numa_node for item in got] == [1, 1]
    # Pages of another domain are not available, and those of an existing requested domain count once.
    other = plan_domains(pages(big(), 64, 64), parse_specs([small("0", 1) | {"memory_mib": 50 * 1024}]))[0]
    there = hypervisor(domains={"0": observed(other)})
    got = plan_domains(pages(big(), 64, 64), parse_specs([a, b]), there)
    assert [item.chosen.gpus[0].numa_node for item in got] == [1, 1]
    both = plan_domains(pages(big(), 64, 64), parse_specs([small("0", 1) | {"memory_mib": 50 * 1024}, a]), there)
    assert [item.chosen.gpus[0].numa_node for item in both] == [0, 1]


def test_two_machines_without_a_vcpu_number_are_on_two_nodes() -> None:
    requests = [small(name, 1) | {"vcpus": None} for name in "ab"]
    got = plan_domains(big(), parse_specs(requests))
    assert [item.chosen.gpus[0].numa_node for item in got] == [0, 1]
    # Machines with a number of vCPUs are planned before those that take the remaining CPUs, in either order.
    mixed = [small("a", 4) | {"vcpus": None}, small("b", 4) | {"vcpus": 4}, small("c", 0) | {"gpus": {}, "vcpus": 2}]
    assert together(big(), *mixed)


def test_nics_per_gpu_are_counted_for_listed_gpus() -> None:
    listed = {"gpus": {"addresses": ["0000:13:00.0", "0000:83:00.0"]}}
    with raises(DomainError, "virtual machine a", "6", "4"):
        together(big(), small("a", 0, nics={"per_gpu": 3, "functions": "pf"}) | listed)


@pytest.mark.parametrize(
    ("device", "count", "noted"),
    [(0x2321, 2, True), (0x2321, 1, False), (0x2321, 8, False), (0x2330, 2, False)],
)
def test_gpus_by_number_that_bridges_may_join_have_a_note(device: int, count: int, noted: bool) -> None:
    """H100 NVL has NVLink bridges, H100 SXM has none. All GPUs of a host include all pairs."""
    host = big()
    for function in host.functions:
        if function.kind == "gpu":
            function.vendor_id, function.device_id = 0x10DE, device
    (plan,) = plan_domains(host, parse_specs([small("a", count)]))
    assert any("NVLink bridges" in note for note in plan.notes) is noted
    named = {**small("a", 0), "gpus": {"addresses": [gpu.address for gpu in plan.chosen.gpus]}}
    (plan,) = plan_domains(host, parse_specs([named]))
    assert not any("NVLink bridges" in note for note in plan.notes)
