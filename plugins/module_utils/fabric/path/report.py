# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Implement the module roce_path_info: follow a fabric from its inventory and its readings, and report it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.diff import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import End, Fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Application,
    PortQos,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import seen_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import NicRequest, read_nics
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Seen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault, unseen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.follow import (
    SENDER,
    Checker,
    Part,
    PathHost,
    ReadBack,
    claims,
    deadlock,
    follow,
    survey,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.guests import (
    GuestPorts,
    read_guests,
    unknown_nics,
    unread_guests,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.rails import Rails
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, RdmaClass, read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.configs import (
    PLANNABLE,
    READABLE,
    buffers_of,
    left_to_change,
    parse_readable,
    running_texts,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import (
    HOST,
    SwitchSpec,
    links_of,
    read_switches,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.overrides import (
    LINE_RATE,
    LINE_RATE_WRONG,
    UNKNOWN,
    problems,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan_possible
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.table import table

SOURCE = "as read back"
NO_SPEED = "the driver shows no speed: the link is down, or has none"
COVERED = "each active port of the card is a NIC of the inventory"
UNCOVERED = "NCCL uses all active RDMA devices, and these have no policy; add them to roce_host_nics, or take them down"
RAIL, STRAY = "its cable is at a switch of its rail", "its flows share switches with another rail, or take a longer way"
NO_CABLE = "roce_host_nics gives it no cable_m, so its ingress buffers are left to its driver"


def checked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises FabricError for what cannot be read or followed."""
    faults: list[dict[str, Any]] = []
    unseen: list[dict[str, Any]] = []
    claims_made: list[Claim] = []
    held_claims: dict[str, list[Claim]] = {}  # by layer; the table only counts those that hold: one represents all
    count = 0
    for part in requested_parts(params):
        count += 1
        if not part.findings and part.layer not in held_claims:
            held_claims[part.layer] = claims([part], SOURCE)
        claims_made += claims([part], SOURCE) if part.findings else held_claims[part.layer]
        for finding in part.findings:
            data = {"where": part.where, "rail": part.rail, "what": finding.claim, "wanted": finding.wanted}
            if finding.holds is None:
                unseen.append({**data, "reason": finding.reason})
            else:
                faults.append({**data, "seen": finding.seen, "consequence": finding.reason})
    proof = Proof(params["name"], "The path of RoCE traffic", params["name"], claims_made)
    return {
        "changed": False,
        "holds": not faults,
        "first_fault": faults[0] if faults else None,
        "faults": faults,
        "parts": count,
        "table": table(proof),
        "unseen": unseen,
        "message": message(count, claims_made, len(unseen)),
    }


def requested_parts(params: Mapping[str, Any], with_changes: bool = True) -> Iterator[Part]:
    """Return all parts of the paths that the module's ``params`` request, in their order. Raises FabricError.

    ``with_changes``: also what the policy would still change on a switch whose terms of ``qos`` are as planned.
    """
    policy = read_policy(params["policy"])
    specs = read_switches(params["switches"], None, params["asics"])
    fabric = Fabric(links_of(specs), [spec.name for spec in specs])
    switches, unread = parse_readable(params["running"], params["switches"])
    planned, refused = plan_possible(policy, specs, buffers_of(switches))
    guests = read_guests(params.get("guests"))
    hosts, guest_ports = _with_ports(fabric, guests, params["nics"], _hosts(params, guests))
    rails = Rails(fabric, {end: carrier.port for end, carrier in guest_ports.carriers.items()})
    running = params["running"] if with_changes and params["thresholds"] else {}
    undoing = _undoing(specs, switches, planned, refused, running)
    undoing.update(_ports_of_nics(specs, params["nics"]))
    for end, switch, rail_leaves in rails.strays():
        undoing.setdefault(end, []).append(fault(RAIL, fold(rail_leaves), switch, STRAY))
    for leaf, hosts_by_nic in rails.undecided():
        undoing.setdefault(End(leaf, ""), []).append(_undecided(hosts_by_nic))
    for name, error in unread.items():
        undoing[End(name, "")] = [fault(READABLE, "all of it", error.cause, UNKNOWN)]
    seen = ReadBack(
        hosts,
        _share_equal_ports(switches),
        planned if params["thresholds"] else {},
        undoing,
        guest_ports.carriers,
        {
            **guest_ports.unknown,
            **{End(guest, ""): reason for guest, reason in unread_guests(fabric, guests, params["nics"])},
        },
        _requests(specs, params["hosts"], params["nics"]) if params["thresholds"] else {},
    )
    for rdma in _classes(policy, params["rdma_class"]):
        for part in _parts(fabric, params["paths"], Checker(policy, rdma, seen)):
            rail = rails.title(part.where)
            yield part._replace(rail=rail) if rail else part
    if not params["paths"]:
        known = {*guest_ports.carriers, *guest_ports.unknown}
        for place, finding in unknown_nics(fabric, guests, params["nics"], known):
            yield Part(SENDER, place, (finding,))


def _parts(fabric: Fabric, paths: list[Any], checker: Checker) -> Iterator[Part]:
    for number, path in enumerate(paths):
        yield from follow(fabric, *_ends(number, path), checker)
    if not paths:
        yield from survey(fabric, checker)
    yield deadlock(fabric, checker)


def message(parts: int, claims_made: list[Claim], unseen: int = 0) -> str:
    """Return a message: the first broken hop and the number of other faults, or that all ``parts`` are correct."""
    faults = [claim for claim in claims_made if claim.holds is False]
    if not faults:
        unread = f"; {unseen} of their settings cannot be read" if unseen else ""
        return f"all {parts} parts are as the policy says{unread}"
    more_faults = f"; {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{faults[0]}: {faults[0].reason}{more_faults}"


def _undoing(
    specs: list[SwitchSpec],
    switches: Mapping[str, Switch],
    planned: Mapping[str, Switch],
    refused: Mapping[str, FabricError],
    running: Mapping[str, Any],
) -> dict[End, list[Claim]]:
    """Return what can undo the policy, by switch and port; of the whole switch by switch and "".

    ``planned``: the switches for which the policy can be planned; ``refused``: why it cannot for the others.
    ``running``: the texts to compare with the plan in settings that the terms of ``qos`` do not distinguish, unless one
    is the plan itself, which lacks what the image has.
    """
    faults: dict[End, list[Claim]] = {}
    for spec in specs:
        seen = switches.get(spec.name)
        if seen is None:
            continue
        if spec.name in refused:
            finding = fault(PLANNABLE, "a plan", refused[spec.name].cause, UNKNOWN)
            faults[End(spec.name, "")] = [finding]
        for ports, *texts in problems(seen, spec.speeds_gbit_s, planned.get(spec.name)):
            for port in ports or ("",):
                faults.setdefault(End(spec.name, port), []).append(fault(*texts))
        text = running.get(spec.name)
        if text is None or spec.name not in planned or _is_rendered(text, planned[spec.name], spec):
            continue
        if not differences(planned[spec.name], seen, spec.system.not_held):
            for change in left_to_change(planned, running_texts({spec.name: text}), spec.name):
                finding = fault(change["what"], change["wanted"], change["seen"], "the plan does not hold without it")
                faults.setdefault(End(spec.name, ""), []).append(finding)
    return faults


def _is_rendered(text: str, planned: Switch, spec: SwitchSpec) -> bool:
    try:
        return text == spec.system.render(planned)
    except FabricError:  # left_to_change names it
        return False


def _ports_of_nics(specs: list[SwitchSpec], nics: Mapping[str, Any]) -> dict[End, list[Claim]]:
    """Return NICs whose link has another speed than the inventory says, or whose card has ports without the policy."""
    findings: dict[End, list[Claim]] = {}
    for spec in specs:
        for port in spec.ports.values():
            peer = port.peer
            reading = (nics.get(peer.name) or {}).get(peer.port) if peer and peer.kind == HOST else None
            if not peer or not isinstance(reading, Mapping):
                continue
            end, wanted = End(peer.name, peer.port), f"{port.speed_gbit_s} Gbit/s"
            speed = reading.get("speed_gbit_s", port.speed_gbit_s)
            if speed is None:
                findings.setdefault(end, []).append(unseen(LINE_RATE, wanted, NO_SPEED))
            elif speed != port.speed_gbit_s:
                texts = LINE_RATE, wanted, f"{speed} Gbit/s", LINE_RATE_WRONG
                findings.setdefault(end, []).append(fault(*texts))
            uncovered = [name for name in reading.get("uncovered") or () if name not in nics[peer.name]]
            if uncovered:
                findings.setdefault(end, []).append(fault(COVERED, "none", uncovered, UNCOVERED))
    return findings


def _undecided(hosts_by_nic: Mapping[str, list[str]]) -> Claim:
    cables = "; ".join(f"{nic} of {fold(hosts)}" for nic, hosts in hosts_by_nic.items())
    count = max(map(len, hosts_by_nic.values()))
    consequence = f"its rail cannot be told: {count} of {2 * count} hosts are cabled otherwise than the others; {STRAY}"
    return fault("most of its hosts have the same NICs at it", "the same NICs", cables, consequence)


def _share_equal_ports(seen: Mapping[str, Switch]) -> dict[str, Switch]:
    """Return ``seen`` with one object for ports that are alike, whatever their switch."""
    first_equal: dict[int, PortQos] = {}
    distinct: dict[PortQos, PortQos] = {}

    def port(qos: PortQos) -> PortQos:
        if id(qos) not in first_equal:
            first_equal[id(qos)] = distinct.setdefault(qos, qos)
        return first_equal[id(qos)]

    return {
        name: replace(switch, ports={port_name: port(qos) for port_name, qos in switch.ports.items()})
        for name, switch in seen.items()
    }


def _classes(policy: Policy, wanted: str | None) -> list[RdmaClass]:
    classes = [rdma_class for rdma_class in policy.classes if wanted in (None, rdma_class.name)]
    if not classes:
        names = ", ".join(rdma_class.name for rdma_class in policy.classes)
        raise FabricError(f"class {wanted}", "the policy has no such RoCE class", f"name one of {names}")
    return classes


def _ends(number: int, path: Any) -> tuple[End, End]:
    record = Settings(FabricError, f"paths[{number}]", path)
    record.only("source", "destination")
    record.need("source", "destination")
    ends = []
    for end in (record.part("source"), record.part("destination")):
        end.only("host", "nic")
        ends.append(End(end.required("host", values.text), end.required("nic", values.text)))
    return ends[0], ends[1]


def _hosts(params: Mapping[str, Any], guests: Mapping[str, str]) -> dict[str, PathHost]:
    """Return the hosts that were read. A hypervisor without applications is not asked for them: its guests send."""
    nics, applications, inventory = params["nics"], params["applications"], params["hosts"]
    for name in applications or ():
        if name not in nics:
            raise FabricError(
                f"host {name}", "its applications are given, but not its NICs", "read them with roce_nic_info"
            )
    nics_read: dict[str, Seen] = {}
    hypervisors = {*guests.values()}
    hosts = {}
    for name, nics_of_host in nics.items():
        sending = tuple(_application(f"host {name}", data) for data in (applications or {}).get(name) or ())
        hosts[name] = PathHost(
            {
                nic: seen_of(f"host {name}: NIC {nic}", data, nics_read, _shared_buffer_reason(inventory, name, nic))
                for nic, data in Settings(FabricError, f"host {name}", nics_of_host).data.items()
            },
            None if applications is None or (not sending and name in hypervisors) else sending,
        )
    return hosts


def _with_ports(
    fabric: Fabric, guests: Mapping[str, str], readings: Mapping[str, Any], hosts: Mapping[str, PathHost]
) -> tuple[dict[str, PathHost], GuestPorts]:
    """Return the hosts, whose VFs have their physical functions, and what is known of the ports of these."""
    guest_ports = GuestPorts(fabric, guests, readings)
    physical_functions = {End(name, nic): seen for name, host in hosts.items() for nic, seen in host.nics.items()}
    return {
        name: replace(
            host,
            nics={
                nic: guest_ports.with_port(End(name, nic), seen, physical_functions) for nic, seen in host.nics.items()
            },
        )
        for name, host in hosts.items()
    }, guest_ports


def _requests(
    specs: list[SwitchSpec], inventory: Mapping[str, Any] | None, nics: Mapping[str, Any]
) -> dict[End, NicRequest]:
    """Return the speed and cable of NICs: as the inventory has them, else those of the port at the other end.

    Raises FabricError.
    """
    requests = {
        End(port.peer.name, port.peer.port): NicRequest(port.speed_gbit_s, port.cable_m)
        for spec in specs
        for port in spec.ports.values()
        if port.peer and port.peer.kind == HOST
    }
    read: dict[str, dict[str, NicRequest]] = {}  # by text: hosts of a fleet are alike
    for host in nics:
        settings = (inventory or {}).get(host)
        if settings:
            text = repr(settings)
            if text not in read:
                read[text] = _read_nics(host, settings)
            requests.update({End(host, nic): request for nic, request in read[text].items()})
    distinct: dict[NicRequest, NicRequest] = {}
    return {end: distinct.setdefault(request, request) for end, request in requests.items()}


def _read_nics(host: str, settings: Any) -> dict[str, NicRequest]:
    try:
        return read_nics(settings)
    except FabricError as error:
        raise FabricError(f"host {host}: {error.subject}", error.cause, error.remedy) from error


def _shared_buffer_reason(inventory: Mapping[str, Any] | None, host: str, nic: str) -> str | None:
    """Return the reason why a NIC's lossless priorities need no ingress buffer of their own, or None."""
    settings = ((inventory or {}).get(host) or {}).get(nic, {"cable_m": 0})
    return None if (settings or {}).get("cable_m") is not None else NO_CABLE


def _application(subject: str, settings: Any) -> Application:
    checks = {
        "name": values.text,
        "tos": values.within(0, 255),
        "queue_pairs": values.within(1, 1 << 16),
        "gid_index": values.within(0, 255),
    }
    application: Application = Settings(FabricError, f"{subject}: application", settings).load(Application, checks)
    return application
