# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follow a NIC from its guest, or a VF from its own host, to the port of its physical function. Pure.

It is known on both sides by its MAC: the host shows it for each VF (`ip link show`) and for a NIC that it still has,
the guest for its interface.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic, VirtualFunction
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.hosts import NicsByHost
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

NO_PATH = "what it sends was checked on no hop"
NO_NICS = "see 'rdma link' on it, or take it out of roce_hosts"
UNLINKED = "name it as the peer of its switch's port in roce_switch_ports, or leave it out of roce_host_nics"
VF_ADDRESSES = "give them addresses with derive_addresses in gpu_host_sriov"
GUEST_HOST = f"if it is a guest, name its hypervisor in gpu_guest_host; if not, {VF_ADDRESSES}"
UNREAD_GUEST = "put it into roce_hosts, and name it in --limit"


@dataclass(frozen=True)
class Carrier:
    """The port of a guest's NIC, by the names that links use, and its VF; None for a whole physical function."""

    port: End
    vf: VirtualFunction | None


class GuestPorts:
    """The ports of VFs, and of whole NICs of guests that are no end of the fabric's links, as far as they are known.

    ``guests``: the hypervisor of each guest.
    """

    def __init__(self, fabric: Cabling, guests: Mapping[str, str], readings: NicsByHost) -> None:
        self._fabric = fabric
        self._guests = guests
        self._readings = readings
        self._vfs: dict[str, list[Carrier]] = {}
        self.carriers: dict[End, Carrier] = {}
        self.unknown: dict[End, str] = {}

    def with_port(self, end: End) -> SeenNic:
        """Return a NIC as it was read; a VF with its physical function as parent, where that is known.

        The port of a VF, or of a guest's NIC that is no end of a link, is recorded in ``carriers``, or in ``unknown``
        why it is not known.
        """
        seen = self._readings[end.device][end.port].seen
        if not seen.nic.is_vf and (end in self._fabric.peer or end.device not in self._guests):
            return seen
        carrier = self._carrier_of_vf(end) if seen.nic.is_vf else self._carrier_of_whole(end)
        if isinstance(carrier, str):
            self.unknown[end] = f"not known beyond {end.port} at {end.device}: {carrier}"
            return seen
        self.carriers[end] = carrier
        if carrier.vf is None:
            return seen
        parent = self._readings[carrier.port.device][carrier.port.port].seen.nic
        return replace(seen, parent=parent, nic=replace(seen.nic, may_mark=parent.trust == "dscp"))

    def _carrier_of_whole(self, end: End) -> Carrier | str:
        """Return the port of a whole NIC of a guest, or why it is not known."""
        hypervisor = self._guests[end.device]
        mac = self._readings[end.device][end.port].mac
        matching = [
            Carrier(End(hypervisor, name), None)
            for name, reading in self._readings.get(hypervisor, {}).items()
            if mac and reading.mac == mac and not reading.seen.nic.is_vf
        ]
        if len(matching) == 1 and matching[0].port in self._fabric.peer:
            return matching[0]
        return (
            f"it is a whole NIC of {hypervisor}, which shows no cabled NIC with its MAC {mac}; "
            f"name {end} as the peer of its switch's port in roce_switch_ports"
        )

    def _carrier_of_vf(self, end: End) -> Carrier | str:
        """Return a VF and its port, or why they are not known."""
        hypervisor = self._guests.get(end.device, end.device)
        if hypervisor not in self._readings:
            return f"the NICs of its hypervisor {hypervisor} were not read; put it into roce_hosts"
        mac = self._readings[end.device][end.port].mac
        matching = [carrier for carrier in self._vfs_of(hypervisor) if mac and carrier.vf and carrier.vf.mac == mac]
        if len(matching) != 1:
            reasons = "; ".join(
                f"the VFs of {name}: {nic.vfs_unread}"
                for name, nic in self._readings[hypervisor].items()
                if nic.vfs_unread
            )
            return reasons or (
                f"{len(matching) or 'no'} VFs of {hypervisor} have its MAC {mac}; "
                + (GUEST_HOST if hypervisor == end.device and not matching else VF_ADDRESSES)
            )
        port = matching[0].port
        if end in self._fabric.peer:
            return f"a switch's port has this VF as its peer in roce_switch_ports; name {port}, which has the cable"
        if port not in self._fabric.peer:
            return f"no switch's port has its physical function {port} as its peer in roce_switch_ports"
        return matching[0]

    def _vfs_of(self, hypervisor: str) -> list[Carrier]:
        if hypervisor not in self._vfs:
            self._vfs[hypervisor] = [
                Carrier(End(hypervisor, name), vf)
                for name, reading in self._readings[hypervisor].items()
                for vf in reading.vfs
            ]
        return self._vfs[hypervisor]


def read_guests(guests: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the hypervisor of each guest that has one. Raises FabricError."""
    hypervisors = {}
    for guest, hypervisor in (guests or {}).items():
        if hypervisor is not None and (not isinstance(hypervisor, str) or not hypervisor):
            raise FabricError(
                f"{hypervisor!r} is no name of a host", "correct gpu_guest_host", subject=f"guest {guest}"
            )
        if hypervisor is not None:
            hypervisors[guest] = hypervisor
    return hypervisors


def unread_guests(fabric: Cabling, guests: Mapping[str, str], readings: NicsByHost) -> Iterator[tuple[str, str]]:
    """Yield the guests on the fabric's hosts whose NICs were not read, each with the reason.

    None of ``unknown_nics``, whose hypervisor has NICs for them.
    """
    hosts = {*fabric.hosts()}
    for guest, hypervisor in sorted(guests.items()):
        if guest not in readings and hypervisor in hosts and not _gives_nics(fabric, hypervisor, readings):
            yield guest, f"not known beyond {hypervisor}: the NICs of its guest {guest} were not read"


def unknown_nics(
    fabric: Cabling, guests: Mapping[str, str], readings: NicsByHost, named_nics: Collection[End]
) -> Iterator[tuple[str, Claim]]:
    """Yield what sends in no path, although it is of a host that was read: its place, and the finding.

    ``known``: NICs that are no end of a link, but whose port is known, or reported as not known.
    """
    for host, nics in readings.items():
        if not nics and host not in guests.values():
            yield host, fault("it has RoCE NICs", "at least one", "none", f"{NO_PATH}; {NO_NICS}")
        for end in (End(host, name) for name in nics):
            if end not in fabric.peer and end not in named_nics:
                yield str(end), fault("a link of the inventory ends here", "a link", None, f"{NO_PATH}; {UNLINKED}")
    for guest, hypervisor in sorted(guests.items()):
        if guest not in readings and _gives_nics(fabric, hypervisor, readings):
            claim = f"the NICs of its guest {guest} were read"
            yield hypervisor, fault(claim, "its NICs", None, f"{NO_PATH}; {UNREAD_GUEST}")


def _gives_nics(fabric: Cabling, hypervisor: str, readings: NicsByHost) -> bool:
    """Return true for a host that was read and has VFs, or lacks a NIC that a link has: its guests may have them."""
    nics = readings.get(hypervisor)
    if nics is None:
        return False
    linked = {nic_end.port for _device, nic_end, _far in fabric.neighbours.get(hypervisor, ())}
    return bool(linked - set(nics)) or any(nic.vfs or nic.vfs_unread for nic in nics.values())
