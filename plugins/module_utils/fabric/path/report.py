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
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import End, Fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Application,
    PortQos,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import seen_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Seen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.follow import (
    Checker,
    Part,
    PathHost,
    ReadBack,
    claims,
    deadlock,
    follow,
    survey,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, RdmaClass, read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.configs import (
    buffers_of,
    left_to_change,
    parse_running,
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
    problems,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.table import table

SOURCE = "as read back"
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
            data = {"where": part.where, "what": finding.claim, "wanted": finding.wanted}
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
    switches = parse_running(params["running"], params["switches"])
    planned = plan(policy, specs, buffers_of(switches))
    seen = ReadBack(
        _hosts(params["nics"], params["applications"], params["hosts"]),
        _share_equal_ports(switches),
        planned if params["thresholds"] else {},
        {
            **_undoing(specs, switches, planned, params["running"] if with_changes and params["thresholds"] else {}),
            **_slow_nics(specs, params["nics"]),
        },
    )
    for rdma in _classes(policy, params["rdma_class"]):
        checker = Checker(policy, rdma, seen)
        if params["paths"]:
            for number, path in enumerate(params["paths"]):
                yield from follow(fabric, *_ends(number, path), checker)
        else:
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
) -> dict[End, tuple[Claim, ...]]:
    """Return what can undo the policy, by switch and port; of the whole switch by switch and "".

    ``running``: the texts to compare with the plan in settings that the terms of ``qos`` do not distinguish, unless one
    is the plan itself, which lacks what the image has.
    """
    faults: dict[End, tuple[Claim, ...]] = {}
    for spec in specs:
        seen = switches.get(spec.name)
        for ports, *texts in problems(seen, spec.speeds_gbit_s) if seen else ():
            for port in ports or ("",):
                end = End(spec.name, port)
                faults[end] = (*faults.get(end, ()), fault(*texts))
        text = running.get(spec.name)
        if seen is None or text is None or text == spec.system.render(planned[spec.name]):
            continue
        if not differences(planned[spec.name], seen, spec.system.not_held):
            for change in left_to_change(planned, running_texts({spec.name: text}), spec.name):
                finding = fault(change["what"], change["wanted"], change["seen"], "the plan does not hold without it")
                faults[End(spec.name, "")] = (*faults.get(End(spec.name, ""), ()), finding)
    return faults


def _slow_nics(specs: list[SwitchSpec], nics: Mapping[str, Any]) -> dict[End, tuple[Claim, ...]]:
    """Return the NICs whose link has another speed than the inventory says."""
    faults: dict[End, tuple[Claim, ...]] = {}
    for spec in specs:
        for port in spec.ports.values():
            peer = port.peer
            reading = (nics.get(peer.name) or {}).get(peer.port) if peer and peer.kind == HOST else None
            speed = reading.get("speed_gbit_s") if isinstance(reading, Mapping) else None
            if peer and speed not in (None, port.speed_gbit_s):
                texts = LINE_RATE, f"{port.speed_gbit_s} Gbit/s", f"{speed} Gbit/s", LINE_RATE_WRONG
                faults[End(peer.name, peer.port)] = (fault(*texts),)
    return faults


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


def _hosts(
    nics: Mapping[str, Any], applications: Mapping[str, Any], inventory: Mapping[str, Any] | None
) -> dict[str, PathHost]:
    for name in applications:
        if name not in nics:
            raise FabricError(
                f"host {name}", "its applications are given, but not its NICs", "read them with roce_nic_info"
            )
    nics_read: dict[str, Seen] = {}
    return {
        name: PathHost(
            {
                nic: seen_of(f"host {name}: NIC {nic}", data, nics_read, _shared_buffer_reason(inventory, name, nic))
                for nic, data in Settings(FabricError, f"host {name}", nics_of_host).data.items()
            },
            tuple(_application(f"host {name}", application) for application in applications.get(name) or ()),
        )
        for name, nics_of_host in nics.items()
    }


def _shared_buffer_reason(inventory: Mapping[str, Any] | None, host: str, nic: str) -> str | None:
    """Return the reason why a NIC's lossless priorities need no ingress buffer of their own, or None."""
    settings = ((inventory or {}).get(host) or {}).get(nic, {"cable_m": 0})
    return None if (settings or {}).get("cable_m") is not None else NO_CABLE


def _application(subject: str, settings: Any) -> Application:
    checks = {"name": values.text, "tos": values.within(0, 255), "queue_pairs": values.within(1, 1 << 16)}
    application: Application = Settings(FabricError, f"{subject}: application", settings).load(Application, checks)
    return application
