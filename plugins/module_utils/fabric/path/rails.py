# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of a fabric, and its planes: which NICs of the hosts a switch serves. Pure.

They follow from the links. A leaf serves the NICs that most of its hosts connect to it, by their names ("mlx5_3" of
each node); a switch above serves what the switches below it do. One NIC is a rail, several are a plane.

Only hosts with NICs of the same names are compared: others may be cabled in another way. Where more than half of them
have the same NICs below a switch, the NICs of the others are in the wrong rail; where no more than half do, nothing
decides which are, and that is a fault of the switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

Nics = frozenset[str]
Leaves = frozenset[str]
RAIL, STRAY = "its cable is at a switch of its rail", "its flows share switches with another rail, or take a longer way"
ALIKE = "most of its hosts have the same NICs at it"


class Rails:
    """The NICs that each switch serves. Without rails and planes, where each switch serves all, nothing has a title."""

    def __init__(self, fabric: Cabling, carried_by: Mapping[End, End]) -> None:
        """``carried_by``: the ports that carry the NICs of guests."""
        self._carried_by = carried_by
        self._port_of: dict[End, End] = {}  # the leaf's port of each NIC
        self._ends: dict[str, list[End]] = {}  # the NICs of each leaf
        nics_by_host: dict[str, set[str]] = {}
        for end, peer in sorted(fabric.peer.items()):
            if end.device not in fabric.switches:
                self._port_of[end] = peer
                self._ends.setdefault(peer.device, []).append(end)
                nics_by_host.setdefault(end.device, set()).add(end.port)
        self._nics_of = {host: frozenset(nics) for host, nics in nics_by_host.items()}
        self.served = {leaf: _of_most_hosts(nic_ends) for leaf, nic_ends in self._ends.items()}
        self._below: dict[str, Leaves] = {leaf: frozenset([leaf]) for leaf in self._ends}
        self._all: Nics = frozenset().union(*self.served.values())
        self._served_together: dict[str, set[Nics]] = {}
        for nics in {*self.served.values()} - {self._all}:
            for nic in nics:
                self._served_together.setdefault(nic, set()).add(nics)
        self._add_upper_switches(fabric)
        upper_switches = self._below.keys() - self._ends.keys()
        linked: Leaves = frozenset().union(*(self._below[switch] for switch in upper_switches))
        self._linked_nics_of = {
            host: frozenset(nic for nic in nics if self._port_of[End(host, nic)].device in linked)
            for host, nics in self._nics_of.items()
        }
        self._titles = {
            nics: f"{'rail' if len(nics) == 1 else 'plane'} {fold(nics)}" for nics in {*self.served.values()}
        }

    def _add_upper_switches(self, fabric: Cabling) -> None:
        """Let each switch serve the NICs of the switches that are nearer to the hosts, layer by layer."""
        layer = set(self.served)
        while layer:
            uppers_by_name: dict[str, set[str]] = {}
            for switch in sorted(layer):
                for neighbour, _near_end, _far_end in fabric.neighbours[switch]:
                    if neighbour in fabric.switches and neighbour not in self.served:
                        uppers_by_name.setdefault(neighbour, set()).add(switch)
            for switch, lower in uppers_by_name.items():
                self.served[switch] = frozenset().union(*(self.served[name] for name in lower))
                self._below[switch] = frozenset().union(*(self._below[name] for name in lower))
            layer = set(uppers_by_name)

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
        sets = self._served_together.get(end.port, ()) if end.device in self._nics_of else ()
        return next(iter(sets)) if len(sets) == 1 else frozenset()

    def findings(self) -> Iterator[tuple[End, Claim]]:
        """Yield each NIC in the wrong rail, and each switch (port "") whose rail cannot be told, with the finding.

        A crossing is reported at the switch that is nearest to the hosts; of switches above the same leaves at one.
        """
        switches: dict[Leaves, str] = {}
        for switch, leaves in self._below.items():  # leaves first
            switches.setdefault(leaves, switch)
        reported: set[End] = set()
        for leaves, switch in sorted(switches.items(), key=lambda item: (len(item[0]), item[1])):
            for ends_by_host in self._alike(leaves):
                for place, ends, finding in self._crossed(switch, ends_by_host):
                    if not reported.issuperset(ends):
                        yield place, finding
                    reported.update(ends)

    def _alike(self, leaves: Leaves) -> Iterable[dict[str, list[End]]]:
        """Return the NICs at these leaves by host, in a dictionary for all hosts with NICs of the same names.

        Above the leaves, only NICs at leaves with links to other switches count: the inventory may lack these links.
        """
        nics_of = self._nics_of if len(leaves) == 1 else self._linked_nics_of
        alike: dict[Nics, dict[str, list[End]]] = {}
        for leaf in sorted(leaves):
            for end in self._ends[leaf]:
                alike.setdefault(nics_of[end.device], {}).setdefault(end.device, []).append(end)
        return alike.values()

    def _crossed(self, switch: str, ends_by_host: Mapping[str, list[End]]) -> Iterator[tuple[End, list[End], Claim]]:
        """Yield the place of each finding, the NICs that it is about, and the finding."""
        nic_sets = {host: frozenset(end.port for end in ends) for host, ends in ends_by_host.items()}
        counts = Counter(nic_sets.values())
        common, count = counts.most_common(1)[0]
        certain = common if 2 * count > len(nic_sets) else frozenset.intersection(*counts)
        ends = [end for host_ends in ends_by_host.values() for end in host_ends if end.port not in certain]
        if 2 * count > len(nic_sets):
            regular = [host for host, nics in nic_sets.items() if nics == common]
            rails = {nic: self._leaves_of(nic, regular) for nic in {end.port for end in ends}}
            for end in ends:
                yield end, [end], fault(RAIL, rails[end.port], self._port_of[end].device, STRAY)
        elif ends:
            consequence = f"its rail cannot be told: {count} of {len(nic_sets)} hosts are cabled alike; {STRAY}"
            yield End(switch, ""), ends, fault(ALIKE, "the same NICs", self._cables(ends, switch), consequence)

    def _leaves_of(self, nic: str, hosts: Iterable[str]) -> str:
        return fold(self._port_of[End(host, nic)].device for host in hosts)

    def _cables(self, ends: Iterable[End], switch: str) -> str:
        """Return NICs in words, by name, with their hosts and the switch's ports, or the leaves below the switch."""
        by_nic: dict[str, list[End]] = {}
        for end in ends:
            by_nic.setdefault(end.port, []).append(end)
        texts = []
        for nic, nic_ends in sorted(by_nic.items()):
            ports = [self._port_of[end] for end in nic_ends]
            places = fold(port.port if port.device == switch else port.device for port in ports)
            texts.append(f"{nic} of {fold(end.device for end in nic_ends)} at {places}")
        return "; ".join(texts)


def _of_most_hosts(nic_ends: list[End]) -> Nics:
    hosts = {end.device for end in nic_ends}
    counts = Counter(end.port for end in nic_ends)
    return frozenset(nic for nic, count in counts.items() if 2 * count > len(hosts))
