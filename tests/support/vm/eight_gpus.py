# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host with eight GPUs, and plans of several virtual machines on it."""

from __future__ import annotations

from itertools import permutations

from machines import bridge, endpoint

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Host,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def addresses(of: DomainPlan) -> list[str]:
    """Return the addresses of a plan's devices."""
    return [function.address for function in of.chosen.all()]


def big() -> Host:
    """Return a host of two nodes: a root complex and two switches per node, two GPUs and a NIC per switch."""
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
    """Return a request for a number of GPUs."""
    return {"name": name, "memory_mib": 4096, "huge_page_mib": 1024, "vcpus": 4, "gpus": {"count": gpus}, **more}


def together(host: Host, *requests: dict[str, object], **more: object) -> dict[str, list[str]]:
    """Return the devices of each request; they must not depend on the order of the requests."""
    results = [
        {item.name: addresses(item) for item in plan_domains(host, parse_specs(list(order)), **more)}
        for order in permutations(requests)
    ]
    assert all(result == results[0] for result in results)
    return results[0]
