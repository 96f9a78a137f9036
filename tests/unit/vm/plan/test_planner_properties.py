# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Properties of all plans, on servers made up by hypothesis."""

from __future__ import annotations

import contextlib
import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import MIB, bridge, endpoint, lab, request
from made_up_hosts import hosts, whole

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.checks import check
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Cpu,
    Function,
    Host,
    NumaNode,
    RootComplex,
    TopologyError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import bus_numbers, pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import kept, predict
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def shared(host: Host) -> list[dict[str, Any]]:
    """Return requests for virtual machines with one GPU each, as many as there are GPUs, but at most three."""
    gpus = sum(function.kind == "gpu" for function in host.functions)
    count = min(gpus, 3)
    return [
        {"name": f"vm-{number}", "memory_mib": 1024, "huge_page_mib": 1024, "vcpus": 1, "gpus": {"count": 1}}
        for number in range(count)
    ]


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
        # A guest that firmware can enumerate also passes the topology's own checks for any machine.
        check(guest)
        numbers = [port.bus for port in plan.root.walk()]
        assert len(set(numbers)) == len(numbers)
        assert max(port.last_bus for port in plan.root.walk()) < bus_numbers.BUSES
        for expander in data["root_complexes"]:
            assert expander["buses_needed"] <= expander["buses_capacity"]
        for port in plan.root.walk():
            if port.model in (pci_tree.ROOT_PORT, pci_tree.DOWNSTREAM):
                assert len(port.ports) + bool(port.endpoints) <= 1
                assert len(port.endpoints) <= pci_tree.FUNCTIONS
        for item in data["devices"]:
            assert [step.address for step in guest.path(item["guest_address"])] == item["guest_path"]
        fidelity = data["fidelity"]
        assert fidelity["equal"] + len(fidelity["differences"]) == fidelity["total"]
        assert fidelity == kept(plan, host).to_dict()
        for difference in fidelity["differences"]:
            # The only differences are about NUMA nodes, which a guest cannot express, and the plan explains them.
            assert {difference["host"], difference["guest"]} == {"NODE", "SYS"}
            addresses = [name.split()[1] for name in difference["pair"]]
            assert any("node" in note and address in note for note in plan.notes for address in addresses), difference
        held = holdings(render(plan))
        assert sorted(held.devices) == sorted(function.address for function in plan.chosen.all())
        assert sorted(held.cpus) == sorted(cpu for cell in plan.processors.cells for cpu in cell.cpus)


TOO_LITTLE = r"needs \d+ buses, but a guest has 256|requests 1 GPU, but only|CPUs of NUMA node \d+, but|no CPU is left"


def planned(host: Host, requests: list[dict[str, Any]]) -> list[DomainPlan]:
    """Return the plans; if something is insufficient, check that the message says what, and return no plans."""
    with contextlib.suppress(DomainError):
        return plan_domains(host, parse_specs(requests))
    with pytest.raises(DomainError, match=TOO_LITTLE):
        plan_domains(host, parse_specs(requests))
    return []


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(hosts(), st.sampled_from([whole, shared]))
def test_every_plan_meets_the_invariants_and_is_reproducible(host: Host, requests: Any) -> None:
    plans = planned(host, requests(host))
    invariants(plans, host)
    again = planned(read_saved(json.loads(json.dumps(host.to_dict()))), requests(host))
    for first, second in zip(plans, again):
        assert render(first) == render(second)
        assert json.dumps(first.to_dict()) == json.dumps(second.to_dict())
        assert differences(render(first), render(second)) == []
        ET.fromstring(render(first))
    assert len(plans) == len(again)


def calls(work: Callable[[], object]) -> int:
    """Count the Python functions that a call runs: a measure of its time that is independent of the machine's load."""
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
def test_the_cost_of_planning_grows_at_most_quadratically(shape: str) -> None:
    def machine(size: int) -> Host:
        functions: list[Function] = []
        root = RootComplex("pci0000:10", 0, 0x10, 0)
        above: str | None = None
        for number in range(size):
            if shape == "wide":
                above = f"0000:10:{number:02x}.0"
                functions.append(bridge(above, None, root.name, "root_port"))
            else:
                # A chain of switches, with a device on each.
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
    # The number of pairs is quadratic, and a tree twice as deep has paths twice as long: the cost may not grow faster.
    assert all(second < 5 * first for first, second in zip(costs, costs[1:])), costs


def leaves(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to every part of nested data."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way, *(leaf for key, part in parts for leaf in leaves(part, (*way, key)))]


@given(st.data())
def test_a_damaged_recording_gives_an_error_or_a_valid_plan(pick: st.DataObject) -> None:
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
        host = read_saved(data)
        plans = plan_domains(host, parse_specs([request()]))
        for plan in plans:
            ET.fromstring(render(plan))
    except (TopologyError, DomainError):
        return
    invariants(plans, host)
