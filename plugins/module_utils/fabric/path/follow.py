# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follow a RoCE packet from the application to the receiver and its CNP back, in the settings that were read. Pure.

``follow`` returns one path, in the order in which packets pass its parts, so its first fault is the first broken hop.
``survey`` covers a whole fabric: every part once, whatever the number of paths over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End, buffer_cycle
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Application,
    Nic,
    PortQos,
    Switch,
    dscp_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import NicRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import nic_checks, switch_checks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import Reasons, fault, unseen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.guests import Carrier
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, RdmaClass
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

# The parts of a path, in the order of the packets: the layers of the proof.
APPLICATION, SENDER, SWITCH, RECEIVER, CNP, FABRIC = "application", "sender", "switch", "receiver", "cnp", "fabric"
AS_PLANNED = "as the policy says"
NO_REASONS: Reasons = {}
NO_REQUEST = NicRequest()
UNREAD = (fault("it was read back", "its settings", None, "nothing is known of it"),)
PLACE = "its packets are followed to a switch's port"


@dataclass(frozen=True)
class PathHost:
    """A host's NICs by the names that links use, and the applications that send through them; None: not asked for."""

    nics: Mapping[str, SeenNic] = field(default_factory=dict)
    applications: tuple[Application, ...] | None = ()


@dataclass(frozen=True)
class ReadBack:
    """Everything that was read. ``planned``: the switches as planned, where thresholds are to be compared.

    ``undoing``: what can undo the policy, by switch and port; of the whole switch by switch and "". ``carriers``: the
    ports of guests' NICs and of VFs. ``unknown``: NICs whose port is not known, with the reason; of a guest that was
    not read by guest and "". ``requests``: the inventory's NICs, where buffers are compared; one object for equal ones.
    """

    hosts: Mapping[str, PathHost]
    switches: Mapping[str, Switch]
    planned: Mapping[str, Switch] = field(default_factory=dict)
    undoing: Mapping[End, Sequence[Claim]] = field(default_factory=dict)
    carriers: Mapping[End, Carrier] = field(default_factory=dict)
    unknown: Mapping[End, str] = field(default_factory=dict)
    requests: Mapping[End, NicRequest] = field(default_factory=dict)


class Part(NamedTuple):
    """One part of a path, its faults, and its settings that cannot be read.

    ``checked``: false where no setting was. ``rail``: the rail or plane that it belongs to; "" without any.
    """

    layer: str
    where: str
    findings: tuple[Claim, ...] = ()
    checked: bool = True
    rail: str = ""

    @property
    def faults(self) -> list[Claim]:
        """Return the findings without those that cannot be read."""
        return [finding for finding in self.findings if finding.holds is False]


class Verdicts:
    """The findings of checks that were made. The same check of the same objects is made once.

    The key is the identity of every argument, because comparing ports and NICs costs more than checking them. The code
    that reads them uses one object for equal ones.
    """

    def __init__(self) -> None:
        # The arguments are stored beside their findings, so that no other object gets the identity of one of them.
        self._findings: dict[tuple[object, ...], tuple[tuple[object, ...], tuple[Claim, ...]]] = {}

    def findings(self, check: Callable[..., Iterable[Claim]], *arguments: object) -> tuple[Claim, ...]:
        """Return the findings of ``check(*arguments)``, or the earlier ones with the same objects."""
        key = (check, *map(id, arguments))
        entry = self._findings.get(key)
        if entry is None:
            entry = self._findings[key] = (arguments, tuple(check(*arguments)))
        return entry[1]


class Checker:
    """The checks of one class of RoCE. Parts that are alike (one object) are checked once."""

    def __init__(self, policy: Policy, rdma: RdmaClass, seen: ReadBack) -> None:
        self.policy = policy
        self.rdma = rdma
        self.seen = seen
        self._verdicts = Verdicts()

    def applications(self, host: str) -> Iterator[Part]:
        """Return the applications on ``host``, except those whose DSCP is another class's."""
        if host in self.seen.hosts and self._host(host).applications == ():
            yield self._part(APPLICATION, host, nic_checks.no_application, self.rdma, self._host(host).nics)
        other_dscps = [rdma_class.dscp for rdma_class in self.policy.classes if rdma_class != self.rdma]
        for app in self._host(host).applications or ():
            if dscp_of(app.tos) in other_dscps:
                continue
            part = self._part(APPLICATION, f"{host} {app.name}", nic_checks.application, app, self.rdma)
            yield part._replace(findings=(*part.findings, *nic_checks.gids(app, self._host(host).nics)))

    def sender(self, end: End) -> Part:
        """Check a NIC that sends; say where the port of a VF or of a guest's NIC is not known."""
        if end in self.seen.unknown and not end.port:
            return Part(SENDER, end.device, (unseen(PLACE, "its port", self.seen.unknown[end]),), checked=False)
        part = self._nic(SENDER, end, nic_checks.sender, self.rdma, self.policy)
        if end in self.seen.unknown:
            return part._replace(findings=(*part.findings, fault(PLACE, "its port", None, self.seen.unknown[end])))
        return part

    def virtual_function(self, layer: str, end: End) -> Iterator[Part]:
        """Check the VF of a guest's NIC on the host of its physical function."""
        carrier = self.seen.carriers.get(end)
        if carrier is not None and carrier.vf is not None:
            place = f"{carrier.port} VF {carrier.vf.index}"
            yield self._part(layer, place, nic_checks.virtual_function, carrier.vf, self.rdma)

    def is_whole(self, end: End) -> bool:
        """Return true for a NIC that was read and is no VF."""
        seen = self._host(end.device).nics.get(end.port)
        return seen is not None and not seen.nic.is_vf

    def port_of(self, end: End) -> End:
        """Return the end of a link that carries a NIC's packets: of a VF that of its physical function.

        Raises FabricError where it is not known.
        """
        if end in self.seen.unknown:
            raise FabricError(self.seen.unknown[end], "name another NIC, or correct this", subject=f"NIC {end}")
        return self.seen.carriers[end].port if end in self.seen.carriers else end

    def receiver(self, end: End) -> Part:
        """Check a NIC that receives, and answers with CNPs."""
        return self._nic(RECEIVER, end, nic_checks.receiver, self.rdma, self.policy)

    def reactor(self, end: End) -> Part:
        """Check the sender as the receiver of a CNP."""
        return self._nic(CNP, end, nic_checks.reactor, self.rdma)

    def ingress(self, end: End) -> Part:
        """Check a switch's port where RoCE enters, with the QoS compiled for it."""
        return self._port(SWITCH, end, "in", self._ingress)

    def egress(self, end: End) -> Part:
        """Check a switch's port where RoCE leaves, with the QoS compiled for it."""
        return self._port(SWITCH, end, "out", self._egress)

    def cnp(self, ingress: End, egress: End) -> Iterator[Part]:
        """Check a switch that a CNP passes."""
        if not _classifies_at_egress(self._system(egress.device)):
            yield self._port(CNP, ingress, "in", self._cnp_ingress)
        yield self._port(CNP, egress, "out", self._cnp_egress)

    def undoing(self, end: End) -> Iterator[Part]:
        """Yield a part if something can undo the policy on a port, or on a whole switch (port "")."""
        if end in self.seen.undoing:
            yield Part(SWITCH, str(end).strip(), tuple(self.seen.undoing[end]))

    def ecmp(self, switch: str) -> Iterator[Part]:
        """Check how a switch spreads flows, and what can undo its policy.

        Yield no part if it was not read; its ports' parts report that.
        """
        seen_switch = self.seen.switches.get(switch)
        yield from self.undoing(End(switch, ""))
        if seen_switch is not None:
            reasons, planned = _not_held(self._system(switch)), self.seen.planned.get(switch)
            wanted = planned.ecmp_fields if planned else None
            yield self._part(SWITCH, switch, switch_checks.ecmp, seen_switch.ecmp_fields, reasons, wanted)

    def link(self, upstream: End, downstream: End) -> Iterator[Part]:
        """Check a cable in the packets' direction. Yield no part if an end was not read; its part reports that."""
        near_port, far = self._port_or_nic(upstream), self._port_or_nic(downstream)
        if near_port is not None and far is not None:
            cable = f"{upstream} - {downstream}"
            yield self._part(SWITCH, cable, switch_checks.link, near_port, far)

    def _host(self, name: str) -> PathHost:
        return self.seen.hosts.get(name, PathHost())

    def _port_or_nic(self, end: End) -> PortQos | Nic | None:
        switch = self.seen.switches.get(end.device)
        if switch:
            return switch.ports.get(end.port)
        nic = self._host(end.device).nics.get(end.port)
        return nic.nic if nic else None

    def _system(self, device: str) -> SwitchSystem | None:
        switch = self.seen.switches.get(device)
        return SYSTEMS.get(switch.system) if switch else None

    def _ingress(self, system: SwitchSystem | None, port: PortQos, plan: PortQos | None) -> Iterator[Claim]:
        if not _classifies_at_egress(system):
            yield from switch_checks.classification(port, self.rdma)
        yield from switch_checks.ingress(port, self.rdma, self.policy, _not_held(system), plan)

    def _egress(self, system: SwitchSystem | None, port: PortQos, plan: PortQos | None) -> Iterator[Claim]:
        findings = [*switch_checks.classification(port, self.rdma)] if _classifies_at_egress(system) else []
        findings += switch_checks.egress(port, self.rdma, self.policy, _not_held(system), plan)
        yield from findings
        if not plan or self.rdma is not self.policy.classes[0]:
            return
        if not any(finding.holds is False for finding in (*findings, *self._ingress(system, port, plan))):
            yield from switch_checks.as_planned(port, plan, self.policy, _not_held(system))

    def _cnp_ingress(self, _system: object, port: PortQos, _plan: object) -> Iterator[Claim]:
        return switch_checks.cnp_classification(port, self.policy)

    def _cnp_egress(self, system: SwitchSystem | None, port: PortQos, _plan: object) -> Iterator[Claim]:
        if _classifies_at_egress(system):
            yield from switch_checks.cnp_classification(port, self.policy)
        yield from switch_checks.cnp_egress(port, self.policy)

    def _nic(self, layer: str, end: End, check: Callable[..., Iterable[Claim]], *expected: object) -> Part:
        nic = self._host(end.device).nics.get(end.port)
        place = f"{end.device} {end.port}"
        if nic is None:
            return Part(layer, place, UNREAD)
        part = self._part(layer, place, check, nic, *expected)
        if layer == CNP or self.rdma is not self.policy.classes[0]:
            return part
        request = self.seen.requests.get(end, NO_REQUEST)
        differing = self._verdicts.findings(nic_checks.as_planned, nic, request, self.policy)
        return part._replace(findings=(*part.findings, *differing)) if differing else part

    def _port(
        self,
        layer: str,
        end: End,
        side: str,
        check: Callable[[SwitchSystem | None, PortQos, PortQos | None], Iterable[Claim]],
    ) -> Part:
        """Apply ``check`` to a switch's port and to the port as planned (None where the plan is not compared).

        The check gets the switch's system instead of its name, so that ports of all switches share their findings.
        """
        switch = self.seen.switches.get(end.device)
        port = switch.ports.get(end.port) if switch else None
        place = f"{end.device} {end.port}, {side}"
        if port is None:
            return Part(layer, place, UNREAD)
        planned = self.seen.planned.get(end.device)
        plan = planned.ports.get(end.port) if planned else None
        return self._part(layer, place, check, self._system(end.device), port, plan)

    def _part(self, layer: str, place: str, check: Callable[..., Iterable[Claim]], *arguments: object) -> Part:
        return Part(layer, place, self._verdicts.findings(check, *arguments))


def _classifies_at_egress(system: SwitchSystem | None) -> bool:
    """Return true where the switch classifies a packet by the port where it leaves (linux), not where it enters."""
    return system is not None and system.classifies_at_egress


def _not_held(system: SwitchSystem | None) -> Reasons:
    """Return the fields of PortQos that a switch's system does not show, with the reasons."""
    return system.not_held if system else NO_REASONS


def follow(fabric: Cabling, start: End, goal: End, checker: Checker) -> list[Part]:
    """Return all parts of the path from NIC ``start`` to NIC ``goal``, in order, and of the CNP's path back.

    The NIC of a guest is followed over its VF and the physical function to the port.
    """
    first, last = checker.port_of(start), checker.port_of(goal)
    hops = fabric.shortest_hops(first, last)
    hops_back = fabric.shortest_hops(last, first)
    parts = []
    if first != start:
        parts += [checker.sender(start), *checker.virtual_function(SENDER, start)]
    parts += [*checker.undoing(first), checker.sender(first)]
    entered_ports: set[End] = set()
    left_ports: set[End] = set()
    for hop in hops:
        ingress, egress = End(hop.switch, hop.ingress), End(hop.switch, hop.egress)
        if ingress not in entered_ports:
            entered_ports.add(ingress)
            parts += [*checker.link(fabric.peer[ingress], ingress), *checker.ecmp(hop.switch)]
            parts += [*checker.undoing(ingress), checker.ingress(ingress)]
        if egress not in left_ports:
            left_ports.add(egress)
            parts += [*checker.undoing(egress), checker.egress(egress)]
    parts += [*checker.link(fabric.peer[last], last), *checker.undoing(last), checker.receiver(last)]
    if last != goal:
        parts += [*checker.virtual_function(RECEIVER, goal), checker.receiver(goal)]
    for hop in hops_back:
        parts += checker.cnp(End(hop.switch, hop.ingress), End(hop.switch, hop.egress))
    # Several applications may have one name, but each other part is one place.
    return [*checker.applications(start.device), *_deduplicated([*parts, checker.reactor(first)])]


def survey(fabric: Cabling, checker: Checker) -> Iterator[Part]:
    """Yield all parts of the fabric, where each host sends to each other, over every port in both directions.

    Parts are yielded one by one, because a large fabric has hundreds of thousands and most of them have no fault.
    """
    ends = sorted(fabric.peer)
    nics = [end for end in ends if end.device not in fabric.switches]
    ports = [end for end in ends if end.device in fabric.switches]
    guest_ends = sorted({*checker.seen.carriers, *checker.seen.unknown} - {*nics})
    for host in dict.fromkeys([*fabric.hosts(), *(end.device for end in guest_ends)]):
        yield from checker.applications(host)
    for end in guest_ends:
        yield checker.sender(end)
        yield from checker.virtual_function(SENDER, end)
    for nic in nics:
        yield from checker.undoing(nic)
        yield checker.sender(nic)
    for end, peer in fabric.links():
        yield from checker.link(end, peer)
        yield from checker.link(peer, end)
    for switch in sorted(fabric.switches):
        yield from checker.ecmp(switch)
    for port in ports:
        yield from checker.undoing(port)
        yield checker.ingress(port)
        yield checker.egress(port)
    # A VF receives through its port, a whole NIC of a guest by itself.
    receivers = [*nics, *filter(checker.is_whole, guest_ends)]
    yield from map(checker.receiver, receivers)
    for port in ports:
        yield from checker.cnp(port, port)
    yield from map(checker.reactor, receivers)


def deadlock(fabric: Cabling, checker: Checker) -> Part:
    """Check that pauses cannot wait for each other in a cycle, over the links that really pause."""

    def pauses(end: End) -> bool:
        switch = checker.seen.switches.get(end.device)
        port = switch.ports.get(end.port) if switch else None
        return port is not None and checker.rdma.priority in port.pfc

    paused: dict[tuple[str, str], bool] = {}
    for end, peer in fabric.links():
        both_pause = pauses(end) and pauses(peer)
        for link in ((end.device, peer.device), (peer.device, end.device)):
            paused[link] = paused.get(link, False) or both_pause
    cycle = buffer_cycle(fabric, paused)
    if not cycle:
        return Part(FABRIC, "lossless links")
    cycle_text = " -> ".join([cycle[0][0], *(to for _from, to in cycle)])
    endless_pause = fault(
        "no pause waits for itself",
        "no circle of lossless links",
        cycle_text,
        "a moment of congestion can stop the whole circle for ever; only the PFC watchdog ends it, by dropping packets",
    )
    return Part(FABRIC, "lossless links", (endless_pause,))


def claims(parts: Iterable[Part], source: str) -> list[Claim]:
    """Return the parts as claims of a proof.

    A part that was checked and has no faults is one claim; otherwise each fault is a claim, with its consequence. Each
    setting that cannot be read is a claim marked as not applicable.
    """
    claims_made = []
    for part in parts:
        place = f"{part.where} ({part.rail})" if part.rail else part.where
        if not part.faults and part.checked:
            claims_made.append(Claim(part.layer, f"{place}: RoCE's settings", AS_PLANNED, AS_PLANNED, True, source))
        claims_made += [
            replace(finding, layer=part.layer, claim=f"{place}: {finding.claim}", source=source)
            for finding in part.findings
        ]
    return claims_made


def _deduplicated(parts: Iterable[Part]) -> list[Part]:
    """Return each part once, at its first position: paths share their parts."""
    first: dict[tuple[str, str], Part] = {}
    for part in parts:
        first.setdefault((part.layer, part.where), part)
    return list(first.values())
