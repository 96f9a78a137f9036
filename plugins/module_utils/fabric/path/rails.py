# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of a fabric, and its planes: which NICs of the hosts a switch serves. Pure.

They follow from the links. A leaf serves the NICs that most of its hosts connect to it, by their names ("mlx5_3" of
each node); a switch above serves what the switches below it do. One NIC is a rail, several are a plane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import End, Fabric

Nics = frozenset[str]


class Rails:
    """The NICs that each switch serves. Without rails and planes, where each switch serves all, nothing has a title."""

    def __init__(self, fabric: Fabric, carried_by: Mapping[End, End]) -> None:
        """``carried_by``: the ports that carry the NICs of guests."""
        self._carried_by = carried_by
        self.hosts: dict[str, set[str]] = {}
        self._ends: dict[str, list[End]] = {}
        for end, peer in fabric.peer.items():
            if end.device not in fabric.switches:
                self.hosts.setdefault(end.device, set()).add(end.port)
                self._ends.setdefault(peer.device, []).append(end)
        self.served = {leaf: _of_most_hosts(nic_ends) for leaf, nic_ends in self._ends.items()}
        self._all: Nics = frozenset().union(*self.served.values())
        self._served_together: dict[str, set[Nics]] = {}
        for nics in {*self.served.values()} - {self._all}:
            for nic in nics:
                self._served_together.setdefault(nic, set()).add(nics)
        self._add_upper_switches(fabric)
        self._titles = {
            nics: f"{'rail' if len(nics) == 1 else 'plane'} {fold(nics)}" for nics in {*self.served.values()}
        }

    def _add_upper_switches(self, fabric: Fabric) -> None:
        """Let each switch serve the NICs of the switches that are nearer to the hosts, layer by layer."""
        layer = set(self.served)
        while layer:
            above: dict[str, Nics] = {}
            for switch in sorted(layer):
                for neighbour, _near_end, _far_end in fabric.neighbours[switch]:
                    if neighbour in fabric.switches and neighbour not in self.served:
                        above[neighbour] = above.get(neighbour, frozenset()) | self.served[switch]
            self.served.update(above)
            layer = set(above)

    def title(self, place: str) -> str:
        """Return "rail mlx5_3" or "plane mlx5_[0-3]" of the place of a part (a NIC, a port, a link); "" without any."""
        if not self._served_together:
            return ""
        for text in place.split(" - "):
            device, _blank, port = text.partition(" ")
            end = End(device, port.partition(" ")[0].rstrip(","))
            nics = self.served.get(device) or self._of_nic(self._carried_by.get(end, end))
            if nics and nics != self._all:
                return self._titles[nics]
        return ""

    def _of_nic(self, end: End) -> Nics:
        """Return the NICs that are served together with a host's NIC; none where that differs between switches."""
        sets = self._served_together.get(end.port, ()) if end.device in self.hosts else ()
        return next(iter(sets)) if len(sets) == 1 else frozenset()

    def undecided(self) -> Iterator[tuple[str, dict[str, list[str]]]]:
        """Yield each leaf with a NIC of exactly half of its hosts: these and the others, by NIC.

        Hosts as for ``strays``. No leaf serves these NICs, so it cannot be told which hosts are crossed.
        """
        for leaf, nic_ends in sorted(self._ends.items()):
            ends = self._with_common_nics(nic_ends)
            count = len({end.device for end in ends})
            hosts_by_nic: dict[str, list[str]] = {}
            for end in sorted(ends):
                if end.port not in self._all:
                    hosts_by_nic.setdefault(end.port, []).append(end.device)
            if any(2 * len(hosts) == count for hosts in hosts_by_nic.values()):
                yield leaf, dict(sorted(hosts_by_nic.items()))

    def _with_common_nics(self, nic_ends: list[End]) -> list[End]:
        """Return the ends whose hosts have the same NICs as most hosts of ``nic_ends``."""
        common_nics = Counter(frozenset(self.hosts[end.device]) for end in nic_ends).most_common(1)[0][0]
        return [end for end in nic_ends if self.hosts[end.device] == common_nics]

    def strays(self) -> Iterator[tuple[End, str, list[str]]]:
        """Yield each NIC at a switch of another rail or plane: its end, that switch, and those of its own.

        Only hosts with the NICs of most hosts at that switch are compared: others may be cabled in another way.
        """
        for leaf, nic_ends in sorted(self._ends.items()):
            for end in sorted(self._with_common_nics(nic_ends)):
                if end.port in self.served[leaf] or not self.served[leaf]:
                    continue
                rail_leaves = sorted(name for name in self._ends if end.port in self.served[name])
                if rail_leaves:
                    yield end, leaf, rail_leaves


def _of_most_hosts(nic_ends: list[End]) -> Nics:
    hosts = {end.device for end in nic_ends}
    counts = Counter(end.port for end in nic_ends)
    return frozenset(nic for nic, count in counts.items() if 2 * count > len(hosts))
