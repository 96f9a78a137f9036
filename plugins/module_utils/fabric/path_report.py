# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the module roce_path_info does: a fabric from its inventory and from what was read back, followed and told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.checks import Fault
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.error import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nics import nic_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import (
    Checker,
    Host,
    Part,
    ReadBack,
    claims,
    deadlock,
    follow,
    survey,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.plan import SwitchSpec, plan, read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import Policy, RdmaClass, read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.record import Record
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import (
    Application,
    Nic,
    PortQos,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch_config import parse_running
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch_systems import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.topology import End, Fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.table import table

SOURCE = "as read back"
PORT_FIELDS = [each.name for each in fields(PortQos)]


def checked(params: Mapping[str, Any]) -> dict[str, Any]:
    """The module's result. Raises FabricError for what cannot be read or followed."""
    faults: list[Fault] = []
    made: list[Claim] = []
    fine: dict[str, list[Claim]] = {}  # by layer; the table only counts those that hold, so one stands for all
    count = 0
    for part in look(params):
        count += 1
        if part.faults:
            faults += part.faults
            made += claims([part], SOURCE)
        else:
            if part.layer not in fine:
                fine[part.layer] = claims([part], SOURCE)
            made += fine[part.layer]
    proof = Proof(params["name"], "The path of RoCE traffic", params["name"], made)
    return {
        "changed": False,
        "holds": not faults,
        "first_fault": asdict(faults[0]) if faults else None,
        "faults": [asdict(fault) for fault in faults],
        "parts": count,
        "table": table(proof),
        "message": message(count, faults),
    }


def look(params: Mapping[str, Any]) -> Iterator[Part]:
    """All parts of the paths that ``params``, the module's, ask for, in their order. Raises FabricError."""
    policy = read_policy(params["policy"])
    specs = read_switches(params["switches"], None, params["asics"])
    fabric = Fabric(_links(specs), [spec.name for spec in specs])
    planned = plan(policy, specs)
    seen = ReadBack(
        _hosts(params["nics"], params["applications"]),
        completed(parse_running(params["running"], params["switches"]), planned),
        planned if params["thresholds"] else {},
    )
    for rdma in _classes(policy, params["rdma_class"]):
        checker = Checker(policy, rdma, seen)
        if params["paths"]:
            for at, given in enumerate(params["paths"]):
                yield from follow(fabric, *_ends(at, given), checker)
        else:
            yield from survey(fabric, checker)
        yield deadlock(fabric, checker)


def message(parts: int, faults: list[Fault]) -> str:
    """Of so many parts, the first broken hop in a sentence, or that there is none."""
    if not faults:
        return f"all {parts} parts are as the policy says"
    first, count = faults[0], len(faults)
    others = f"; {count - 1} more" if count > 1 else ""
    return f"{first.where}: {first.what}: wanted {first.wanted}, seen {first.seen}: {first.consequence}{others}"


def completed(seen: Mapping[str, Switch], planned: Mapping[str, Switch]) -> dict[str, Switch]:
    """``seen`` with what a system's configuration does not hold as it is planned: the system sets it by itself.

    Ports that are alike are one object, whatever their switch.
    """
    known: dict[tuple[int, int], PortQos] = {}
    alike: dict[PortQos, PortQos] = {}

    def port(qos: PortQos, plan: PortQos | None, not_held: list[str]) -> PortQos:
        key = (id(qos), id(plan))
        if key not in known:
            full = qos if plan is None else replace(qos, **{name: getattr(plan, name) for name in not_held})
            known[key] = alike.setdefault(full, full)
        return known[key]

    found = {}
    for name, switch in seen.items():
        not_held = [each for each in SYSTEMS[switch.system].NOT_HELD if each in PORT_FIELDS]
        plans = planned[name].ports if name in planned else {}
        ports = {at: port(qos, plans.get(at), not_held) for at, qos in switch.ports.items()}
        found[name] = replace(switch, ports=ports)
    return found


def _links(specs: list[SwitchSpec]) -> Iterator[tuple[End, End]]:
    for spec in specs:
        for name, port in spec.ports.items():
            if port.peer is not None:
                yield End(spec.name, name), End(port.peer.name, port.peer.port)


def _classes(policy: Policy, wanted: str | None) -> list[RdmaClass]:
    found = [each for each in policy.classes if wanted in (None, each.name)]
    if not found:
        names = ", ".join(each.name for each in policy.classes)
        raise FabricError(f"class {wanted}", "the policy has no such class of RoCE", f"name one of {names}")
    return found


def _ends(at: int, given: Any) -> tuple[End, End]:
    record = Record(f"paths[{at}]", given)
    record.only("source", "destination")
    record.need("source", "destination")
    ends = []
    for side in ("source", "destination"):
        end = Record(f"paths[{at}]: {side}", record.data[side])
        end.only("host", "nic")
        end.need("host", "nic")
        ends.append(End(end.text("host", ""), end.text("nic", "")))
    return ends[0], ends[1]


def _hosts(nics: Mapping[str, Any], applications: Mapping[str, Any]) -> dict[str, Host]:
    for name in applications:
        if name not in nics:
            raise FabricError(
                f"host {name}", "its applications are given, but not its NICs", "read them with roce_nic_info"
            )
    known: dict[str, Nic] = {}
    return {
        name: Host(
            {
                nic: nic_of(f"host {name}: NIC {nic}", data, known)
                for nic, data in Record(f"host {name}", found).data.items()
            },
            tuple(_application(f"host {name}", each) for each in applications.get(name) or ()),
        )
        for name, found in nics.items()
    }


def _application(subject: str, given: Any) -> Application:
    record = Record(f"{subject}: application", given)
    record.only("name", "tos", "queue_pairs")
    record.need("name", "tos")
    pairs = record.number("queue_pairs", 1, 1, 1 << 16) if "queue_pairs" in record.data else None
    return Application(record.text("name", ""), record.number("tos", 0, 0, 255), queue_pairs=pairs)
