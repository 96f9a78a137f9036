# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Implement the module roce_path_info: follow a fabric from its inventory and its readings, and report it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.diff import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Application,
    PortQos,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import NicRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault
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
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.hosts import (
    READABLE_NICS,
    HostReadings,
    port_findings,
    read_hosts,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.rails import Rails
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, RdmaClass
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.configs import (
    PLANNABLE,
    READABLE,
    FabricReadings,
    left_to_change,
    read_fabric,
    running_texts,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import (
    HOST,
    SwitchSpec,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.overrides import (
    UNKNOWN,
    problems,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.table import table

SOURCE = "as read back"


def checked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises FabricError for what cannot be read or followed."""
    faults: list[dict[str, Any]] = []
    unseen: list[dict[str, Any]] = []
    claims_made: list[Claim] = []
    held_claims: dict[str, list[Claim]] = {}  # by layer; the table only counts those that hold: one represents all
    count = 0
    readings = read_fabric({**params, "hosts": None})  # the plan checks the hosts' NICs
    for part in requested_parts(params, readings, read_hosts(params["nics"], params["hosts"])):
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


def requested_parts(
    params: Mapping[str, Any], readings: FabricReadings, hosts: HostReadings, with_changes: bool = True
) -> Iterator[Part]:
    """Return all parts of the paths that the module's ``params`` request, in their order. Raises FabricError.

    ``readings`` and ``hosts``: those of ``params``, as read. ``with_changes``: also what the policy would still change
    on a switch whose terms of ``qos`` are as planned.
    """
    paths = [_ends(number, path) for number, path in enumerate(params["paths"])]
    planned, policy, fabric, specs = (
        readings.wanted,
        readings.policy,
        readings.inventory.fabric,
        readings.inventory.specs,
    )
    guests = read_guests(params.get("guests"))
    guest_ports = GuestPorts(fabric, guests, hosts.nics)
    path_hosts = _path_hosts(params, guests, hosts, guest_ports)
    rails = Rails(fabric, {end: carrier.port for end, carrier in guest_ports.carriers.items()})
    running = params["running"] if with_changes and params["thresholds"] else {}
    undoing: dict[End, list[Claim]] = {}
    for end, finding in (
        *((End(name, ""), fault(PLANNABLE, "a plan", str(error), UNKNOWN)) for name, error in readings.refused.items()),
        *_undoing(specs, readings.seen, planned, running),
        *port_findings(specs, hosts),
        *rails.findings(),
        *(
            (End(name, ""), fault(READABLE, "all of it", error.cause, UNKNOWN))
            for name, error in readings.unread.items()
        ),
    ):
        undoing.setdefault(end, []).append(finding)
    seen = ReadBack(
        path_hosts,
        _share_equal_ports(readings.seen),
        planned if params["thresholds"] else {},
        undoing,
        guest_ports.carriers,
        {
            **guest_ports.unknown,
            **{End(guest, ""): reason for guest, reason in unread_guests(fabric, guests, hosts.nics)},
        },
        _requests(specs, hosts.requests) if params["thresholds"] else {},
    )
    on_paths = {end.device for ends in paths for end in ends}
    for name, error in hosts.unread.items():
        if not paths or name in on_paths:
            yield Part(SENDER, name, (fault(READABLE_NICS, "all of it", str(error), UNKNOWN),))
    for rdma in _classes(policy, params["rdma_class"]):
        for part in _parts(fabric, paths, Checker(policy, rdma, seen)):
            rail = rails.title(part.where)
            yield part._replace(rail=rail) if rail else part
    if not paths:
        known = {*guest_ports.carriers, *guest_ports.unknown}
        for place, finding in unknown_nics(fabric, guests, hosts.nics, known):
            yield Part(SENDER, place, (finding,))


def _parts(fabric: Cabling, paths: list[tuple[End, End]], checker: Checker) -> Iterator[Part]:
    for start, goal in paths:
        yield from follow(fabric, start, goal, checker)
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
    specs: list[SwitchSpec], switches: Mapping[str, Switch], planned: Mapping[str, Switch], running: Mapping[str, Any]
) -> Iterator[tuple[End, Claim]]:
    """Yield what can undo the policy, by switch and port; of the whole switch by switch and "".

    ``planned``: the switches for which the policy can be planned. ``running``: the texts to compare with the plan in
    settings that the terms of ``qos`` do not distinguish, unless one is the plan itself, which lacks what the image
    has.
    """
    for spec in specs:
        seen = switches.get(spec.name)
        if seen is None:
            continue
        for ports, *texts in problems(seen, spec.speeds_gbit_s, planned.get(spec.name)):
            for port in ports or ("",):
                yield End(spec.name, port), fault(*texts)
        text = running.get(spec.name)
        if text is None or spec.name not in planned or _is_rendered(text, planned[spec.name], spec):
            continue
        if not differences(planned[spec.name], seen, spec.system.not_held):
            for change in left_to_change(planned, running_texts({spec.name: text}), spec.name):
                finding = fault(change["what"], change["wanted"], change["seen"], "the plan does not hold without it")
                yield End(spec.name, ""), finding


def _is_rendered(text: str, planned: Switch, spec: SwitchSpec) -> bool:
    try:
        return text == spec.system.render(planned)
    except FabricError:  # left_to_change names it
        return False


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
        raise FabricError("the policy has no such RoCE class", f"name one of {names}", subject=f"class {wanted}")
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


def _path_hosts(
    params: Mapping[str, Any], guests: Mapping[str, str], hosts: HostReadings, guest_ports: GuestPorts
) -> dict[str, PathHost]:
    """Return the hosts that were read. A hypervisor without applications is not asked for them: its guests send."""
    applications = params["applications"]
    for name in applications or ():
        if name not in params["nics"]:
            raise FabricError(
                "its applications are given, but not its NICs", "read them with roce_nic_info", subject=f"host {name}"
            )
    hypervisors = {*guests.values()}
    path_hosts = {}
    for name, nics in hosts.nics.items():
        settings = Settings(FabricError, f"host {name}", {"applications": (applications or {}).get(name)})
        sending = tuple(_application(f"host {name}", data) for data in settings.value("applications", values.items, ()))
        path_hosts[name] = PathHost(
            {nic: guest_ports.with_port(End(name, nic)) for nic in nics},
            None if applications is None or (not sending and name in hypervisors) else sending,
        )
    return path_hosts


def _requests(specs: list[SwitchSpec], inventory: Mapping[End, NicRequest]) -> dict[End, NicRequest]:
    """Return the speed and cable of NICs: as the inventory has them, else those of the port at the other end."""
    requests = {
        End(port.peer.name, port.peer.port): NicRequest(port.speed_gbit_s, port.cable_m)
        for spec in specs
        for port in spec.ports.values()
        if port.peer and port.peer.kind == HOST
    }
    requests.update(inventory)
    distinct: dict[NicRequest, NicRequest] = {}
    return {end: distinct.setdefault(request, request) for end, request in requests.items()}


def _application(subject: str, settings: Any) -> Application:
    checks = {
        "name": values.text,
        "tos": values.within(0, 255),
        "queue_pairs": values.within(1, 1 << 16),
        "gid_index": values.within(0, 255),
    }
    application: Application = Settings(FabricError, f"{subject}: application", settings).load(Application, checks)
    return application
