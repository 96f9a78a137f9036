# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPUs that may reach each other by PCIe: the GPUDirect P2P cliques of virtual machines. Pure.

In a virtual machine, NVIDIA's driver uses peer-to-peer in two cases: below a switch that is in the driver's own list,
which contains no emulated switch, and among GPUs that the hypervisor puts into one clique. A clique is a vendor
capability of QEMU's vfio-pci, x-nv-gpudirect-clique (qemu-devel 2017-08 "vfio/pci: Add NVIDIA GPUDirect Cliques
support", QEMU hw/vfio/pci-quirks.c). The hypervisor must know that the host routes the requests of these GPUs, by
the rules of ``reach``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import VIRTUAL_MACHINES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.reach import Reach
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    NVIDIA,
    has_nvswitches,
    unreachable_memory_reason,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

# nv_gpudirect_clique of QEMU: a number of four bits.
MOST_CLIQUES = 16


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
    reach = Reach(host, gpus, VIRTUAL_MACHINES)
    groups: list[list[str]] = []
    for gpu in nvidia_gpus:
        reasons = []
        for group in groups:
            reason = next(filter(None, (_forbidden(reach, gpu, member) for member in group)), None)
            if reason is None:
                group.append(gpu)
                break
            reasons.append(reason)
        else:
            groups.append([gpu])
            notes += reasons[:1]
    cliques = [tuple(group) for group in groups if len(group) > 1][:MOST_CLIQUES]
    return Cliques(tuple(Clique(number, group) for number, group in enumerate(cliques)), tuple(dict.fromkeys(notes)))


def _forbidden(reach: Reach, gpu: str, peer: str) -> str | None:
    reason = reach.forbidden(gpu, peer, within_node=True)
    return reason and f"no GPUDirect P2P between GPU {peer} and {gpu}: {reason}"
