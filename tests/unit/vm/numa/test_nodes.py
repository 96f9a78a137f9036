# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NUMA nodes of a virtual machine's cells, and its share of the host."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import GIB, bridge, endpoint, hypervisor, observed
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Cpu,
    Host,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Accelerator
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.checks import without_libvirt
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import RefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def server(nodes: int = 2, gpus: tuple[int | None, ...] = (None,) * 8, cores: int = 48, gib: int = 560) -> Host:
    """Return a server of ``nodes``, each with ``cores`` of two threads.

    ``gpus`` has the node of each GPU, and of the GPU's own root complex.
    """
    first = [[node * cores + core, (nodes + node) * cores + core] for node in range(nodes) for core in range(cores)]
    numa = []
    for node in range(nodes):
        siblings = first[node * cores : node * cores + cores]
        distances = {str(other): 10 if other == node else 20 for other in range(nodes)}
        cpus = sorted(cpu for core in siblings for cpu in core)
        numa.append(NumaNode(node, cpus, siblings, gib * GIB, distances=distances))
    complexes, functions = [], []
    for number, node in enumerate(gpus):
        bus = 0x10 + 8 * number
        name = f"pci0000:{bus:02x}"
        complexes.append(RootComplex(name, 0, bus, node))
        functions += [
            bridge(f"0000:{bus:02x}:01.0", None, name, "root_port"),
            endpoint(f"0000:{bus + 1:02x}:00.0", f"0000:{bus:02x}:01.0", name, numa_node=node),
        ]
    return Host(numa, complexes, functions, Cpu("x86_64", "AuthenticAMD", None, "svm", 52))


def wanted(number: int = 0, **changes: object) -> dict[str, object]:
    spec = {"name": f"vm-{number}", "gpus": {"count": 1}, "memory_mib": 65536, "huge_page_mib": 1024, "vcpus": 20}
    return {**spec, **changes}


def planned(host: Host, *requests: dict[str, object], **more: object) -> list[DomainPlan]:
    return plan_domains(host, parse_specs(list(requests)), **more)


def nodes_of(plan: DomainPlan) -> list[int]:
    return [cell.host_node for cell in plan.processors.cells]


def test_machines_with_devices_on_unknown_nodes_are_spread_over_all_nodes() -> None:
    plans = planned(server(), *(wanted(number) for number in range(8)))
    # Virtual machines can use 94 threads of a node: four machines of 20 each.
    assert Counter(tuple(nodes_of(plan)) for plan in plans) == {(0,): 4, (1,): 4}
    warnings = without_libvirt(plans, server())
    assert [item.what for item in warnings if "NUMA" in item.what] == [
        f"the host does not report which NUMA node 0000:{0x11 + 8 * at:02x}:00.0 is on" for at in range(8)
    ]
    for order in list(permutations(range(8)))[:20]:
        again = planned(server(), *(wanted(number) for number in order))
        assert {plan.name: nodes_of(plan) for plan in again} == {plan.name: nodes_of(plan) for plan in plans}


def test_a_machine_that_does_not_fit_one_node_is_on_several() -> None:
    (plan,) = planned(server(), wanted(gpus={"count": 8}, vcpus=160, memory_mib=1024 * 1024))
    assert nodes_of(plan) == [0, 1]
    (plan,) = planned(server(nodes=8, cores=12, gib=140), wanted(gpus={"count": 8}, vcpus=40, memory_mib=200 * 1024))
    assert nodes_of(plan) == [0, 1]


def test_a_machine_without_a_vcpu_number_gets_all_nodes_or_its_share() -> None:
    (plan,) = planned(server(), wanted(gpus={"count": 8}, vcpus=None, memory_mib=1024 * 1024))
    assert nodes_of(plan) == [0, 1]
    assert plan.to_dict()["vcpus"] == 188
    plans = planned(server(), *(wanted(at, gpus={"count": 4}, vcpus=None) for at in range(2)))
    assert [nodes_of(plan) for plan in plans] == [[0], [1]]
    assert [plan.to_dict()["vcpus"] for plan in plans] == [94, 94]


def test_an_existing_machine_keeps_its_nodes() -> None:
    (before,) = planned(server(), wanted(numa_nodes=[1]), hypervisor=hypervisor())
    assert nodes_of(before) == [1]
    there = hypervisor(domains={before.name: observed(before)})
    plans = planned(server(), wanted(), *(wanted(at) for at in range(1, 4)), hypervisor=there)
    assert nodes_of(plans[0]) == [1]
    assert render(plans[0]) == render(before)
    # If its spec cannot be divided any more, or its node is gone, it is placed again.
    host = server()
    host.numa_nodes[1].memory_bytes = 0
    assert nodes_of(planned(host, wanted(), hypervisor=there)[0]) == [0]


def test_requested_nodes_limit_the_choice_of_gpus() -> None:
    host = server(nodes=4, gpus=(0, 0, 2, 2), cores=12)
    first, second = planned(
        host,
        wanted(0, gpus={"count": 2}, numa_nodes=[2, 3], vcpus=40),
        wanted(1, gpus={"count": 2}, numa_nodes=["0", "1"], vcpus=40),
    )
    assert (nodes_of(first), nodes_of(second)) == ([2, 3], [0, 1])
    assert [function.address for function in first.chosen.gpus] == ["0000:21:00.0", "0000:29:00.0"]
    assert [expander.cell for expander in first.root.expanders] == [0, 0]
    with pytest.raises(DomainError, match="requests 3 GPUs"):
        planned(host, wanted(gpus={"count": 3}, numa_nodes=[2, 3], vcpus=40))


@pytest.mark.parametrize(
    ("numa_nodes", "facts"),
    [([7], ["node 7", "one of 0"]), (["all", 0], ["['all', '0']"]), (["-1"], ["['-1']"]), (["x"], ["['x']"])],
)
def test_invalid_nodes_are_refused(numa_nodes: list[object], facts: list[str]) -> None:
    with raises(DomainError, "vm-0", "numa_nodes", *facts):
        planned(server(nodes=1), wanted(numa_nodes=numa_nodes))


def test_numa_nodes_all_adds_cells_on_nodes_without_a_gpu() -> None:
    host = server(nodes=8, gpus=(0, 0, 2, 2, 4, 4, 6, 6), cores=12, gib=192)
    (plan,) = planned(host, wanted(gpus={"count": 8}, vcpus=None, memory_mib=4 * 160 * 1024))
    assert nodes_of(plan) == [0, 2, 4, 6]
    assert (
        "it has all GPUs of the host but no cell on NUMA node 1, 3, 5, 7: 96 hardware threads and 786432 MiB are out "
        "of its reach; numa_nodes: [all] adds them"
    ) in plan.notes
    (plan,) = planned(host, wanted(gpus={"count": 8}, vcpus=None, memory_mib=8 * 160 * 1024, numa_nodes=["all"]))
    assert nodes_of(plan) == list(range(8))
    assert plan.to_dict()["vcpus"] == 8 * 22
    assert [expander.cell for expander in plan.root.expanders] == [0, 0, 2, 2, 4, 4, 6, 6]
    assert not any("out of its reach" in note for note in plan.notes)


def test_a_note_reports_the_vcpu_limit_and_the_setting_that_raises_it() -> None:
    host = server(gpus=(0, 1), cores=96)
    able = hypervisor(accelerators={"kvm": Accelerator(max_vcpus=4096, firmwares=["efi"], machine="pc-q35-9.0")})
    want = wanted(gpus={"count": 2}, vcpus=None, memory_mib=1024 * 1024)
    (plan,) = planned(host, want, hypervisor=able)
    share = plan.to_dict()["share"]
    assert (share["threads"], share["vcpus"], share["kept"], share["free"]) == (384, 252, 4, 128)
    assert share["vcpu_limit"] == 255
    assert (
        "128 hardware threads of its nodes are unused: without interrupt remapping a guest can have at most 255 vCPUs; "
        "interrupt_remapping: true lifts that"
    ) in plan.notes
    (plan,) = planned(host, {**want, "interrupt_remapping": True}, hypervisor=able)
    assert plan.to_dict()["vcpus"] == 380
    assert not any("unused" in note for note in plan.notes)
    root = ET.fromstring(render(plan))
    assert [(item.get("model"), dict(item.find("driver").attrib)) for item in root.iterfind("devices/iommu")] == [
        ("intel", {"intremap": "on", "caching_mode": "on", "eim": "on"})
    ]
    assert root.find("features/ioapic").attrib == {"driver": "qemu"}
    assert not [item for item in root.iter("driver") if item.get("iommu") or item.get("ats")]
    # Without libvirt the limit is that of every q35.
    (plan,) = planned(host, {**want, "interrupt_remapping": True})
    assert plan.to_dict()["vcpus"] == 288
    assert "92 hardware threads of its nodes are unused: a guest can have at most 288 vCPUs here" in plan.notes


def test_a_note_reports_unused_threads_of_unequal_nodes() -> None:
    host = server(gpus=(0, 1), cores=8)
    host.numa_nodes[1].siblings = host.numa_nodes[1].siblings[:6]
    host.numa_nodes[1].cpus = sorted(cpu for core in host.numa_nodes[1].siblings for cpu in core)
    (plan,) = planned(host, wanted(gpus={"count": 2}, vcpus=None))
    assert (
        "4 hardware threads of its nodes are unused: every cell has as many vCPUs as the one with the fewest CPUs "
        "left, 10"
    ) in plan.notes


@given(
    st.integers(1, 4),
    st.lists(st.sampled_from([None, 0, 1, 2, 3]), min_size=1, max_size=4),
    st.integers(2, 9),
    st.integers(0, 2),
    st.booleans(),
)
def test_the_share_counts_every_thread_of_the_host(
    nodes: int, places: list[int | None], cores: int, kept: int, everywhere: bool
) -> None:
    gpus = tuple(None if place is None else place % nodes for place in places)
    host = server(nodes, gpus, cores, 64)
    only = ["all"] if everywhere else []
    try:
        plans = planned(host, wanted(vcpus=None, memory_mib=12 * 1024, host_cores_per_socket=kept, numa_nodes=only))
    except DomainError as error:
        assert "no CPU is left" in str(error)  # noqa: PT017
        return
    for plan in plans:
        share = plan.to_dict()["share"]
        parts = ("vcpus", "kept", "taken", "free", "elsewhere")
        assert sum(share[part] for part in parts) == share["threads"] == nodes * cores * 2
        assert share["vcpus"] == plan.to_dict()["vcpus"]
        assert not everywhere or share["elsewhere"] == 0


@pytest.mark.parametrize(
    ("memory_mib", "message"),
    [
        (
            1024 * 1024,
            "virtual machine vm-0: memory_mib 1048576 is more than the NUMA nodes that it is bound to have: 46080 MiB "
            "(node 0 46080); give it less memory",
        ),
        # This is 100 TB, which no page size divides.
        (
            95367431,
            "virtual machine vm-0: memory_mib 95367431 is more than the NUMA nodes that it is bound to have: 46080 MiB "
            "(node 0 46080); give it less memory",
        ),
    ],
)
def test_more_memory_than_the_nodes_have_is_refused(memory_mib: int, message: str) -> None:
    with pytest.raises(DomainError) as caught:
        planned(server(gpus=(0,), gib=45), wanted(memory_mib=memory_mib))
    assert str(caught.value) == message
    with raises(DomainError, "92160", "node 0 46080", "node 1 46080"):
        planned(server(gpus=(0,), gib=45), wanted(memory_mib=memory_mib, strict_memory=False))


def test_machines_that_together_need_too_much_memory_are_refused() -> None:
    host = server(gpus=(0, 0, 0, 0, 1, 1, 1, 1))
    requests = [wanted(at, memory_mib=400 * 1024) for at in range(8)]
    plans = planned(host, *requests)
    with pytest.raises(RefusedError) as caught:
        without_libvirt(plans, host)
    each = [", ".join(f"{plan.name} 409600" for plan in plans if nodes_of(plan) == [node]) for node in (0, 1)]
    assert [(item.domain, item.what) for item in caught.value.findings if item.severity == "refuse"] == [
        ("", f"strict_memory binds 1638400 MiB ({each[node]}) to NUMA node {node}, which has 573440 MiB")
        for node in (0, 1)
    ]
    fitting = without_libvirt(planned(host, *(wanted(at, memory_mib=140 * 1024) for at in range(8))), host)
    # The BARs of its made-up GPUs are small.
    assert all("BAR" in item.what for item in fitting)
    # If machines are not bound to nodes, the host's sum counts.
    loose = planned(host, *({**request, "strict_memory": False} for request in requests))
    with pytest.raises(RefusedError) as caught:
        without_libvirt(loose, host)
    (item,) = [item for item in caught.value.findings if item.severity == "refuse"]
    names = ", ".join(f"vm-{at} 409600" for at in range(8))
    assert item.what == (
        f"the virtual machines need 3276800 MiB ({names}) that is never swapped, but this host has 1146880 MiB"
    )


def test_virtual_machines_without_a_number_of_vcpus_share_the_nodes() -> None:
    requests = [wanted(number, gpus={"count": 0}, vcpus=None) for number in range(2)]
    plans = planned(server(nodes=4, gpus=()), *requests)
    assert [nodes_of(plan) for plan in plans] == [[0, 1], [2, 3]]
