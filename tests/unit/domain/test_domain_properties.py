# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What holds of every plan, on servers made up by hypothesis."""

from __future__ import annotations

import contextlib
import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import MIB, bridge, endpoint, lab, wish

from ansible_collections.sailloft.fleet.plugins.module_utils.domain import buses, tree
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.comparison import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.cpuset import format_set, parse_set
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.guest import kept, predict
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.hypervisor import holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.libvirt_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.plan import DomainPlan, plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.spec import parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.checks import check
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import (
    Bar,
    Cpu,
    Function,
    Host,
    HugePages,
    NumaNode,
    RootComplex,
    Sriov,
    TopologyError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.places import address_key

# Buses of one root complex; six of them fit into a PCI domain, the next ones are in domains of their own.
BUSES_EACH = 40


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    """1-4 NUMA nodes, 1-8 root complexes, switches up to three levels deep, GPUs, NICs with VFs, NVMe drives anywhere.

    Some nodes have no CPUs or no memory, some devices no node or another than their root complex, some share a group.
    """
    threads = draw(st.sampled_from([1, 2]))
    count = draw(st.integers(1, 4))
    cores = draw(st.integers(4, 12))
    nodes = []
    for node in range(count):
        siblings = [[(node * cores + core) + turn * count * cores for turn in range(threads)] for core in range(cores)]
        distances = {str(other): 10 if other == node else 20 + (other + node) % 3 for other in range(count)}
        cpus = sorted(chain.from_iterable(siblings))
        nodes.append(NumaNode(node, cpus, siblings, 1 << 38, 1 << 38, [HugePages(1024 * MIB, 200, 200)], distances))
    for node in nodes[1:]:
        lacks = draw(st.sampled_from([None, None, None, "CPUs", "memory"]))
        if lacks == "CPUs":
            node.cpus, node.siblings = [], []
        elif lacks == "memory":
            node.memory_bytes, node.huge_pages = 0, []
    functions: list[Function] = []
    complexes = []
    for number in range(draw(st.integers(1, 8))):
        node = draw(st.sampled_from([None, *range(count)]))
        domain = number // 6 if draw(st.booleans()) else 0x10 + number
        first = number % 6 * BUSES_EACH
        root = RootComplex(f"pci{domain:04x}:{first:02x}", domain, first, node)
        complexes.append(root)
        below = _Below(draw, functions, root, list(range(first + 1, first + BUSES_EACH)))
        for slot in range(draw(st.integers(1, 3))):
            below.port(below.address(first, slot), None, "root_port", draw(st.integers(0, 3)))
    for group, function in enumerate(functions):
        if function.iommu_group is not None:
            function.iommu_group = group
            if draw(st.integers(0, 9)) == 0:
                function.iommu_group = max(group - 1, 0)
        if function.kind != "bridge" and draw(st.integers(0, 9)) == 0:
            function.numa_node = draw(st.sampled_from([None, *range(count)]))
    functions.sort(key=lambda function: address_key(function.address))
    return Host(nodes, complexes, functions, Cpu("x86_64", "GenuineIntel", None, "vmx", 52))


class _Below:
    """Makes what is below one root complex; ``free`` are the buses that are left, given out depth first."""

    def __init__(self, draw: st.DrawFn, functions: list[Function], root: RootComplex, free: list[int]) -> None:
        self._draw, self._functions, self._root, self._free = draw, functions, root, free
        self._last = root.bus

    def address(self, bus: int, slot: int, function: int = 0) -> str:
        return f"{self._root.domain:04x}:{bus:02x}:{slot:02x}.{function}"

    def port(self, address: str, parent: str | None, role: str, depth: int) -> None:
        """A root or downstream port, and behind it a device, or a switch of at most ``depth`` levels."""
        port = bridge(address, parent, self._root.name, self._draw(st.sampled_from([role, role, None])))
        self._functions.append(port)
        port.secondary_bus = self._bus()
        if depth and len(self._free) > 8:
            self._switch(port, depth)
        else:
            self._device(port)
        port.subordinate_bus = self._last

    def _bus(self) -> int:
        self._last = self._free.pop(0)
        return self._last

    def _switch(self, port: Function, depth: int) -> None:
        bus = port.secondary_bus or 0
        up = bridge(self.address(bus, 0), port.address, self._root.name, "switch_upstream")
        self._functions.append(up)
        if self._draw(st.integers(0, 9)) == 0:
            self._endpoint(self.address(bus, 0, 1), port.address, "nic")
        up.secondary_bus = self._bus()
        for slot in range(self._draw(st.integers(1, 3))):
            if len(self._free) > 4:
                inner = self._draw(st.integers(0, depth - 1))
                self.port(self.address(up.secondary_bus, slot), up.address, "switch_downstream", inner)
        up.subordinate_bus = self._last

    def _device(self, port: Function) -> None:
        bus = port.secondary_bus or 0
        kind = self._draw(st.sampled_from(["gpu", "nic", "nvme"]))
        one = self._endpoint(self.address(bus, 0), port.address, kind)
        if kind == "nic" and self._draw(st.booleans()):
            one.sriov = Sriov(16, self._draw(st.integers(0, 16)))
            for number in range(one.sriov.now):
                address = self.address(bus, 1 + number // 8, number % 8)
                one.sriov.vfs.append(address)
                self._endpoint(address, port.address, kind, physical_function=one.address)
        elif kind == "nic":
            for function in range(1, self._draw(st.integers(1, 3))):
                self._endpoint(self.address(bus, 0, function), port.address, kind)

    def _endpoint(self, address: str, parent: str, kind: str, **more: Any) -> Function:
        size = 2 ** self._draw(st.integers(14, 34))
        bars = [Bar(0, size, "memory", 64, True), Bar(2, 4096, "memory", 32, False)]
        made = endpoint(address, parent, self._root.name, kind, numa_node=self._root.numa_node, bars=bars, **more)
        self._functions.append(made)
        return made


def whole(host: Host) -> list[dict[str, Any]]:
    """One virtual machine of all devices."""

    def of(kind: str) -> list[str]:
        return [item.address for item in host.functions if item.kind == kind and not (item.sriov and item.sriov.now)]

    return [
        {
            "name": "all",
            "memory_mib": 12 * 1024,
            "gpus": {"addresses": of("gpu")},
            "nics": {"addresses": of("nic")},
            "nvme": {"addresses": of("nvme")},
        }
    ]


def shared(host: Host) -> list[dict[str, Any]]:
    """As many virtual machines of one GPU as there are cores and GPUs for."""
    gpus = sum(function.kind == "gpu" for function in host.functions)
    count = min(gpus, 3)
    return [{"name": f"vm-{number}", "memory_mib": 1024, "vcpus": 1, "gpus": {"count": 1}} for number in range(count)]


def invariants(plans: list[DomainPlan], host: Host) -> None:
    devices = [function.address for plan in plans for function in plan.chosen.all()]
    assert len(set(devices)) == len(devices)
    cpus = [cpu for plan in plans for cell in plan.processors.cells for cpu in cell.cpus]
    assert len(set(cpus)) == len(cpus)
    groups = [{function.iommu_group for function in plan.chosen.all()} for plan in plans]
    assert not any(one & other - {None} for one, other in combinations(groups, 2))
    for plan in plans:
        assert not set(plan.processors.kept_cpus) & {cpu for cell in plan.processors.cells for cpu in cell.cpus}
        for cell in plan.processors.cells:
            node = next(node for node in host.numa_nodes if node.id == cell.host_node)
            assert set(cell.cpus) <= set(node.cpus)
            assert len(cell.cpus) == len(cell.vcpus)
            assert cell.memory_mib * MIB <= node.memory_bytes
        data = plan.to_dict()
        assert sorted(item["host_address"] for item in data["devices"]) == sorted(
            function.address for function in plan.chosen.all()
        )
        guest = predict(plan)
        places = [item.address for item in guest.functions] + [item["guest_address"] for item in data["virtio"]]
        assert len(set(places)) == len(places)
        # What the firmware can enumerate is also what the topology's own rules say of any machine.
        check(guest)
        numbers = [port.bus for port in plan.root.walk()]
        assert len(set(numbers)) == len(numbers)
        assert max(port.last_bus for port in plan.root.walk()) < buses.BUSES
        for expander in data["root_complexes"]:
            assert expander["buses_needed"] <= expander["buses_room"]
        for port in plan.root.walk():
            if port.model in (tree.ROOT_PORT, tree.DOWNSTREAM):
                assert len(port.ports) + bool(port.endpoints) <= 1
                assert len(port.endpoints) <= tree.FUNCTIONS
        for item in data["devices"]:
            assert [step.address for step in guest.path(item["guest_address"])] == item["guest_path"]
        fidelity = data["fidelity"]
        assert fidelity["equal"] + len(fidelity["differences"]) == fidelity["total"]
        assert fidelity == kept(plan, host).to_dict()
        for difference in fidelity["differences"]:
            # Only what a guest cannot say of NUMA nodes, and the plan says why.
            assert {difference["host"], difference["guest"]} == {"NODE", "SYS"}
            addresses = [name.split()[1] for name in difference["pair"]]
            assert any("node" in note and address in note for note in plan.notes for address in addresses), difference
        held = holdings(render(plan))
        assert sorted(held.devices) == sorted(function.address for function in plan.chosen.all())
        assert sorted(held.cpus) == sorted(cpu for cell in plan.processors.cells for cpu in cell.cpus)


TOO_LITTLE = r"needs \d+ buses, a guest has 256|asks for 1 GPU, this host has|CPUs of NUMA node \d+, and|no CPU is left"


def planned(host: Host, wishes: list[dict[str, Any]]) -> list[DomainPlan]:
    """Plans; none where there is too little of something, which the message says."""
    with contextlib.suppress(DomainError):
        return plan_domains(host, parse_specs(wishes))
    with pytest.raises(DomainError, match=TOO_LITTLE):
        plan_domains(host, parse_specs(wishes))
    return []


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hosts(), st.sampled_from([whole, shared]))
def test_every_plan(host: Host, wishes: Any) -> None:
    plans = planned(host, wishes(host))
    invariants(plans, host)
    again = planned(Host.from_dict(json.loads(json.dumps(host.to_dict()))), wishes(host))
    for first, second in zip(plans, again):
        assert render(first) == render(second)
        assert json.dumps(first.to_dict()) == json.dumps(second.to_dict())
        assert differences(render(first), render(second)) == []
        ET.fromstring(render(first))
    assert len(plans) == len(again)


def calls(work: Callable[[], object]) -> int:
    """How many Python functions a piece of work calls: a measure of its time that no busy machine changes."""
    number = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal number
        number += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return number


@pytest.mark.parametrize("shape", ["wide", "deep"])
def test_twice_the_devices_cost_at_most_four_times(shape: str) -> None:
    def machine(size: int) -> Host:
        functions: list[Function] = []
        root = RootComplex("pci0000:10", 0, 0x10, 0)
        above: str | None = None
        for number in range(size):
            if shape == "wide":
                above = f"0000:10:{number:02x}.0"
                functions.append(bridge(above, None, root.name, "root_port"))
            else:
                # A chain of switches, a device on each.
                for step, role in enumerate(["switch_upstream", "switch_downstream"] if number else ["root_port"]):
                    up = f"0000:{0x10 + 2 * number + step:02x}:00.0"
                    functions.append(bridge(up, above, root.name, role))
                    above = up
            functions.append(endpoint(f"0000:{0x80 + number:02x}:00.0", above, root.name))
        nodes = [NumaNode(0, list(range(8)), [], 1 << 38)]
        return Host(nodes, [root], functions, Cpu("x86_64", "GenuineIntel", None, "vmx", 52))

    def cost(size: int) -> int:
        host = machine(size)
        return calls(lambda: plan_domains(host, parse_specs(whole(host))))

    costs = [cost(size) for size in (4, 8, 16, 32)]
    # Pairs of devices are quadratic, and twice as deep a tree has twice as long a way to each: no more than that.
    assert all(second < 5 * first for first, second in zip(costs, costs[1:])), costs


def leaves(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every part of nested data."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way, *(leaf for key, part in parts for leaf in leaves(part, (*way, key)))]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_truncated_or_spoilt_recording_gives_one_error_or_a_plan(pick: st.DataObject) -> None:
    data = lab().to_dict()
    way = pick.draw(st.sampled_from(leaves(data)[1:]))
    inner: Any = data
    for step in way[:-1]:
        inner = inner[step]
    if pick.draw(st.booleans()):
        del inner[way[-1]]
    else:
        inner[way[-1]] = pick.draw(st.sampled_from([None, -1, 0, 1 << 70, "text", [], {}, [1], {"a": 1}, True]))
    try:
        host = Host.from_dict(data)
        plans = plan_domains(host, parse_specs([wish()]))
        for plan in plans:
            ET.fromstring(render(plan))
    except (TopologyError, DomainError):
        return
    invariants(plans, host)


@given(st.sets(st.integers(0, 300)))
def test_sets_go_there_and_back(numbers: set[int]) -> None:
    assert parse_set(format_set(numbers)) == sorted(numbers)


def test_sets_as_libvirt_writes_them() -> None:
    assert format_set([8, 0, 1, 2]) == "0-2,8"
    assert parse_set("0-3,^2, 8") == [0, 1, 3, 8]
