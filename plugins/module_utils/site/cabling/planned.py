# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The planned cables of a site, from its blueprint or from NetBox. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.names import model_interfaces


def number_at_end(name: str) -> str:
    """Return the number at the end of a port's name, "" without one. InfiniBand numbers a switch's ports by it."""
    digits = name[len(name.rstrip("0123456789")) :]
    return str(int(digits)) if digits else ""


class PlannedEnd(NamedTuple):
    """An end of a cable: a device, and its interface."""

    device: str
    interface: str

    def __str__(self) -> str:
        return f"{self.device} {self.interface}"


class PlannedCable(NamedTuple):
    """A planned cable. ``speed_gbit_s`` is 0 where it is not known."""

    one: PlannedEnd
    other: PlannedEnd
    speed_gbit_s: float
    infiniband: bool

    def far(self, end: PlannedEnd) -> PlannedEnd:
        """Return the other end."""
        return self.other if end == self.one else self.one

    def __str__(self) -> str:
        return f"{self.one} - {self.other}"


@dataclass
class Planned:
    """All planned cables.

    ``interfaces`` has the names of the interfaces of each device of the site. ``hidden`` has the ends that the
    device's own system does not see, such as a BMC's port. ``infiniband`` has the end for each device and HCA or port
    number, as ``ibnetdiscover`` names them.
    """

    links: list[PlannedCable] = field(default_factory=list)
    interfaces: dict[str, set[str]] = field(default_factory=dict)
    hidden: set[PlannedEnd] = field(default_factory=set)
    infiniband: dict[tuple[str, str], PlannedEnd] = field(default_factory=dict)

    def add(self, link: PlannedCable, names: tuple[str, str]) -> None:
        """Add a cable; ``names`` are the InfiniBand names of its two ports: an HCA, or a switch's port."""
        self.links.append(link)
        if link.infiniband:
            for end, name in zip((link.one, link.other), names):
                self.infiniband[end.device, name] = end
                self.infiniband.setdefault((end.device, number_at_end(name)), end)


def interfaces(site: Site) -> dict[tuple[str, str], str]:
    """Return by (device, port) the name of each port with a cable on the device's own system."""
    names = model_interfaces(site)
    return {
        (device.name, port): names[device.kind.model.name, port]
        for device in site.devices.values()
        if device.kind.model
        for port in device.cables
    }


def planned(site: Site, fabric: str = "") -> Planned:
    """Return the planned cables of a blueprint, or those of one fabric."""
    plan = Planned()
    for device in site.devices.values():
        groups = device.kind.model.ports.values() if device.kind.model else ()
        plan.interfaces[device.name] = {name for group in groups for name in group.interfaces}
        plan.hidden.update(
            PlannedEnd(device.name, name) for group in groups if not group.lldp for name in group.interfaces
        )
    names = interfaces(site)
    for cable in site.cables:
        if fabric and cable.rule.fabric != fabric:
            continue
        end_a = PlannedEnd(cable.a.name, names[cable.a.name, cable.a_port])
        end_b = PlannedEnd(cable.b.name, names[cable.b.name, cable.b_port])
        link = PlannedCable(end_a, end_b, cable.speed_gbit_s, cable.rule.infiniband)
        plan.add(link, (cable.a_port, cable.b_port))
    return plan
