# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A guest's own view on vSphere: a port for each device at its slot, and no switch. It is made up, not recorded."""

from __future__ import annotations

from typing import Any

from simulated_vcenter import GIB, VCenter
from vsphere_requests import params, run, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Bar,
    Cpu,
    Function,
    Host,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.converge import info


def started(vcenter: VCenter, **more: Any) -> dict[str, Any]:
    """Make and start the virtual machine of ``vm``, with slots for its devices; return info's result."""
    run(vcenter, vm(**more), state="running")
    return info({**params(vcenter), "domains": [vm(**more)], "names": []})


def function(address: str, parent: str | None, of: Function | None = None, node: int | None = None) -> Function:
    """Return a port, or a device like ``of`` on the host."""
    if of is None:
        return Function(address, "pci0000:00", parent, 0x060400, 0x15AD, 0x07A0, "bridge", "root_port")
    found = Function(
        address, "pci0000:00", parent, of.class_code, of.vendor_id, of.device_id, of.kind, "endpoint", numa_node=node
    )
    found.max_read_request_bytes = 4096
    found.bars = [Bar(0, 128 * GIB if of.kind == "gpu" else 1 << 20, "memory", 64, True)]
    return found


def guest(host: Host, ways: dict[str, list[str]]) -> Host:
    """Return the guest whose devices are at the end of ``ways``, each on the node of its host device."""
    known = host.by_address()
    functions = []
    for bus, (address, (bridge, device)) in enumerate(sorted(ways.items(), key=lambda item: item[1]), 3):
        port = f"0000:00:{bridge}"
        functions += [
            function(port, None),
            function(f"0000:{bus:02x}:{device}", port, known[address], host.node_of(known[address])),
        ]
    nodes = [
        NumaNode(number, [2 * number, 2 * number + 1], [[2 * number], [2 * number + 1]], 32 * GIB) for number in (0, 1)
    ]
    functions.sort(key=lambda item: item.address)
    return Host(nodes, [RootComplex("pci0000:00", 0, 0)], functions, Cpu("x86_64", "GenuineIntel"))
