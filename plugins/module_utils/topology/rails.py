# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of a node: each NIC of the compute fabric with the GPUs below its PCIe switch. Pure.

Kubelet's topology manager and the SR-IOV device plugin know NUMA nodes only, and Kubernetes' attribute ``pcieRoot``
root complexes only: one of either may have several switches. A rail's name is therefore the name of both the virtual
functions of its NIC and its GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Paths

# Path classes of devices below one switch or chain of switches (topology/paths.py), the nearest first.
OF_ONE_SWITCH = ("PIX", "PXB")


class Rail(NamedTuple):
    """A rail of a node: its number, its NIC, and the addresses of the GPUs below the NIC's switch (may be empty)."""

    number: int
    nic: Function
    gpus: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the name that virtual functions and GPUs share."""
        return f"rail{self.number}"


def rails(host: Host, ports: Sequence[str] = ()) -> tuple[list[Rail], list[str]]:
    """Return the rails of a node and what is not known, as lines.

    ``ports``: the planned ports of the compute fabric (RDMA devices or interfaces) in the order of the rails. Without
    them the NICs below the switch of a GPU are the rails, in the order of their PCI addresses.

    A GPU belongs to the nearest NIC, of equally near ones to the one with the fewest GPUs. A NIC that is left without a
    GPU shares the nearest one below its switch.
    """
    paths = Paths(host)
    gpus = _physical(host, "gpu")
    nics, notes = _planned(host, ports) if ports else (_below_switches_of(paths, gpus, host), [])
    chosen: dict[str, list[str]] = {nic.address: [] for nic in nics.values()}
    for gpu in gpus:
        nearest = _nearest(paths, gpu.address, {address: len(gpus_of_nic) for address, gpus_of_nic in chosen.items()})
        if nearest:
            chosen[nearest].append(gpu.address)
    alone = [gpu.address for gpu in gpus if not any(gpu.address in gpus_of_nic for gpus_of_nic in chosen.values())]
    shares = dict.fromkeys((gpu.address for gpu in gpus), 0)
    for address, gpus_of_nic in chosen.items():
        nearest = None if gpus_of_nic else _nearest(paths, address, shares)
        if nearest:
            gpus_of_nic.append(nearest)
            shares[nearest] += 1
    if alone:
        notes.append(f"GPUs without a NIC of a rail below their PCIe switch: {', '.join(alone)}")
    return [Rail(number, nic, tuple(chosen[nic.address])) for number, nic in sorted(nics.items())], notes


def _physical(host: Host, kind: str) -> list[Function]:
    return sorted(
        (one for one in host.functions if one.kind == kind and one.physical_function is None),
        key=lambda function: function.address,
    )


def _planned(host: Host, ports: Sequence[str]) -> tuple[dict[int, Function], list[str]]:
    by_name = {
        name: nic
        for nic in _physical(host, "nic")
        for name in (*nic.interfaces.get("net", []), *nic.interfaces.get("rdma", []))
    }
    missing = [port for port in ports if port not in by_name]
    notes = [f"planned ports that the recording lacks: {', '.join(missing)}"] if missing else []
    return {number: by_name[port] for number, port in enumerate(ports) if port in by_name}, notes


def _below_switches_of(paths: Paths, gpus: Sequence[Function], host: Host) -> dict[int, Function]:
    devices = [
        nic
        for nic in _physical(host, "nic")
        if any(paths.path_class(nic.address, gpu.address) in OF_ONE_SWITCH for gpu in gpus)
    ]
    return dict(enumerate(devices))


def _nearest(paths: Paths, address: str, loads: dict[str, int]) -> str | None:
    """Return the nearest of the devices below the same switch, of equally near ones the one with the least load."""
    ranked = []
    for device, load in loads.items():
        path = paths.path_class(address, device)
        if path in OF_ONE_SWITCH:
            ranked.append((OF_ONE_SWITCH.index(path), load, device))
    return min(ranked)[2] if ranked else None
