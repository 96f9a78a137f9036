#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the fidelity of placements: how much of each recorded server's topology a guest with all devices sees.

Two shares are printed for each placement. The first is the share of all pairs of GPUs, NICs and NVMe drives that are as
far apart in the guest as on the host (PIX, PXB, PHB, NODE, SYS). The second is the same share of the GPU-GPU and
GPU-NIC pairs that share a switch (PIX, PXB), the paths that GPUDirect depends on. The rules of the other placements are
taken from their documentation:

- KubeVirt with the gate PCINUMAAwareTopology: one expander bus for each NUMA node, one root port for each device; a
  device without a node is on the default root bus. kubevirt/enhancements, VEP 115, "Core Approach"
  (veps/sig-compute/115-pcie-numa-topology-awareness); kubevirt/kubevirt#16632, #17886, #19103.
- Nova: no address in the XML, so libvirt gives each device a root port on the default root bus, which has no NUMA
  node (libvirt, docs/pci-addresses.rst and the pcie-root-port rule of its address assignment). KubeVirt without the
  gate does the same: VEP 115 describes it as "uniformly accessible under a single host bridge".
- OpenNebula, for a virtual machine that is pinned to NUMA nodes: one expander bus for each node, the device's address
  by its physical node (OpenNebula/one#7077), each device on a separate root port (one#6492). Without pinning, its
  placement is like Nova's.

Every guest has the NUMA cells and devices of our plan. Each function of a device is treated as a separate device.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import is_physical
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, RootComplex
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import PCI_BRIDGE_CLASS, predict
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

Guest = tuple[Host, dict[str, str]]  # the guest, and each device's address in it by the address on the host


def ours(plan: DomainPlan) -> Guest:
    """Place the devices as in the plan."""
    places = {device["host_address"]: device["guest_address"] for device in plan.to_dict()["devices"]}
    return predict(plan), places


def port_a_device(plan: DomainPlan, expander_a_node: bool) -> Guest:
    """Place each device on its own root port: on its node's expander bus, or on the default root bus without a node."""
    predicted = predict(plan)
    complexes = {None: RootComplex("pci0000:00", 0, 0, None)}
    places: dict[str, str] = {}
    functions: list[Function] = []
    for number, device in enumerate(plan.to_dict()["devices"]):
        node = device["cell"] if expander_a_node else None
        if node not in complexes:
            bus = 0x20 * len(complexes)
            complexes[node] = RootComplex(f"pci0000:{bus:02x}", 0, bus, node)
        root = complexes[node]
        port = f"0000:{root.bus:02x}:{number:02x}.0"
        functions.append(
            Function(port, root.name, None, PCI_BRIDGE_CLASS, 0x1B36, 0x0C, "bridge", "root_port", numa_node=node)
        )
        # The number of the bus has no meaning here, except that every port has a separate bus.
        place = f"0000:{number + 1:02x}:1f.0"
        places[device["host_address"]] = place
        functions.append(Function(place, root.name, port, 0, 0, 0, device["kind"], "endpoint", numa_node=node))
    return Host(predicted.numa_nodes, list(complexes.values()), functions, source="placement"), places


PLACEMENTS: dict[str, Callable[[DomainPlan], Guest]] = {
    "ours": ours,
    "KubeVirt": lambda plan: port_a_device(plan, expander_a_node=True),
    "OpenNebula": lambda plan: port_a_device(plan, expander_a_node=True),
    "Nova": lambda plan: port_a_device(plan, expander_a_node=False),
}


def whole(host: Host) -> DomainPlan:
    """Plan a virtual machine with every GPU, NIC and NVMe drive that the host does not use itself."""

    def of(kind: str) -> dict[str, list[str]]:
        functions = (item for item in host.functions if item.kind == kind and not item.used_by_host)
        return {"addresses": [item.address for item in functions if is_physical(item)]}

    request = {"name": "all", "memory_mib": 4096, "gpus": of("gpu"), "nics": of("nic"), "nvme": of("nvme")}
    return plan_domains(host, parse_specs([request]))[0]


def shares(host: Host, plan: DomainPlan, place: Callable[[DomainPlan], Guest]) -> tuple[list[bool], list[bool]]:
    """Return whether each pair keeps its distance: all pairs, and pairs of a GPU and a GPU or NIC with one switch."""
    guest, places = place(plan)
    # The plan includes NVSwitches, but no path class is defined for them.
    kinds = {function.address: function.kind for function in plan.chosen.all() if function.kind != "nvswitch"}
    on_host = pairs(host, {address: address for address in kinds})
    inside = pairs(guest, {address: places[address] for address in kinds})
    every = [inside[pair] == found for pair, found in on_host.items()]
    near = [
        inside[pair] == found
        for pair, found in on_host.items()
        if found in ("PIX", "PXB") and sorted(kinds[address] for address in pair) in (["gpu", "gpu"], ["gpu", "nic"])
    ]
    return every, near


def share(kept: list[bool]) -> str:
    """Return a share as text: "37% of 120", or "-" without pairs. It is 100% only if all pairs are kept."""
    if not kept:
        return "-"
    percent = 100 if all(kept) else min(round(100 * sum(kept) / len(kept)), 99)
    return f"{percent}% of {len(kept)}"


def main() -> int:
    """Print the table and return 0."""
    print("all pairs | GPU-GPU and GPU-NIC pairs that share a switch")
    print(f"{'':<22}" + "".join(f"{name:<26}" for name in PLACEMENTS))
    totals: dict[str, tuple[list[bool], list[bool]]] = {name: ([], []) for name in PLACEMENTS}
    for path in sorted((ROOT / "tests/recordings").glob("*.json")):
        host = read_saved(json.loads(path.read_text(encoding="utf-8"))["topology"])
        host.cpu.architecture = "x86_64"  # the planner does not support POWER, but its PCI tree is measured, too
        plan = whole(host)
        row = f"{path.stem:<22}"
        for name, place in PLACEMENTS.items():
            every, near = shares(host, plan, place)
            totals[name][0].extend(every)
            totals[name][1].extend(near)
            row += f"{share(every) + ' | ' + share(near):<26}"
        print(row.rstrip())
    print((f"{'all':<22}" + "".join(f"{share(e) + ' | ' + share(n):<26}" for e, n in totals.values())).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
