# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts with NVSwitch baseboards, and requests for their GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from machines import bridge, endpoint

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import mark_management
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Host,
    NumaNode,
    RootComplex,
    Sriov,
)


def hgx(gpu: int = 0x2330, switch: int = 0x22A3, switches: int = 4, gpus: int = 8) -> Host:
    """Return a host of two nodes: each pair of GPUs has its own switch, and the NVSwitches are on the first node."""
    functions = []
    for pair in range(gpus // 2):
        base = 0x10 + 0x18 * pair
        root, node = f"pci0000:{base:02x}", int(pair >= gpus // 4)
        port, up = f"0000:{base:02x}:00.0", f"0000:{base + 1:02x}:00.0"
        functions += [bridge(port, None, root, "root_port"), bridge(up, port, root, "switch_upstream")]
        for leaf in range(2):
            down = f"0000:{base + 2:02x}:0{leaf}.0"
            functions.append(bridge(down, up, root, "switch_downstream"))
            functions.append(endpoint(f"0000:{base + 3 + leaf:02x}:00.0", down, root, numa_node=node, device_id=gpu))
    port, up = "0000:01:00.0", "0000:02:00.0"
    functions += [bridge(port, None, "pci0000:01", "root_port"), bridge(up, port, "pci0000:01", "switch_upstream")]
    for leaf in range(switches):
        down = f"0000:03:0{leaf}.0"
        functions.append(bridge(down, up, "pci0000:01", "switch_downstream"))
        functions.append(
            endpoint(f"0000:{4 + leaf:02x}:00.0", down, "pci0000:01", "gpu", numa_node=0, device_id=switch)
        )
        functions[-1].kind, functions[-1].class_code = "nvswitch", 0x068000
    cores = 64
    nodes = [
        NumaNode(
            node,
            list(range(node * cores, (node + 1) * cores)),
            [],
            1 << 40,
            distances={str(other): 10 if other == node else 21 for other in (0, 1)},
        )
        for node in (0, 1)
    ]
    roots = sorted({item.root_complex for item in functions})
    node_of = {item.root_complex: item.numa_node for item in functions if item.numa_node is not None}
    functions.sort(key=lambda item: item.address)
    return Host(nodes, [RootComplex(name, 0, int(name[-2:], 16), node_of.get(name)) for name in roots], functions)


def gpus(host: Host) -> list[str]:
    return sorted(item.address for item in host.functions if item.kind == "gpu")


def vm(name: str, count: int, **more: Any) -> dict[str, Any]:
    request = {
        "name": name,
        "memory_mib": 4096,
        "huge_page_mib": 1024,
        "vcpus": 2,
        "pin_cpus": False,
        "gpus": {"count": count},
    }
    return {**request, **more}


def hgx_nvlink5(gpu: int = 0x2901, read: bool = True) -> Host:
    """Return a host with an NVLink 5 board: four functions of one ConnectX-7 manage it, and two more are NICs.

    Two of the four have the mark in VPD. If VPD was not ``read``, all six look like NICs.
    """
    host = hgx(gpu, switches=6)
    for number, function in enumerate(item for item in host.functions if item.kind == "nvswitch"):
        function.kind, function.class_code, function.vendor_id, function.device_id = "nic", 0x020700, 0x15B3, 0x1021
        function.numa_node = 0
        if number < 4:
            function.address = f"0000:04:00.{number}"
        function.manages_nvswitches = number < 2 if read else None
    mark_management(host.functions)
    for function in host.functions:
        # The four functions are behind one port, which isolates them.
        if function.address.startswith("0000:04:00."):
            function.parent = "0000:03:00.0"
    host.functions.sort(key=lambda item: item.address)
    return host


def with_vfs(host: Host, gpus_with_vfs: int, of_each: int = 1) -> Host:
    """Add virtual functions to the first GPUs of a host, which are MI300X, as their host driver makes them."""
    for function in [item for item in host.functions if item.kind == "gpu"]:
        function.vendor_id, function.device_id, function.driver = 0x1002, 0x74A1, "gim"
    for function in [item for item in host.functions if item.kind == "gpu"][:gpus_with_vfs]:
        addresses = [f"{function.address[:-1]}{number + 1}" for number in range(of_each)]
        function.sriov = Sriov(8, of_each, addresses)
        for address in addresses:
            virtual = replace(function, address=address, device_id=0x74B5, sriov=None)
            virtual.iommu_group = int(address.replace(":", "").replace(".", ""), 16)
            virtual.physical_function = function.address
            host.functions.append(virtual)
    host.functions.sort(key=lambda item: item.address)
    return host
