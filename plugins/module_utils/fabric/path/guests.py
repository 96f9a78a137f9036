# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follow a VF from its guest, or from its own host, to the port of its physical function. Pure.

A VF is known on both sides by its MAC: its host shows it for each VF (`ip link show`), the guest for its interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import End, Fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import vfs_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Seen, VirtualFunction


@dataclass(frozen=True)
class Carrier:
    """The VF of a guest's NIC, and the port of its physical function, by the names that links use."""

    port: End
    vf: VirtualFunction


class GuestPorts:
    """The ports of NICs that are no end of the fabric's links, as far as they are known.

    ``guests``: the hypervisor of each guest. ``readings``: the NICs of each host as roce_nic_info returns them.
    """

    def __init__(self, fabric: Fabric, guests: Mapping[str, str], readings: Mapping[str, Mapping[str, Any]]) -> None:
        self._fabric = fabric
        self._guests = guests
        self._readings = readings
        self._vfs: dict[str, list[Carrier]] = {}
        self.carriers: dict[End, Carrier] = {}
        self.unknown: dict[End, str] = {}

    def with_port(self, end: End, seen: Seen, physical_functions: Mapping[End, Seen]) -> Seen:
        """Return a VF with its physical function as parent, where that is known; any other NIC as it is.

        The port of a NIC that is no end of a link is recorded in ``carriers``, or in ``unknown`` why it is not known.
        """
        is_end = end in self._fabric.peer
        if not seen.nic.is_vf and (is_end or end.device not in self._guests):
            return seen
        carrier = self._carrier(end, seen)
        if isinstance(carrier, Carrier):
            parent = physical_functions[carrier.port].nic
            self.carriers[end] = carrier
            return replace(seen, parent=parent, nic=replace(seen.nic, may_mark=parent.trust == "dscp"))
        if not is_end:
            self.unknown[end] = f"not known beyond {end.port} at {end.device}: {carrier}"
        return seen

    def _carrier(self, end: End, seen: Seen) -> Carrier | str:
        """Return a NIC's VF and port, or why they are not known."""
        hypervisor = self._guests.get(end.device, end.device)
        if not seen.nic.is_vf:
            return f"it is a whole NIC of {hypervisor}; name it as the peer of its switch's port in roce_switch_ports"
        if hypervisor not in self._readings:
            return f"the NICs of its hypervisor {hypervisor} were not read; put it into roce_hosts"
        mac = self._readings[end.device][end.port].get("mac")
        matching = [carrier for carrier in self._vfs_of(hypervisor) if mac and carrier.vf.mac == mac]
        if len(matching) != 1:
            reasons = "; ".join(
                f"the VFs of {name}: {nic['vfs_unread']}"
                for name, nic in self._readings[hypervisor].items()
                if nic.get("vfs_unread")
            )
            return reasons or (
                f"{len(matching) or 'no'} VFs of {hypervisor} have its MAC {mac}; give them addresses with "
                "derive_addresses in gpu_host_sriov"
            )
        if matching[0].port not in self._fabric.peer:
            return f"no switch's port has its physical function {matching[0].port} as its peer"
        return matching[0]

    def _vfs_of(self, hypervisor: str) -> list[Carrier]:
        if hypervisor not in self._vfs:
            self._vfs[hypervisor] = [
                Carrier(End(hypervisor, name), vf)
                for name, reading in self._readings[hypervisor].items()
                for vf in vfs_of(f"host {hypervisor}: NIC {name}", reading)
            ]
        return self._vfs[hypervisor]


def read_guests(guests: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the hypervisor of each guest that has one. Raises FabricError."""
    hypervisors = {}
    for guest, hypervisor in (guests or {}).items():
        if hypervisor is not None and (not isinstance(hypervisor, str) or not hypervisor):
            raise FabricError(f"guest {guest}", f"{hypervisor!r} is no name of a host", "correct gpu_guest_host")
        if hypervisor is not None:
            hypervisors[guest] = hypervisor
    return hypervisors


def unread_guests(fabric: Fabric, guests: Mapping[str, str], readings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the guests on the fabric's hosts whose NICs were not read, each with the reason."""
    hosts = {*fabric.hosts()}
    for guest, hypervisor in sorted(guests.items()):
        if guest not in readings and hypervisor in hosts:
            yield guest, f"not known beyond {hypervisor}: the NICs of its guest {guest} were not read"
