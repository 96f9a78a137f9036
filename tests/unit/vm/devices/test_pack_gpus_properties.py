# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The choice for all virtual machines at once, compared with trying every combination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import pytest
from baseboards import gpus, hgx, vm
from hypothesis import given
from hypothesis import strategies as st
from machines import bridge, endpoint, hypervisor, observed

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode, RootComplex
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import HostDevices
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nearest import NEVER, hungarian
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import recognise
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.pack_gpus import (
    WEIGHTS,
    GpuRequest,
    Packing,
    Unit,
    path_distance,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


@st.composite
def small_hosts(draw: st.DrawFn, groups: bool = True) -> Host:
    """Draw up to 6 GPUs and 4 NICs behind up to 4 switches of 2 root complexes; some share IOMMU groups."""
    functions = []
    switches = draw(st.integers(1, 4))
    left = {"gpu": 6, "nic": 4}
    for switch in range(switches):
        node = switch % 2
        root, base = f"pci0000:{0x10 + 0x80 * node:02x}", 0x10 + 0x80 * node + 0x18 * (switch // 2)
        port, up = f"0000:{0x10 + 0x80 * node:02x}:{switch:02x}.0", f"0000:{base + 1:02x}:00.0"
        functions += [bridge(port, None, root, "root_port"), bridge(up, port, root, "switch_upstream")]
        for leaf, kind in enumerate(draw(st.lists(st.sampled_from(["gpu", "gpu", "nic"]), min_size=1, max_size=4))):
            if not left[kind]:
                continue
            left[kind] -= 1
            down = f"0000:{base + 2:02x}:{leaf:02x}.0"
            functions.append(bridge(down, up, root, "switch_downstream"))
            device = endpoint(f"0000:{base + 3 + leaf:02x}:00.0", down, root, kind, numa_node=node)
            if groups and draw(st.integers(0, 2)) == 0:
                device.iommu_group = draw(st.sampled_from([1, 2, 3]))
            functions.append(device)
    functions.sort(key=lambda item: item.address)
    nodes = [NumaNode(node, list(range(node * 16, node * 16 + 16)), [], 1 << 40) for node in (0, 1)]
    return Host(nodes, [RootComplex("pci0000:10", 0, 0x10, 0), RootComplex("pci0000:90", 0, 0x90, 1)], functions)


@st.composite
def requests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw one to three virtual machines of one to four GPUs, some with a NIC for each GPU."""
    return [
        vm(f"vm-{at}", draw(st.integers(1, 4)), nics={"per_gpu": draw(st.integers(0, 1)), "functions": "pf"})
        for at in range(draw(st.integers(1, 3)))
    ]


def assignments(host: Host, asked: list[dict[str, Any]]) -> Iterator[list[set[str]]]:
    """Yield every way to assign GPUs (all GPUs of an IOMMU group together) and NICs, with no group shared by two."""
    known = host.by_address()
    group = {address: function.iommu_group for address, function in known.items()}
    of_kind = {kind: [item.address for item in host.functions if item.kind == kind] for kind in ("gpu", "nic")}

    def whole(chosen: tuple[str, ...]) -> bool:
        mine = {group[address] for address in chosen}
        return all(address in chosen for address in of_kind["gpu"] if group[address] in mine)

    def step(at: int, taken: list[set[str]], kind: str) -> Iterator[list[set[str]]]:
        if at == len(asked):
            if kind == "gpu":
                yield from step(0, taken, "nic")
            else:
                yield taken
            return
        count = asked[at]["gpus"]["count"] * (1 if kind == "gpu" else asked[at]["nics"]["per_gpu"])
        others = set(chain.from_iterable(own for number, own in enumerate(taken) if number != at))
        foreign = {group[address] for address in others}
        free = [address for address in of_kind[kind] if group[address] not in foreign]
        for chosen in combinations(free, count):
            if kind == "nic" or whole(chosen):
                now = [*taken]
                now[at] = now[at] | set(chosen)
                yield from step(at + 1, now, kind)

    return step(0, [set() for _one in asked], "gpu")


def spread(host: Host, own: set[str]) -> int:
    """Return the weighted distances of a virtual machine's GPUs, from the definition."""
    host_devices = HostDevices(host)
    places = [
        host_devices.place(function)
        for function in host.functions
        if function.address in own and function.kind == "gpu"
    ]
    return sum(WEIGHTS[path_distance(one, other)] for one, other in combinations(places, 2))


def devices(plan: DomainPlan) -> set[str]:
    return {function.address for function in plan.chosen.all()}


@given(small_hosts(), requests())
def test_a_plan_is_found_if_one_exists_and_no_group_is_shared(host: Host, asked: list[dict[str, Any]]) -> None:
    possible = next(assignments(host, asked), None)
    try:
        plans = plan_domains(host, parse_specs(asked))
    except DomainError:
        assert possible is None
        return
    assert possible is not None
    given_away = list(chain.from_iterable(devices(plan) for plan in plans))
    assert len(set(given_away)) == len(given_away)
    group = {function.address: function.iommu_group for function in host.functions}
    for one, other in combinations(plans, 2):
        assert not {group[item] for item in devices(one)} & {group[item] for item in devices(other)}
    for plan, request in zip(plans, asked):
        assert len(plan.chosen.gpus) == request["gpus"]["count"]
        assert len(plan.chosen.nics) == request["gpus"]["count"] * request["nics"]["per_gpu"]


@given(small_hosts(groups=False), requests())
def test_no_other_allocation_has_a_smaller_spread_of_the_largest(host: Host, requests: list[dict[str, Any]]) -> None:
    requests = [{**request, "nics": {"per_gpu": 0}} for request in requests]
    try:
        plans = plan_domains(host, parse_specs(requests))
    except DomainError:
        return
    largest = min(range(len(requests)), key=lambda number: (-requests[number]["gpus"]["count"], number))
    smallest = min(spread(host, vm_devices[largest]) for vm_devices in assignments(host, requests))
    assert spread(host, devices(plans[largest])) == smallest


@given(small_hosts(), requests(), st.randoms(use_true_random=False))
def test_the_order_of_host_items_and_requests_does_not_change_the_plan(
    host: Host, asked: list[dict[str, Any]], random: Any
) -> None:
    def outcome(host: Host, asked: list[dict[str, Any]]) -> Any:
        try:
            return {plan.name: render(plan) for plan in plan_domains(host, parse_specs(asked))}
        except DomainError as error:
            return str(error)

    data = read_saved(host.to_dict())
    for items in (data.functions, data.numa_nodes, data.root_complexes):
        random.shuffle(items)
    shuffled = [dict(random.sample(list(request.items()), len(request))) for request in asked]
    random.shuffle(shuffled)
    assert outcome(data, shuffled) == outcome(host, asked)


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[Unit], list[GpuRequest]]:
    """Draw six GPUs on a few switches of two nodes, and up to three requests, some with or limited to certain GPUs."""
    units = []
    for number in range(6):
        node, switch = draw(st.integers(0, 1)), draw(st.integers(0, 2))
        units.append(Unit((f"{number}",), (f"{node}", f"root {node}", f"switch {node}.{switch}"), node))
    free, requests = set(range(6)), []
    for name in draw(st.sampled_from(["ab", "abc"])):
        own = draw(st.sets(st.sampled_from(sorted(free)), max_size=2)) if len(free) > 2 else set()
        free -= own
        if len(own) == 2:
            requests.append(GpuRequest(name, 1, only=frozenset(own)))
        else:
            requests.append(GpuRequest(name, draw(st.integers(1, 2)), must=frozenset(own)))
    return units, requests


@pytest.mark.long
@given(questions())
def test_earlier_calls_of_choose_do_not_change_its_result(question: tuple[list[Unit], list[GpuRequest]]) -> None:
    units, requests = question
    asked = Packing(units, [], {})
    for request in requests:
        asked.choose([request], {}, lambda _gpus: True)
    fresh = Packing(units, [], {})
    assert asked.choose(requests, {}, lambda _gpus: True) == fresh.choose(requests, {}, lambda _gpus: True)


@given(small_hosts(), requests(), requests())
def test_new_requests_do_not_move_existing_machines(
    host: Host, first: list[dict[str, Any]], more: list[dict[str, Any]]
) -> None:
    try:
        there = plan_domains(host, parse_specs(first))
    except DomainError:
        return
    known = hypervisor(domains={plan.name: observed(plan) for plan in there})
    newer = [{**request, "name": f"new-{request['name']}"} for request in more]
    try:
        plans = plan_domains(host, parse_specs([*newer, *first]), known)
    except DomainError:
        return
    assert {plan.name: devices(plan) for plan in plans[len(newer) :]} == {plan.name: devices(plan) for plan in there}


@given(
    st.lists(st.sampled_from([1, 1, 2, 2, 4, 8]), min_size=1, max_size=8),
    st.permutations(range(1, 9)),
    st.sets(st.integers(0, 7), max_size=3),
)
def test_partitions_are_refused_only_if_an_exhaustive_search_finds_none(
    sizes: list[int], ids: list[int], taken: set[int]
) -> None:
    host = hgx()
    module_ids = dict(zip(gpus(host), ids))
    fabric = recognise(host, module_ids)
    assert fabric is not None
    for number in taken:
        function = host.by_address()[gpus(host)[number]]
        function.used_by_host = ["shows it"]
    usable = set(gpus(host)) - {gpus(host)[number] for number in taken}

    def possible(left: list[int], free: set[str]) -> bool:
        return not left or any(
            possible(left[1:], free - partition.members)
            for partition in fabric.partitions
            if len(partition.members) == left[0] and partition.members <= free
        )

    asked = [vm(f"vm-{at}", size) for at, size in enumerate(sizes)]
    try:
        plans = plan_domains(host, parse_specs(asked), gpu_module_ids=module_ids)
    except DomainError:
        assert not possible(sorted(sizes, reverse=True), usable)
        return
    own = [{function.address for function in plan.chosen.gpus} for plan in plans]
    assert all(fabric.partition(one) is not None for one in own)
    assert sum(map(len, own)) == len(set().union(*own))


@given(st.integers(1, 4), st.integers(0, 2), st.data())
def test_the_hungarian_method_finds_the_least_cost(rows: int, more: int, data: st.DataObject) -> None:
    prices = st.sampled_from([0, 1, 2, 3, 5, 8, 1 << 40, NEVER])
    table = [[data.draw(prices) for _column in range(rows + more)] for _row in range(rows)]
    picks = hungarian(table)
    assert len(set(picks)) == rows

    def least(at: int, free: frozenset[int]) -> int:
        return min((table[at][pick] + least(at + 1, free - {pick}) for pick in free), default=0) if at < rows else 0

    assert sum(row[pick] for row, pick in zip(table, picks)) == least(0, frozenset(range(rows + more)))


@pytest.mark.parametrize("sizes", [(16,), (8, 8), (8, 4, 2, 2), (4, 4, 4, 4), (3, 5, 2, 6), (7, 9), (1,) * 16])
def test_sixteen_gpus_without_symmetry_are_all_allocated(sizes: tuple[int, ...]) -> None:
    functions = []
    for number in range(16):
        root = f"pci0000:{number * 8:02x}"
        port = f"0000:{number * 8:02x}:00.0"
        functions.append(bridge(port, None, root, "root_port"))
        functions.append(endpoint(f"0000:{number * 8 + 1:02x}:00.0", port, root, numa_node=number % 4))
        for nic in range(number % 3):
            near = endpoint(f"0000:{number * 8 + 1:02x}:00.{nic + 1}", port, root, "nic", numa_node=number % 4)
            functions.append(replace(near, used_by_host=[] if number % 5 else ["carries a route"]))
    nodes = [NumaNode(node, list(range(node * 64, node * 64 + 64)), [], 1 << 40) for node in range(4)]
    roots = [RootComplex(f"pci0000:{number * 8:02x}", 0, number * 8, number % 4) for number in range(16)]
    host = Host(nodes, roots, functions)
    asked = [vm(f"vm-{at:02}", size, memory_mib=12 * 1024, vcpus=12) for at, size in enumerate(sizes)]
    plans = plan_domains(host, parse_specs(asked))
    assert sorted(chain.from_iterable(devices(plan) for plan in plans)) == gpus(host)
