# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NICs of all hosts as they were read, and what they show of their links beside their QoS. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import End
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import (
    NicReading,
    check_name,
    reading_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import NicRequest, read_nics
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault, unseen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import HOST, SwitchSpec
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.overrides import LINE_RATE, LINE_RATE_WRONG
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

NicsByHost = Mapping[str, Mapping[str, NicReading]]
INVENTORY_RATE = "roce_host_nics gives it the speed of the switch's port"
READABLE_NICS = "its NICs can be read"
NO_SPEED = "the driver shows no speed: the link is down, or has none"
COVERED = "each active port of the card is a NIC of the inventory"
UNCOVERED = "NCCL uses all active RDMA devices, and these have no policy; add them to roce_host_nics, or take them down"
NO_CABLE = "roce_host_nics gives it no cable_m, so its ingress buffers are left to its driver"


class HostReadings(NamedTuple):
    """The NICs by host and name, and the inventory's speed and cable of them where it has any (``requests``).

    ``unread``: why the other hosts cannot be read: NICs that are not as roce_nic_info returns them, or settings of the
    inventory that are not valid.
    """

    nics: dict[str, dict[str, NicReading]]
    requests: dict[End, NicRequest]
    unread: dict[str, FabricError]


def read_hosts(readings: Mapping[str, Any], inventory: Mapping[str, Any] | None) -> HostReadings:
    """Read the NICs of each host for itself. ``inventory``: roce_host_nics by host."""
    hosts = HostReadings({}, {}, {})
    seen: dict[str, SeenNic] = {}
    requests_by_text: dict[str, dict[str, NicRequest]] = {}  # hosts of a fleet are alike
    for host, nics in readings.items():
        settings = (inventory or {}).get(host)
        text = repr(settings)
        try:
            if text not in requests_by_text:
                requests_by_text[text] = read_nics(settings) if settings else {}
            requests = requests_by_text[text]
            if not isinstance(nics, Mapping):
                raise FabricError("not a dictionary", "give the result of roce_nic_info unchanged", subject="its NICs")
            read = {
                nic: reading_of(f"NIC {nic}", data, seen, _shared_buffer_reason(requests.get(nic)))
                for nic, data in nics.items()
            }
            for nic, reading in read.items():
                check_name(f"NIC {nic}", reading.seen.nic, nic)
            hosts.nics[host] = read
            hosts.requests.update({End(host, nic): request for nic, request in requests.items()})
        except FabricError as error:
            hosts.unread[host] = FabricError(error.cause, error.remedy, subject=f"host {host}: {error.subject}")
    return hosts


def _shared_buffer_reason(request: NicRequest | None) -> str | None:
    """Return the reason why a NIC's lossless priorities need no ingress buffer of their own, or None."""
    return NO_CABLE if request is not None and request.cable_m is None else None


def port_findings(specs: Iterable[SwitchSpec], hosts: HostReadings) -> Iterator[tuple[End, Claim]]:
    """Yield NICs with another speed than their switch's port, and cards that have ports without the policy."""
    for spec in specs:
        for port in spec.ports.values():
            peer = port.peer
            if not peer or peer.kind != HOST:
                continue
            end, wanted = End(peer.name, peer.port), f"{port.speed_gbit_s} Gbit/s"
            request = hosts.requests.get(end)
            if request is not None and request.speed_gbit_s not in (None, port.speed_gbit_s):
                consequence = f"{LINE_RATE_WRONG} at one end; correct it or roce_switch_ports"
                yield end, fault(INVENTORY_RATE, wanted, f"{request.speed_gbit_s} Gbit/s", consequence)
            reading = hosts.nics.get(peer.name, {}).get(peer.port)
            if reading is None:
                continue
            if reading.speed_gbit_s is None:
                yield end, unseen(LINE_RATE, wanted, NO_SPEED)
            elif reading.speed_gbit_s != port.speed_gbit_s:
                yield end, fault(LINE_RATE, wanted, f"{reading.speed_gbit_s} Gbit/s", LINE_RATE_WRONG)
            uncovered = [name for name in reading.uncovered if name not in hosts.nics[peer.name]]
            if uncovered:
                yield end, fault(COVERED, "none", uncovered, UNCOVERED)
