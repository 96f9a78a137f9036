# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The site that a blueprint describes: every block, device, address and cable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import (
    SITE,
    BlockSpec,
    Blueprint,
    DeviceKind,
    LinkRule,
    Model,
    Network,
    RackSpec,
)

UNIT_M = 0.04445  # EIA-310: 1.75 inches


class Block:
    """A block of the site, such as a pod, a row or a rack. Numbers begin at 1 and count over the whole site."""

    __slots__ = ("children", "devices", "kind", "name", "numbers", "parent", "row", "spec", "x_m", "y_m")

    def __init__(self, spec: BlockSpec | None, parent: Block | None, number: int, name: str) -> None:
        self.spec = spec
        self.parent = parent
        self.name = name
        self.kind = spec.name if spec else SITE
        self.children: list[Block] = []
        # The numbers of this block and of the blocks around it, by kind of block.
        self.numbers: dict[str, int] = {**(parent.numbers if parent else {}), self.kind: number}
        # These are for a rack: its devices, its row, and the middle of its front.
        self.devices: list[SiteDevice] = []
        self.row = 0
        self.x_m = self.y_m = 0.0

    @property
    def rack_spec(self) -> RackSpec:
        """Return the properties of this block, which must be a rack."""
        if self.spec is None or self.spec.rack is None:
            raise AssertionError(f"{self.name} is no rack")
        return self.spec.rack


class SiteDevice:
    """A device of the site.

    ``number`` counts the devices of its kind from 1, ``index`` those in its block from 0. The keys of ``addresses``
    are networks, or "NAME-NUMBER" where several networks have one name. The keys of ``cables`` are the ports.
    """

    __slots__ = ("addresses", "block", "cables", "host", "index", "kind", "name", "number", "rack", "taken", "unit")

    def __init__(
        self, kind: DeviceKind, name: str, number: int, index: int, block: Block, rack: Block, unit: int
    ) -> None:
        self.kind = kind
        self.name = name
        self.number = number
        self.index = index
        self.block = block
        self.rack = rack
        self.unit = unit
        self.host: SiteDevice | None = None
        self.addresses: dict[str, str] = {}
        self.cables: dict[str, Cable] = {}
        # The number of ports in use, by group of ports.
        self.taken: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"SiteDevice({self.name})"

    @property
    def model(self) -> Model:
        """Return the type of this device, which must not be a virtual machine."""
        if self.kind.model is None:
            raise AssertionError(f"{self.name} is a virtual machine")
        return self.kind.model

    @property
    def spare(self) -> bool:
        """Return True for a spare. Spares are spread evenly, and existing spares stay spares when the site grows."""
        percent = self.kind.spare_percent
        return self.number * percent // 100 > (self.number - 1) * percent // 100

    @property
    def height_m(self) -> float:
        """Return the height of the device's middle above the rack's foot."""
        return (self.unit - 1 + self.model.units / 2) * UNIT_M


class Cable:
    """A cable from port ``a_port`` of ``a`` to port ``b_port`` of ``b``, in the direction of its link rule.

    ``route_m`` is the length of its route, ``length_m`` the next length that is sold. ``number`` counts over the site
    from 1.
    """

    __slots__ = ("a", "a_port", "b", "b_port", "length_m", "number", "route_m", "rule", "speed_gbit_s")

    def __init__(
        self, rule: LinkRule, number: int, a: SiteDevice, a_port: str, b: SiteDevice, b_port: str, speed_gbit_s: float
    ) -> None:
        self.rule = rule
        self.number = number
        self.a = a
        self.a_port = a_port
        self.b = b
        self.b_port = b_port
        self.speed_gbit_s = speed_gbit_s
        self.route_m = self.length_m = 0.0

    def far(self, device: SiteDevice) -> tuple[SiteDevice, str]:
        """Return the other end: device and port."""
        return (self.b, self.b_port) if device is self.a else (self.a, self.a_port)


@dataclass
class Site:
    """A whole site. ``subnets`` has the networks by name, in the order of their numbers."""

    blueprint: Blueprint
    root: Block
    racks: list[Block]
    devices: dict[str, SiteDevice]
    by_kind: dict[str, list[SiteDevice]]
    cables: list[Cable] = field(default_factory=list)
    subnets: dict[str, list[Network]] = field(default_factory=dict)

    def switches(self) -> Iterator[SiteDevice]:
        """Return the devices that links go to."""
        kinds = {rule.to for rule in self.blueprint.links}
        return (device for device in self.devices.values() if device.kind.name in kinds)
