# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What holds of every plan, on servers made up by hypothesis."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import chain
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from machines import MIB, bridge, endpoint, lab, wish

from ansible_collections.sailloft.fleet.plugins.module_utils.domain import buses
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.comparison import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.cpuset import format_set, parse_set
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.guest import kept, predict
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.hypervisor import holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.libvirt_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.plan import DomainPlan, plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.spec import parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import (
    Bar,
    Cpu,
    Function,
    Host,
    HugePages,
    NumaNode,
    RootComplex,
    TopologyError,
)


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    """1-4 NUMA nodes, 1-6 root complexes, switches up to two levels deep, GPUs, NICs and NVMe drives anywhere."""
    threads = draw(st.sampled_from([1, 2]))
    count = draw(st.integers(1, 4))
    cores = draw(st.integers(4, 12))
    nodes = []
    for node in range(count):
        siblings = [[(node * cores + core) + turn * count * cores for turn in range(threads)] for core in range(cores)]
        distances = {str(other): 10 if other == node else 20 + (other + node) % 3 for other in range(count)}
        cpus = sorted(chain.from_iterable(siblings))
        nodes.append(NumaNode(node, cpus, siblings, 1 << 38, 1 << 38, [HugePages(1024 * MIB, 200, 200)], distances))
    functions: list[Function] = []
    complexes = []
    for number in range(draw(st.integers(1, 6))):
        node = draw(st.sampled_from([None, *range(count)]))
        domain = draw(st.sampled_from([0, 0, 0, number]))
        first = number * 40
        root = RootComplex(f"pci{domain:04x}:{first:02x}", domain, first, node)
        complexes.append(root)
        free = iter(range(first + 1, first + 40))
        for slot in range(draw(st.integers(1, 3))):
            port = f"{domain:04x}:{first:02x}:{slot:02x}.0"
            functions.append(bridge(port, None, root.name, "root_port"))
            _below(draw, functions, root, port, next(free), free, domain, draw(st.integers(0, 2)))
    functions.sort(key=lambda function: function.address)
    return Host(nodes, complexes, functions, Cpu("x86_64", "GenuineIntel", None, "vmx", 52))


def _below(
    draw: st.DrawFn,
    functions: list[Function],
    root: RootComplex,
    port: str,
    bus: int,
    free: Any,
    domain: int,
    depth: int,
) -> None:
    """Put a device, or a switch of ``depth`` levels, behind ``port``, whose bus is ``bus``."""
    if depth == 0:
        kind = draw(st.sampled_from(["gpu", "nic", "nvme"]))
        for function in range(draw(st.integers(1, 3)) if kind == "nic" else 1):
            address = f"{domain:04x}:{bus:02x}:00.{function}"
            size = 2 ** draw(st.integers(14, 37))
            bars = [Bar(0, size, "memory", 64, True), Bar(2, 4096, "memory", 32, False)]
            functions.append(endpoint(address, port, root.name, kind, numa_node=root.numa_node, bars=bars))
        return
    up = f"{domain:04x}:{bus:02x}:00.0"
    functions.append(bridge(up, port, root.name, "switch_upstream"))
    inner = next(free)
    for slot in range(draw(st.integers(1, 3))):
        down = f"{domain:04x}:{inner:02x}:{slot:02x}.0"
        functions.append(bridge(down, up, root.name, "switch_downstream"))
        _below(draw, functions, root, down, next(free), free, domain, draw(st.integers(0, depth - 1)))


def whole(host: Host) -> list[dict[str, Any]]:
    """One virtual machine of all devices."""

    def of(kind: str) -> list[str]:
        return [function.address for function in host.functions if function.kind == kind]

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
    for plan in plans:
        assert not set(plan.processors.kept_cpus) & {cpu for cell in plan.processors.cells for cpu in cell.cpus}
        for cell in plan.processors.cells:
            node = next(node for node in host.numa_nodes if node.id == cell.host_node)
            assert set(cell.cpus) <= set(node.cpus)
            assert len(cell.cpus) == len(cell.vcpus)
        data = plan.to_dict()
        places = [item["guest_address"] for item in [*data["devices"], *data["virtio"]]]
        assert len(set(places)) == len(places)
        numbers = [port.bus for port in plan.root.walk()]
        assert len(set(numbers)) == len(numbers)
        assert max(port.last_bus for port in plan.root.walk()) < buses.BUSES
        for expander in data["root_complexes"]:
            assert expander["buses_needed"] <= expander["buses_room"]
        guest = predict(plan)
        for item in data["devices"]:
            assert [step.address for step in guest.path(item["guest_address"])] == item["guest_path"]
        for difference in kept(plan, host).differences:
            # Only where the host itself does not say on which node a device is, and the plan tells of it.
            assert {difference["host"], difference["guest"]} == {"NODE", "SYS"}
            addresses = [name.split()[1] for name in difference["pair"]]
            assert any(f"NUMA node {address} is on" in note for note in plan.notes for address in addresses)
        held = holdings(render(plan))
        assert sorted(held.devices) == sorted(function.address for function in plan.chosen.all())
        assert sorted(held.cpus) == sorted(cpu for cell in plan.processors.cells for cpu in cell.cpus)


@settings(max_examples=60, deadline=None)
@given(hosts(), st.sampled_from([whole, shared]))
def test_every_plan(host: Host, wishes: Any) -> None:
    plans = plan_domains(host, parse_specs(wishes(host)))
    invariants(plans, host)
    again = plan_domains(Host.from_dict(host.to_dict()), parse_specs(wishes(host)))
    for first, second in zip(plans, again):
        assert render(first) == render(second)
        assert first.to_dict() == second.to_dict()
        assert differences(render(first), render(second)) == []
        ET.fromstring(render(first))


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
