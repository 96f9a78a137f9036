# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ports as UFM names them, by GUID and number, and as the blueprint does. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import LinkEnd, SwitchPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.api import digits


class UfmPort(NamedTuple):
    """A port: the GUID of its node, 16 digits, and its number."""

    guid: str
    number: int

    def __str__(self) -> str:
        return f"{self.guid}_{self.number}"


class PortNames:
    """The ports of a planned fabric; an HCA has the number 1. Ports of nodes without a known GUID have no number."""

    def __init__(self, plan: FabricPlan) -> None:
        fabric = plan.fabric
        self._known = plan.guids.known
        self._fabric = fabric.name
        self.ends: dict[str, LinkEnd] = {fabric.name_of(end): end for link in fabric.links for end in link}
        port_by_name = {name: self.port_of(end) for name, end in self.ends.items()}
        self._names = {port_of_name: name for name, port_of_name in port_by_name.items() if port_of_name}

    def port_of(self, end: LinkEnd) -> UfmPort | None:
        """Return the port of an end, None if its GUID is not known."""
        node, number = (end.switch, end.number) if isinstance(end, SwitchPort) else (end, 1)
        return UfmPort(digits(self._known[node]), number) if node in self._known else None

    def name_of(self, port: UfmPort) -> str:
        """Return the name of a port, such as "leaf-01-1 ib33"; GUID and number of one that is not planned."""
        return self._names.get(port, f"0x{port.guid} port {port.number}")

    def ports_of(self, names: Iterable[str]) -> list[UfmPort]:
        """Return the ports of names. Raises InfinibandError for one that is not planned or has no known GUID."""
        ports = []
        for name in names:
            if name not in self.ends:
                cause = f"it is no port of the fabric {self._fabric}"
                raise InfinibandError(
                    cause=cause, remedy="write it like leaf-01-1 ib33 or node-0001 mlx5_0", subject=name
                )
            port = self.port_of(self.ends[name])
            if port is None:
                raise InfinibandError(
                    cause="its GUID is not known", remedy="give it in guids or readings", subject=name
                )
            ports.append(port)
        return ports
