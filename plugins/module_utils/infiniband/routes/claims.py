# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make the claims about routes: the links, every pair reached, no credit loop, rails, even loads, shifts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, Hca, SwitchPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.loads import (
    UpLoads,
    shared_links,
    up_loads,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.paths import (
    Graph,
    Routes,
    cycle,
    dependencies_in_words,
    follow,
    graph,
    rails,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.tables import ACTIVE, Tables
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable

_SOURCE, _LINKS = "opensm-lfts.dump", "opensm-subnet.lst"
_LAYER = "routes"


def route_claims(fabric: Fabric, tables: Tables, marks: Marks, some_ordered: bool = False) -> Iterator[Claim]:
    """Return all claims about the routes of a fabric, and mark its links.

    ``some_ordered``: the order has only the HCAs of a user's list.
    The tables say nothing of the routes of a fabric if they have no HCA of a planned leaf.
    """
    subnet = graph(tables)
    routes = follow(subnet)
    yield _links(fabric, tables, marks)
    yield _reached(fabric, subnet, routes, marks)
    absent = sorted(leaf for leaf, hcas in fabric.leaves.items() if not any(hca in subnet.leaf_of for hca in hcas))
    reason = (
        f"opensm's tables have no HCA of {absent[0]}; turn its hosts on, or read the tables again" if absent else ""
    )
    for claim in _of_routes(fabric, subnet, routes, tables, marks, some_ordered):
        yield replace(claim, seen=None, holds=False, reason=reason) if absent and claim.holds else claim


def _of_routes(
    fabric: Fabric, subnet: Graph, routes: Routes, tables: Tables, marks: Marks, some_ordered: bool
) -> Iterator[Claim]:
    yield _no_credit_loop(subnet, routes, marks)
    yield from _rails(fabric, subnet, routes)
    for loads in up_loads(subnet, None in tables.order):
        yield _even(loads, marks)
    yield _shifts(fabric, subnet, routes, tables, marks, some_ordered)


def _links(fabric: Fabric, tables: Tables, marks: Marks) -> Claim:
    """Return the claim that the tables are of the planned fabric: the same names and ports, all active."""
    planned = {frozenset(pair) for pair in fabric.links}
    unplanned = "it is not planned; read the tables again, or correct the cables or the name"
    inactive = {link for link, state in tables.links.items() if state != ACTIVE}
    causes = (
        ("missing", "opensm does not see it", planned - {*tables.links}),
        ("wrong", unplanned, {*tables.links} - planned),
        ("missing", "it is not active", inactive),
    )
    reasons = []
    for state, cause, links in causes:
        for link in links:
            marks.add(state, link, cause)
        names = sorted(" - ".join(sorted(map(str, link))) for link in links)
        if names:
            reasons.append(f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {cause}")
    active = len(planned & {*tables.links} - inactive)
    claim = "opensm: its links are the planned ones, and active"
    return Claim(_LAYER, claim, len(planned), active, not reasons, _LINKS, "; ".join(reasons))


def _reached(fabric: Fabric, subnet: Graph, routes: Routes, marks: Marks) -> Claim:
    count = len(fabric.hcas)
    absent = sorted(map(str, {*fabric.hcas} - {*subnet.leaf_of}))
    reasons = []
    if absent:
        reasons.append(f"opensm does not see {absent[0]}" + (f" and {len(absent) - 1} more" if absent[1:] else ""))
    for (leaf, hca), fault in routes.faults.items():
        marks.add("no route", [hca], f"{leaf} to {hca}: {fault}")
    if routes.faults:
        (leaf, hca), fault = next(iter(routes.faults.items()))
        reasons.append(f"{leaf} to {hca}: {fault}")
    claim = "opensm: every HCA reaches every other one"
    pairs = count * (count - 1)
    return Claim(_LAYER, claim, pairs, routes.pairs, routes.pairs == pairs and not reasons, _SOURCE, "; ".join(reasons))


def _no_credit_loop(subnet: Graph, routes: Routes, marks: Marks) -> Claim:
    channels = cycle(routes.dependencies)
    marks.add("misrouted", map(subnet.channel, channels), "it is in a credit loop")
    seen = dependencies_in_words(subnet, channels) if channels else "none"
    reason = "each of these ports waits for the next one; tell opensm the roots, or use updn" if channels else ""
    return compare(_LAYER, "opensm: no links that wait for each other (credit loop)", "none", seen, _SOURCE, reason)


def _rails(fabric: Fabric, subnet: Graph, routes: Routes) -> Iterator[Claim]:
    planned = {leaf: sorted({hca.name for hca in hcas}) for leaf, hcas in fabric.leaves.items()}
    if not planned or any(len(names) > 1 for names in planned.values()):
        reason = "the plan's leaves have several RDMA devices of a host, so they are no rails"
        yield not_applicable(_LAYER, "leaves: each is one rail", "one RDMA device", _SOURCE, reason)
    else:
        seen = {leaf: sorted(names) for leaf, names in rails(subnet)}
        wrong = {leaf: names for leaf, names in seen.items() if names != planned.get(leaf)}
        for leaf, names in wrong.items():
            wanted = planned.get(leaf, [])
            reason = f"{leaf}: {', '.join(sorted({*names} ^ {*wanted}))} on the wrong leaf; move the cables"
            yield compare(_LAYER, f"{leaf}: it is one rail", wanted, names, _LINKS, reason)
        if not wrong:
            yield compare(_LAYER, "leaves: each is one rail", len(planned), len(seen), _LINKS)
    through = routes.through_leaves
    leaf, (source, hca) = next(iter(through.items()), ("", ("", "")))
    reason = f"the path from {source} to {hca} goes through {leaf}" if through else ""
    yield compare(
        _LAYER, "opensm: no path goes through the leaf of others", "none", sorted(through) or "none", _SOURCE, reason
    )


def _even(loads: UpLoads, marks: Marks) -> Claim:
    values = sorted(loads.by_port.values())
    wanted = "numbers that differ by at most 1"
    if loads.free or not loads.alike:
        beside = f", beside {loads.free} free places" if loads.free else ""
        wanted = f"at most {loads.best} for a port{beside}"
    seen = f"{values[0]} to {values[-1]}"
    if loads.even:
        return Claim(_LAYER, f"{loads.switch}: HCAs by up port", wanted, seen, True, _SOURCE)
    fullest_port = max(loads.by_port, key=lambda port: loads.by_port[port])
    reason = f"port {fullest_port} has {values[-1]} HCAs; more even is possible"
    marks.add("misrouted", [SwitchPort(loads.switch, fullest_port)], reason)
    return Claim(_LAYER, f"{loads.switch}: HCAs by up port", wanted, seen, False, _SOURCE, reason)


def _shifts(fabric: Fabric, subnet: Graph, routes: Routes, tables: Tables, marks: Marks, some_ordered: bool) -> Claim:
    claim, wanted = "opensm: links that a shift of the nodes, on all rails at once, loads twice", 0
    blocking = _blocking(fabric)
    if blocking:
        return not_applicable(_LAYER, claim, wanted, _SOURCE, blocking)
    if routes.faults:
        return Claim(
            _LAYER, claim, wanted, None, False, _SOURCE, "not every HCA is reached, so shifts were not followed"
        )
    ordered = {hca for hca in tables.order if hca}
    if tables.order and ordered != {*tables.hcas} and not (some_ordered and ordered and ordered < {*tables.hcas}):
        strange = min(map(str, ordered ^ {*tables.hcas}))
        reason = f"{strange} is in only one of order and opensm-subnet.lst; read both again"
        return Claim(_LAYER, claim, wanted, None, False, "opensm-ftree-ca-order.dump", reason)
    # The engine's order; without one, that of the names.
    nodes = _places(tables.order) or sorted({hca.host for hca in tables.hcas})
    shared = shared_links(subnet, nodes)
    for link in shared:
        marks.add("misrouted", [link.port], f"shift {link.shift} of the nodes loads it twice")
    reason = ""
    if shared:
        first = shared[0]
        pairs = " and ".join(f"{source} to {hca}" for source, hca in first.pairs)
        reason = f"the first: {first.port}, at shift {first.shift} of {len(nodes)} nodes, by {pairs}"
    return compare(_LAYER, claim, wanted, len(shared), _SOURCE, reason)


def _places(order: list[Hca | None]) -> list[str]:
    """Return the nodes in the engine's order, and a name for each free place, which ftree counts like a node.

    The same places of the further rails follow nodes that are listed already.
    """
    places: dict[str, None] = {}
    node_is_new = True
    for index, hca in enumerate(order):
        if hca:
            node_is_new = hca.host not in places
            places[hca.host] = None
        elif node_is_new:
            places[f"free place {index}"] = None
    return list(places)


def _blocking(fabric: Fabric) -> str | None:
    """Return the reason why the plan is not non-blocking, or None: a switch with more links below than above."""
    up: dict[str, int] = {}
    down: dict[str, int] = {}
    for low, upper in fabric.uplinks:
        up[low.switch] = up.get(low.switch, 0) + 1
        down[upper.switch] = down.get(upper.switch, 0) + 1
    for port in fabric.hcas.values():
        down[port.switch] = down.get(port.switch, 0) + 1
    for switch, count in up.items():
        if down.get(switch, 0) > count:
            return f"the plan is not non-blocking: {switch} has {down[switch]} links below and {count} above"
    return None
