# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follows a RoCE packet from the application to the receiver and its CNP back, over what was read back. Pure.

``follow`` is one path, in the order in which packets meet its parts, so that its first fault is the first broken hop.
``survey`` is all of a fabric: every part once, whatever the number of paths over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import checks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.checks import Fault
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import Policy, RdmaClass
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import (
    Application,
    Nic,
    PortQos,
    Switch,
    dscp_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.topology import End, Fabric, buffer_cycle
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

# The parts of a path, in the order of the packets: the layers of the proof.
APPLICATION, SENDER, SWITCH, RECEIVER, CNP, FABRIC = "application", "sender", "switch", "receiver", "cnp", "fabric"
AS_PLANNED = "as the policy says"


@dataclass(frozen=True)
class Host:
    """A host's NICs by the names that links use, and the applications that send by them."""

    nics: Mapping[str, Nic] = field(default_factory=dict)
    applications: tuple[Application, ...] = ()


@dataclass(frozen=True)
class ReadBack:
    """All that was read back. ``planned``: the switches as the plan wants them, where thresholds are to be compared."""

    hosts: Mapping[str, Host]
    switches: Mapping[str, Switch]
    planned: Mapping[str, Switch] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One part of a path, and what is wrong with it."""

    layer: str
    where: str
    faults: tuple[Fault, ...]


class Checker:
    """The checks of one class of RoCE. Parts that are alike (one object) are looked at once."""

    def __init__(self, policy: Policy, rdma: RdmaClass, seen: ReadBack) -> None:
        self.policy = policy
        self.rdma = rdma
        self.seen = seen
        self._known: dict[tuple[object, ...], tuple[Fault, ...]] = {}

    def applications(self, host: str) -> Iterator[Part]:
        """What runs on ``host``, and is not another class's by its DSCP."""
        others = [each.dscp for each in self.policy.classes if each != self.rdma]
        for app in self._host(host).applications:
            if dscp_of(app.tos) in others:
                continue
            yield self._part(APPLICATION, f"{host} {app.name}", lambda app=app: checks.application(app, self.rdma), app)

    def sender(self, end: End) -> Part:
        """A NIC that sends."""
        return self._nic(SENDER, end, lambda nic: checks.sender(nic, self.rdma, self.policy))

    def receiver(self, end: End) -> Part:
        """A NIC that receives, and answers with CNPs."""
        return self._nic(RECEIVER, end, lambda nic: checks.receiver(nic, self.rdma, self.policy))

    def reactor(self, end: End) -> Part:
        """The sender, when a CNP comes back to it."""
        return self._nic(CNP, end, lambda nic: checks.reactor(nic, self.rdma))

    def ingress(self, end: End) -> Part:
        """A switch's port where RoCE comes in."""
        return self._port(SWITCH, end, "in", lambda port: checks.ingress(port, self.rdma, self.policy))

    def egress(self, end: End) -> Part:
        """A switch's port where RoCE leaves; with what was compiled for it."""

        def faults(port: PortQos) -> Iterator[Fault]:
            yield from checks.egress(port, self.rdma, self.policy)
            plan = self._planned(end)
            if plan is not None:
                yield from checks.thresholds(port, plan, self.rdma)

        return self._port(SWITCH, end, "out", faults, self._planned(end))

    def cnp(self, ingress: End, egress: End) -> Iterator[Part]:
        """A switch that a CNP passes."""
        yield self._port(CNP, ingress, "in", lambda port: checks.cnp_ingress(port, self.policy))
        yield self._port(CNP, egress, "out", lambda port: checks.cnp_egress(port, self.policy))

    def ecmp(self, switch: str) -> Part:
        """How a switch spreads flows."""
        known = self.seen.switches.get(switch)
        fields = known.ecmp_fields if known else None
        return self._part(SWITCH, switch, lambda: checks.ecmp(fields), fields)

    def link(self, upstream: End, downstream: End) -> Part:
        """A cable, in the direction of the packets."""
        ends = [self._anything(upstream), self._anything(downstream)]
        if None in ends:  # said by the part itself
            return Part(SWITCH, f"{upstream} - {downstream}", ())
        return self._part(SWITCH, f"{upstream} - {downstream}", lambda: checks.link(*ends, self.rdma), *ends)

    def _host(self, name: str) -> Host:
        return self.seen.hosts.get(name, Host())

    def _anything(self, end: End) -> PortQos | Nic | None:
        switch = self.seen.switches.get(end.device)
        return switch.ports.get(end.port) if switch else self._host(end.device).nics.get(end.port)

    def _planned(self, end: End) -> PortQos | None:
        switch = self.seen.planned.get(end.device)
        return switch.ports.get(end.port) if switch else None

    def _nic(self, layer: str, end: End, check: Callable[[Nic], Iterator[Fault]]) -> Part:
        nic = self._host(end.device).nics.get(end.port)
        if nic is None:
            return _unread(layer, str(end))
        # Its name and address are its own, so it is like no other: no memory.
        return Part(layer, str(end), _placed(str(end), check(nic)))

    def _port(
        self, layer: str, end: End, side: str, check: Callable[[PortQos], Iterator[Fault]], *also: object
    ) -> Part:
        switch = self.seen.switches.get(end.device)
        port = switch.ports.get(end.port) if switch else None
        where = f"{end}, {side}"
        if port is None:
            return _unread(layer, where)
        return self._part(layer, where, lambda: check(port), side, port, *also)

    def _part(self, layer: str, where: str, check: Callable[[], Iterable[Fault]], *of: object) -> Part:
        # By identity: two that are equal are most often one, and comparing costs more than checking.
        key = (layer, *(each if isinstance(each, str) else id(each) for each in of))
        if key not in self._known:
            self._known[key] = tuple(check())
        return Part(layer, where, _placed(where, self._known[key]))


def follow(fabric: Fabric, start: End, goal: End, checker: Checker) -> list[Part]:
    """All parts of the path from NIC ``start`` to NIC ``goal``, in order, and of the CNP's way back."""
    way = fabric.way(start, goal)
    back = fabric.way(goal, start)
    parts = [*checker.applications(start.device), checker.sender(start)]
    entered: set[End] = set()
    left: set[End] = set()
    for hop in way:
        ingress, egress = End(hop.switch, hop.ingress), End(hop.switch, hop.egress)
        if ingress not in entered:
            entered.add(ingress)
            parts += [checker.link(fabric.peer[ingress], ingress), checker.ecmp(hop.switch), checker.ingress(ingress)]
        if egress not in left:
            left.add(egress)
            parts.append(checker.egress(egress))
    parts += [checker.link(fabric.peer[goal], goal), checker.receiver(goal)]
    for hop in back:
        parts += checker.cnp(End(hop.switch, hop.ingress), End(hop.switch, hop.egress))
    return _once([*parts, checker.reactor(start)])


def survey(fabric: Fabric, checker: Checker) -> list[Part]:
    """All parts of the fabric: each host sends to each, over every port in both directions."""
    nics = [end for end in sorted(fabric.peer) if end.device not in fabric.switches]
    ports = [end for end in sorted(fabric.peer) if end.device in fabric.switches]
    parts: list[Part] = []
    for host in fabric.hosts():
        parts += checker.applications(host)
    parts += [checker.sender(nic) for nic in nics]
    for one, other in fabric.links():
        parts += [checker.link(one, other), checker.link(other, one)]
    parts += [checker.ecmp(switch) for switch in sorted(fabric.switches)]
    for port in ports:
        parts += [checker.ingress(port), checker.egress(port)]
    parts += [checker.receiver(nic) for nic in nics]
    for port in ports:
        parts += checker.cnp(port, port)
    parts += [checker.reactor(nic) for nic in nics]
    return _once(parts)


def deadlock(fabric: Fabric, checker: Checker) -> Part:
    """Whether pauses can wait for each other in a circle, over the links that really pause."""

    def pauses(end: End) -> bool:
        switch = checker.seen.switches.get(end.device)
        port = switch.ports.get(end.port) if switch else None
        return port is not None and checker.rdma.priority in port.pfc

    paused: dict[tuple[str, str], bool] = {}
    for one, other in fabric.links():
        both = pauses(one) and pauses(other)
        for link in ((one.device, other.device), (other.device, one.device)):
            paused[link] = paused.get(link, False) or both
    cycle = buffer_cycle(fabric, paused)
    if not cycle:
        return Part(FABRIC, "lossless links", ())
    around = " -> ".join([cycle[0][0], *(to for _from, to in cycle)])
    fault = Fault(
        "no pause waits for itself",
        "no circle of lossless links",
        around,
        "a moment of congestion can stop the whole circle for ever; only the PFC watchdog, by dropping, ends it",
        "lossless links",
    )
    return Part(FABRIC, "lossless links", (fault,))


def first_fault(parts: Iterable[Part]) -> Fault | None:
    """The first broken hop."""
    return next((fault for part in parts for fault in part.faults), None)


def claims(parts: Iterable[Part], source: str) -> list[Claim]:
    """The parts as claims of a proof: one for a part that is fine, else one for each fault, with its consequence."""
    made = []
    for part in parts:
        if not part.faults:
            made.append(Claim(part.layer, f"{part.where}: RoCE's settings", AS_PLANNED, AS_PLANNED, True, source))
        made += [
            Claim(
                part.layer, f"{fault.where}: {fault.what}", fault.wanted, fault.seen, False, source, fault.consequence
            )
            for fault in part.faults
        ]
    return made


def _placed(where: str, faults: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(replace(fault, where=where) for fault in faults)


def _unread(layer: str, where: str) -> Part:
    fault = Fault("it was read back", "its settings", None, "nothing is known of it", where)
    return Part(layer, where, (fault,))


def _once(parts: Iterable[Part]) -> list[Part]:
    """Each part once, at its first place: ways share their parts."""
    first: dict[tuple[str, str], Part] = {}
    for part in parts:
        first.setdefault((part.layer, part.where), part)
    return list(first.values())
