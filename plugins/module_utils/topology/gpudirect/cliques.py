# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPUs that may reach each other by PCIe: the GPUDirect P2P cliques of virtual machines. Pure.

In a virtual machine, NVIDIA's driver uses peer-to-peer in two cases: below a switch that is in the driver's own list,
which contains no emulated switch, and among GPUs that the hypervisor puts into one clique. A clique is a vendor
capability of QEMU's vfio-pci, x-nv-gpudirect-clique (qemu-devel 2017-08 "vfio/pci: Add NVIDIA GPUDirect Cliques
support", QEMU hw/vfio/pci-quirks.c). The hypervisor must know that the host routes the requests of these GPUs. This
module decides that by the rules of Linux drivers/pci/p2pdma.c (calc_map_type_and_dist, host_bridge_whitelist): requests
go straight below a switch whose ports do not redirect them, or through a host bridge that is known to route them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.pci.registers import PCI_ACS_EC, PCI_ACS_RR
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import VIRTUAL_MACHINES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    NVIDIA,
    has_nvswitches,
    unreachable_memory_reason,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Paths

# nv_gpudirect_clique of QEMU: a number of four bits.
MOST_CLIQUES = 16

# Intel's host bridges that route between root ports: device id of 00.0 on a root bus -> True if the bridge also routes
# to other root complexes (pci_p2pdma_whitelist of Linux drivers/pci/p2pdma.c; REQ_SAME_HOST_BRIDGE: it does not).
INTEL_HOST_BRIDGES = {
    0x3C00: False,
    0x3C01: False,
    0x2F00: False,
    0x2F01: False,
    0x2030: True,
    0x2031: True,
    0x2032: True,
    0x2033: True,
    0x2020: True,
    0x09A2: True,
}
# AMD's processors since Zen (family 17h) route between all root ports (cpu_supports_p2pdma in the same file).
AMD_ZEN = re.compile(r"\b(EPYC|Ryzen)\b")


@dataclass(frozen=True)
class Clique:
    """The GPUs of one clique, by their addresses."""

    number: int
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Cliques:
    """The cliques of a virtual machine, and the reasons why GPUs are in none, as text."""

    cliques: tuple[Clique, ...]
    notes: tuple[str, ...] = ()

    def number_of(self, address: str) -> int | None:
        """Return the clique of a GPU; None if it is in none."""
        return next((clique.number for clique in self.cliques if address in clique.gpus), None)


def find(host: Host, gpus: list[Function], nvswitches: list[Function]) -> Cliques:
    """Return the cliques of the ``gpus`` of one virtual machine, which has ``nvswitches``.

    GPUs that NVLink connects need no clique. A GPU that no other can reach is in none: a clique of one has no effect.
    """
    unreachable = {item.address: unreachable_memory_reason(item) for item in gpus}
    nvidia_gpus = sorted(item.address for item in gpus if item.vendor_id == NVIDIA and item.address.endswith(".0"))
    if len(nvidia_gpus) < 2:
        return Cliques(())
    if nvswitches or has_nvswitches(host):
        return Cliques((), ("no GPUDirect P2P clique: NVLink joins the GPUs of this host's NVSwitch board",))
    notes = [
        f"no GPUDirect P2P of GPU {address}: {unreachable[address]}" for address in nvidia_gpus if unreachable[address]
    ]
    nvidia_gpus = [address for address in nvidia_gpus if not unreachable[address]]
    reach = _Reach(host, gpus)
    groups: list[list[str]] = []
    for gpu in nvidia_gpus:
        reasons = []
        for group in groups:
            reason = next(filter(None, (reach.forbidden(gpu, member) for member in group)), None)
            if reason is None:
                group.append(gpu)
                break
            reasons.append(reason)
        else:
            groups.append([gpu])
            notes += reasons[:1]
    cliques = [tuple(group) for group in groups if len(group) > 1][:MOST_CLIQUES]
    return Cliques(tuple(Clique(number, group) for number, group in enumerate(cliques)), tuple(dict.fromkeys(notes)))


class _Reach:
    """The reachability of GPUs, from the current ACS bits of ports and those that the plan sets."""

    def __init__(self, host: Host, gpus: list[Function]) -> None:
        self._host = host
        self._paths = Paths(host)
        self._plan = AcsPlan(host, gpus, VIRTUAL_MACHINES)
        self._masks = {port.address: port.mask for port in self._plan.ports}

    def forbidden(self, first: str, second: str) -> str | None:
        """Return why the host does not route requests from one GPU to the other; None if it does."""
        pair = f"no GPUDirect P2P between GPU {second} and {first}"
        turn = self._plan.turns(first, second)
        for port in (step for address in (first, second) for step in self._paths.path_to(address)[:-1]):
            if port.acs and port.acs.control & PCI_ACS_EC:
                return f"{pair}: ACS egress control is on at port {port.address}"
        if turn and not any(self._redirects(port) for port in turn):
            return None
        functions = self._host.function(first), self._host.function(second)
        nodes = {self._host.node_of(function) for function in functions}
        if None in nodes or len(nodes) > 1:
            return f"{pair}: they are on different NUMA nodes"
        same_complex = functions[0].root_complex == functions[1].root_complex
        across = self._routes(functions[0]), self._routes(functions[1])
        if None in across or (not same_complex and False in across):
            return f"{pair}: the host bridge above is not known to route between its ports"
        return None

    def _redirects(self, address: str) -> bool:
        acs = self._host.function(address).acs
        if acs is None:
            return False
        mask = self._masks.get(address)
        return bool((mask.applied(acs.control, acs.capability) if mask else acs.control) & PCI_ACS_RR)

    def _routes(self, function: Function) -> bool | None:
        """Return True if the host bridge routes to other root complexes, False if only between its own ports.

        None if it is not known to route at all.
        """
        cpu = self._host.cpu
        if cpu.vendor == "AuthenticAMD":
            return True if AMD_ZEN.search(cpu.model or "") else None
        bridges = [
            item.device_id
            for item in self._host.functions
            if item.root_complex == function.root_complex
            and item.parent is None
            and item.address.endswith(":00.0")
            and item.vendor_id == 0x8086
        ]
        return next((INTEL_HOST_BRIDGES[device] for device in bridges if device in INTEL_HOST_BRIDGES), None)
