# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide whether a link may be isolated: its switch keeps the up links that the inventory declares necessary. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, SwitchPort

_NO_UPLINK = "it is no port of a planned link between switches"
_NAME_ONE = "write switch and port as the blueprint has them; drain the node of an HCA"


class Uplinks:
    """The links between switches of a fabric by the names of their ports ("leaf-1 ib3"), and which carry traffic."""

    def __init__(self, fabric: Fabric, carrying: Iterable[Iterable[str]], spare: int) -> None:
        """Take both ports of each link that carries traffic, and how many up links a switch may lack."""
        active = {frozenset(link) for link in carrying}
        self.ports: dict[str, SwitchPort] = {}
        self._spare = spare
        self._lower: dict[str, str] = {}
        self._link: dict[str, frozenset[str]] = {}
        self._number: dict[str, int] = {}
        self._carrying: dict[str, list[frozenset[str]]] = {}
        for ends in fabric.uplinks:
            low = ends[0].switch
            link = frozenset(map(fabric.name_of, ends))
            for end in ends:
                name = fabric.name_of(end)
                self.ports[name], self._lower[name], self._link[name] = end, low, link
            self._number[low] = self._number.get(low, 0) + 1
            if link in active:
                self._carrying.setdefault(low, []).append(link)

    def port(self, name: str) -> SwitchPort:
        """Return the port of a name. Raises InfinibandError if it is of no link between switches."""
        if name not in self.ports:
            raise InfinibandError(_NO_UPLINK, _NAME_ONE, subject=name)
        return self.ports[name]

    def refusal(self, name: str, isolated: Collection[str] = ()) -> str:
        """Return why the link of a port may not be isolated, "" if it may. ``isolated``: ports of the same run."""
        if name not in self.ports:
            return f"{_NO_UPLINK}; {_NAME_ONE}"
        lower = self._lower[name]
        number = self._number[lower]
        remaining = [link for link in self._carrying.get(lower, ()) if not link & {name, *isolated}]
        links_min = max(1, number - self._spare)
        if len(remaining) >= links_min:
            return ""
        return (
            f"{lower} would have {len(remaining)} of {number} up links, and needs {links_min} "
            f"(spare_uplinks: {self._spare}); repair another one first"
        )

    def check(self, isolate: Collection[str]) -> None:
        """Raise InfinibandError if the links of these ports may not be isolated."""
        for name in isolate:
            refusal = self.refusal(name, isolate)
            if refusal:
                raise InfinibandError(f"its link is not isolated: {refusal}", subject=name)

    def check_distinct(self, isolate: Iterable[str], restore: Iterable[str]) -> None:
        """Raise InfinibandError for a link that is to be isolated and restored, by whichever of its ends."""
        restored = {self._link.get(name, frozenset((name,))) for name in restore}
        for name in isolate:
            if self._link.get(name, frozenset((name,))) in restored:
                raise InfinibandError("its link is in isolate and in restore", "keep one", subject=name)
