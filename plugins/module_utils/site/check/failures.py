# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check failures: all hosts of a fabric reach each other after the loss of any one NIC or switch of a declared kind.

Hosts do not forward: two of them are connected where a switch of one reaches a switch of the other through switches.
The loss of a switch that is no articulation point of the graph of switches (Tarjan 1972) changes the reach of its own
hosts only. The whole graph is therefore searched again for articulation points only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.fabric import nic_of
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.finding import BrokenRule
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import Promise

Graph = Mapping[str, set[str]]
# The connected parts of the graph that a host reaches.
Reach = frozenset[int]


class _Fabric:
    """The graph of a fabric's switches, and the switches that each card of a host is connected to."""

    def __init__(self, site: Site, promise: Promise) -> None:
        kinds = {rule.to for rule in site.blueprint.links if rule.fabric == promise.fabric}
        self.switches: dict[str, set[str]] = {
            device.name: set() for kind in sorted(kinds) for device in site.by_kind[kind]
        }
        self.hosts: dict[str, list[tuple[tuple[str, int], str]]] = {}
        self.at: dict[str, set[str]] = {}
        for cable in site.cables:
            if cable.rule.fabric != promise.fabric:
                continue
            if cable.a.kind.name in kinds:
                self.switches[cable.a.name].add(cable.b.name)
                self.switches[cable.b.name].add(cable.a.name)
            else:
                nic = nic_of(cable.a, cable.rule.ports, cable.a_port)
                self.hosts.setdefault(cable.a.name, []).append((nic, cable.b.name))
                self.at.setdefault(cable.b.name, set()).add(cable.a.name)


def check_failures(site: Site, promise: Promise) -> Iterator[BrokenRule]:
    """Return the devices whose loss a fabric does not survive, although it declares that it does."""
    fabric = _Fabric(site, promise)
    place = site.blueprint.where("checks", promise.fabric, "survives")
    part = _parts(fabric.switches, "")
    reaches = {host: Reach(part[switch] for _nic, switch in ends) for host, ends in fabric.hosts.items()}
    counts = Counter(reaches.values())
    cut = _apart(reaches, {}, counts)
    if cut:
        yield BrokenRule(
            "all hosts connected", fold(cut), f"{promise.fabric} does not connect them to the others", place
        )
        return
    for failed in promise.survives:
        faults: dict[str, list[str]] = {}
        if failed == "nic":
            for host, ends in fabric.hosts.items():
                for nic in sorted({nic for nic, _switch in ends}):
                    reach = Reach(part[switch] for nic_name, switch in ends if nic_name != nic)
                    if _apart(reaches, {host: reach}, counts):
                        faults.setdefault(f"its NIC {nic[0]} {nic[1]}", []).append(host)
            for name, hosts in faults.items():
                yield BrokenRule(
                    "any one NIC lost", fold(hosts), f"without {name} it is cut off from {promise.fabric}", place
                )
            continue
        points = articulation_points(fabric.switches)
        for device in site.by_kind[failed]:
            name = device.name
            if name in points:
                parts = _parts(fabric.switches, name)
                changed = {
                    host: Reach(parts[switch] for _nic, switch in ends if switch != name)
                    for host, ends in fabric.hosts.items()
                }
                cut = _apart({}, changed, Counter())
            else:
                changed = {
                    host: Reach(part[switch] for _nic, switch in fabric.hosts[host] if switch != name)
                    for host in fabric.at.get(name, ())
                }
                cut = _apart(reaches, changed, counts)
            if cut:
                faults.setdefault(fold(cut), []).append(name)
        for hosts_text, names in faults.items():
            yield BrokenRule(
                f"any one {failed} lost", fold(names), f"its loss cuts off {hosts_text} in {promise.fabric}", place
            )


def _parts(graph: Graph, without: str) -> dict[str, int]:
    """Return the number of each switch's connected part of the graph, without the switch ``without``."""
    part: dict[str, int] = {}
    for number, start in enumerate(graph):
        if start in part or start == without:
            continue
        part[start] = number
        queue = [start]
        while queue:
            for neighbour in graph[queue.pop()]:
                if neighbour not in part and neighbour != without:
                    part[neighbour] = number
                    queue.append(neighbour)
    return part


def _apart(healthy: Mapping[str, Reach], changed: Mapping[str, Reach], counts: Counter[Reach]) -> list[str]:
    """Return the hosts that do not reach all others; ``changed`` replaces what these hosts reached ``healthy``."""
    now = Counter(counts)
    now.subtract(healthy[host] for host in changed if host in healthy)
    now.update(changed.values())
    kinds = list(+now)
    if all(kind & other_reach for index, kind in enumerate(kinds) for other_reach in kinds[index:]):
        return []
    # The hosts that are cut off are those with no part in common with the majority.
    main = max(kinds, key=lambda reach: (now[reach], len(reach)))
    return sorted(host for host, reach in {**healthy, **changed}.items() if not reach & main)


def articulation_points(graph: Graph) -> set[str]:
    """Return the switches whose loss splits a part of the graph (Tarjan 1972, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    points: set[str] = set()
    for root in graph:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        branches = 0
        stack = [(root, "", iter(graph[root]))]
        while stack:
            name, parent, neighbours = stack[-1]
            neighbour = next(neighbours, None)
            if neighbour is None:
                stack.pop()
                if stack:
                    ancestor = stack[-1][0]
                    low[ancestor] = min(low[ancestor], low[name])
                    if ancestor != root and low[name] >= order[ancestor]:
                        points.add(ancestor)
            elif neighbour not in order:
                order[neighbour] = low[neighbour] = len(order)
                branches += name == root
                stack.append((neighbour, name, iter(graph[neighbour])))
            elif neighbour != parent:
                low[name] = min(low[name], order[neighbour])
        if branches > 1:
            points.add(root)
    return points
