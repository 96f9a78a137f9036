# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contents of a blueprint: its devices, and the rules that place, address and link them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Union

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.settings import Source

SITE = "site"  # the block around all others
Network = Union[IPv4Network, IPv6Network]


@dataclass(frozen=True)
class PortGroup:
    """A group of equal ports of a model.

    ``names`` are the names in the inventory (for a NIC, the RDMA device), ``interfaces`` the names on the system
    (LLDP). Each ``nic_ports`` consecutive ports are one card. ``lldp`` is False for ports that the system does not
    see, such as those of a BMC.
    """

    name: str
    names: tuple[str, ...]
    interfaces: tuple[str, ...]
    speed_gbit_s: float
    nic_ports: int
    lldp: bool = True


@dataclass(frozen=True)
class Model:
    """A type of device. ``capped_watts`` is its power after its power brake."""

    name: str
    units: int
    watts: float
    capped_watts: float
    part: str
    ports: Mapping[str, PortGroup]


@dataclass(frozen=True)
class RackSpec:
    """A rack: height in units, power supplies, and the times in which servers brake and breakers open."""

    units: int
    supplies: int
    supply_watts: float
    brake_s: float
    breaker_s: float


@dataclass(frozen=True)
class BlockSpec:
    """A kind of block: ``count`` of them in each block ``inside``. A block with ``rack`` is a rack."""

    name: str
    inside: str
    count: int
    new_row: bool
    label: str
    rack: RackSpec | None


@dataclass(frozen=True)
class NetworkSpec:
    """A network, or ``count`` consecutive networks for each block of the kind ``per``.

    ``gateway`` is an offset from the network's address, 0 for none.
    """

    name: str
    network: Network
    per: str
    count: int
    gateway: int


@dataclass(frozen=True)
class AddressSpec:
    """The first address of a kind of device in a network, as an offset from the network's address.

    With ``ports``, each port of that group has an address.
    """

    network: str
    first: int
    ports: str


@dataclass(frozen=True)
class DeviceKind:
    """A kind of device, which is a group of the inventory: ``count`` for each block ``per``, at most ``total``.

    A kind with ``on`` is virtual machines, which run on the devices of the kind ``on``. ``serves`` is the network on
    which the kind boots nodes. ``spare_percent`` is the percentage of spares.
    """

    name: str
    model: Model | None
    per: str
    count: int
    total: int
    label: str
    rack: str
    unit: int
    on: str
    serves: str
    groups: tuple[str, ...]
    variables: Mapping[str, Any]
    addresses: tuple[AddressSpec, ...]
    spare_percent: int = 0


@dataclass(frozen=True)
class Medium:
    """A type of cable: the lengths for sale, and the greatest length by speed in Gbit/s (0: all other speeds)."""

    name: str
    stock_m: tuple[float, ...]
    most_m: Mapping[float, float]

    def limit_m(self, speed_gbit_s: float) -> float | None:
        """Return the greatest length at a speed; None where the medium does not carry it."""
        return self.most_m.get(speed_gbit_s, self.most_m.get(0))


@dataclass(frozen=True)
class LinkRule:
    """Links from the ports of some kinds of devices to those of another kind in the same block.

    With ``each``, a device has that many links to each device of the other kind in its plane. Without it, port i of a
    device goes to device i modulo n of the n devices of the other kind.
    """

    name: str
    froms: tuple[str, ...]
    ports: str
    to: str
    to_ports: str
    each: int
    planes: int
    medium: Medium
    fabric: str
    roce: bool
    infiniband: bool


@dataclass(frozen=True)
class Floor:
    """The positions of the racks in their rows, and the route of cables through a tray above the racks."""

    racks_per_row: int
    rack_width_m: float
    row_pitch_m: float
    tray_m: float
    slack_m: float


@dataclass(frozen=True)
class Promise:
    """The declared properties of a fabric; the checks compare the site with them."""

    fabric: str
    oversubscription: float
    survives: tuple[str, ...]
    nic_ports_apart: bool
    rail_aligned: bool


@dataclass(frozen=True)
class Blueprint:
    """A whole blueprint."""

    site: str
    domain: str
    floor: Floor
    blocks: Mapping[str, BlockSpec]
    networks: Mapping[str, NetworkSpec]
    kinds: Mapping[str, DeviceKind]
    links: tuple[LinkRule, ...]
    promises: tuple[Promise, ...]
    source: Source = field(default_factory=Source, compare=False)

    def where(self, *path: str) -> str:
        """Return "FILE:LINE" of a setting."""
        return self.source.where(path)
