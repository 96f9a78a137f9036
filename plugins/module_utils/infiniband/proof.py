# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove an InfiniBand fabric: planned = found = routed, partitions on every port, managers with one plan. Pure.

What was not read is never counted as held: it fails, or does not apply and says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Hca, SwitchPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.guids import Guids
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.manager_files import CONF, opensm_file
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.request import (
    DEFAULT_PKEY,
    FULL,
    MEMBER_BIT,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.claims import route_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.tables import (
    engine_in_log,
    read_pkeys,
    read_tables,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.compare import CableFault
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.compare import compare as compare_cables
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import read_infiniband
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import (
    PlannedCable,
    number_at_end,
    planned,
)

_FOUND = "ibnetdiscover -p"
_SMS = "saquery SMInfoRecord"


def prove(plan: FabricPlan, readings: SubnetReadings, marks: Marks | None = None) -> Proof:
    """Return the proof of a fabric, and mark its links. Raises InfinibandError for texts of another kind."""
    name, marks = plan.fabric.name, marks or Marks()
    claims = [
        *cable_claims(plan, readings.found, marks),
        guid_claim(plan, readings.found),
        engine_claim(plan, readings.log),
        *_route_claims(plan, readings, marks),
        *partition_claims(plan, readings.pkeys),
        *manager_claims(plan, readings),
    ]
    return Proof(f"infiniband-{name}", f"The InfiniBand fabric {name}: planned, found, routed", name, claims)


def _route_claims(plan: FabricPlan, readings: SubnetReadings, marks: Marks) -> Iterator[Claim]:
    if not (readings.links or readings.forwarding):
        reason = "opensm's dumps were not read"
        yield compare("routes", "opensm: links and routes as planned", "as planned", None, "opensm-lfts.dump", reason)
        return
    tables = read_tables(readings.links, readings.forwarding, readings.order)
    yield from route_claims(plan.fabric, tables, marks, "cn_guid_file" in plan.request.options)


def cable_claims(plan: FabricPlan, discovered: str, marks: Marks) -> Iterator[Claim]:
    """Return a claim for each fault, and one for each switch whose cables are all as planned; mark the links."""
    if not discovered:
        marks.read = False
        yield compare("cables", "cables: as planned", "as planned", None, _FOUND, "the cables were not read")
        return
    cables = planned(plan.site, plan.fabric.name)
    cables.links = [link for link in cables.links if link.infiniband]
    by_device: dict[str, list[PlannedCable]] = {}
    for link in cables.links:
        for end in (link.one, link.other):
            by_device.setdefault(end.device, []).append(link)
    faults = compare_cables(cables, {}, None, read_infiniband(discovered)).faults
    _mark(plan, cables.links, faults, marks)
    missing = {fault.cable for fault in faults if fault.kind == "missing"}
    at_fault = {cable for fault in faults for cable in fault.cable.split(" and ")}
    faulty = {device for device, links in by_device.items() if any(str(link) in at_fault for link in links)}
    unconnected = {device for device in faulty if all(str(link) in missing for link in by_device[device])}
    of_gone = {str(link) for device in unconnected for link in by_device[device]}
    for device in sorted(unconnected):
        # The far ends of a device that is off miss the same cables.
        number = len(by_device[device])
        reason = f"{device}: none of its {number} cables has a link; turn it on, or connect it to this subnet"
        yield Claim("cables", f"{device}: it is connected", f"{number} cables", "none", False, _FOUND, reason)
    for fault in faults:
        if not (fault.kind == "missing" and fault.cable in of_gone):
            yield Claim("cables", f"{fault.cable}: as planned", "as planned", fault.kind, False, _FOUND, fault.message)
    for switch in plan.fabric.switches:
        if switch not in faulty:
            wanted = f"{len(by_device[switch])} as planned, at their speed"
            yield Claim("cables", f"{switch}: its cables", wanted, wanted, True, _FOUND)


def _mark(plan: FabricPlan, links: list[PlannedCable], faults: list[CableFault], marks: Marks) -> None:
    """Mark the switches' ends of the cables with faults; each cable has one at least."""
    by_name = {str(link): link for link in links}
    for fault in faults:
        for name in fault.cable.split(" and "):
            ends = (by_name[name].one, by_name[name].other) if name in by_name else ()
            ports = [
                SwitchPort(end.device, int(number_at_end(end.interface)))
                for end in ends
                if end.device in plan.fabric.switches
            ]
            marks.add({"missing": "missing", "speed": "slow"}.get(fault.kind, "wrong"), ports, fault.message)


def guid_claim(plan: FabricPlan, discovered: str) -> Claim:
    """Return the claim that each name has one GUID, the planned one, which partitions and roots have."""
    guids = Guids(dict(plan.guids.known))
    guids.add_found(plan.fabric, discovered)
    claim, wanted = "GUIDs: one for each name, the planned one", 0
    seen = len(guids.conflicts) if discovered else None
    return compare("cables", claim, wanted, seen, _FOUND, "; ".join(guids.conflicts[:3]))


def engine_claim(plan: FabricPlan, log: str) -> Claim:
    """Return the claim that the first planned engine routed, with opensm's reason where it did not."""
    wanted, claim, source = plan.request.routing[0], "opensm: the routing engine that is in use", "opensm.log"
    engine, reason = engine_in_log(log)
    if not log:
        return Claim("routes", claim, wanted, None, False, source, "opensm's log was not read")
    if not engine:
        return Claim("routes", claim, wanted, None, False, source, "the log names no engine; set log_flags to 0x43")
    if engine == wanted:
        return compare("routes", claim, wanted, engine, source)
    names = {int(guid, 16): str(node) for node, guid in plan.guids.known.items()}
    reason = re.sub("0x[0-9a-f]+", lambda match: names.get(int(match[0], 16), match[0]), reason)
    cause = f"opensm refused {wanted}: {reason}" if reason else f"opensm refused {wanted}; its log has the cause"
    return compare("routes", claim, wanted, engine, source, cause)


def partition_claims(plan: FabricPlan, pkeys: Mapping[str, str]) -> Iterator[Claim]:
    """Return a claim for each host: exactly the planned P_Keys on each of its HCAs."""
    hcas_of: dict[str, list[Hca]] = {}
    for hca in plan.fabric.hcas:
        hcas_of.setdefault(hca.host, []).append(hca)
    for host, hcas in hcas_of.items():
        by_reason: dict[str, list[str]] = {}
        tables: dict[Hca, list[int]] = {}
        for hca in sorted(hcas):
            try:
                tables[hca] = read_pkeys(pkeys.get(str(hca)) or "")
            except InfinibandError as error:
                by_reason.setdefault(error.cause if pkeys.get(str(hca)) else "not read", []).append(hca.name)
        read = list(tables)
        seen = {hca: {*table} - {0} for hca, table in tables.items()}
        wanted = {hca: wanted_pkeys(plan, hca) for hca in hcas}
        wrong = [hca for hca in read if seen[hca] != wanted[hca]]
        first = {hca: first_pkey(plan, hca) for hca in hcas}
        misplaced = [hca for hca in read if hca not in wrong and first[hca] and tables[hca][:1] != [first[hca]]]
        for hca in wrong:
            by_reason.setdefault(_difference(plan, hca, wanted[hca], seen[hca]), []).append(hca.name)
        for hca in misplaced:
            place = f"0x{first[hca]:04x} is not its first P_Key; let opensm read partitions.conf again"
            by_reason.setdefault(place, []).append(hca.name)
        reasons = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        shown = {hca.name: _in_words(seen[hca]) for hca in read}
        yield Claim(
            "partitions",
            f"{host}: P_Keys of its HCAs",
            {hca.name: _in_words(wanted[hca]) for hca in hcas},
            shown or None,
            not reasons,
            "smpquery pkeys",
            "; ".join(reasons),
        )


def wanted_pkeys(plan: FabricPlan, hca: Hca) -> set[int]:
    """Return the planned P_Keys of an HCA, with the bit of full membership."""
    request = plan.request
    full_in_default = request.default == FULL or hca in request.managers
    pkeys = {DEFAULT_PKEY | (MEMBER_BIT if full_in_default else 0)}
    for partition in request.partitions:
        if hca in partition.members:
            pkeys.add(partition.pkey | (MEMBER_BIT if partition.members[hca] == FULL else 0))
    return pkeys


def first_pkey(plan: FabricPlan, hca: Hca) -> int:
    """Return the P_Key that is planned for the first place of an HCA's table, 0 for none."""
    for partition in plan.request.partitions:
        if partition.index0 and hca in partition.members:
            return partition.pkey | (MEMBER_BIT if partition.members[hca] == FULL else 0)
    return 0


def _in_words(pkeys: set[int]) -> list[str]:
    return [f"0x{pkey:04x}" for pkey in sorted(pkeys, key=lambda pkey: pkey & DEFAULT_PKEY)]


def _difference(plan: FabricPlan, hca: Hca, wanted: set[int], seen: set[int]) -> str:
    """Return what is wrong with an HCA's P_Keys, with the cause where it is known."""
    if seen == {DEFAULT_PKEY | MEMBER_BIT} and plan.request.partitions:
        return "only a full member of the default partition, as after an error in partitions.conf"
    if hca not in plan.guids.known:
        return "its GUID is not known, so partitions.conf does not have it"
    parts = [
        f"{word} {', '.join(_in_words(keys))}"
        for word, keys in (("lacks", wanted - seen), ("has", seen - wanted))
        if keys
    ]
    return f"{' and '.join(parts)}; let opensm read partitions.conf again, or correct the plan"


# A record of saquery, and a line of sminfo.
_RECORD = re.compile(r"GUID\.+(0x[0-9a-f]+).*?SMState\.+(\d+)", re.DOTALL)
_ANSWER = re.compile(r"^sminfo: sm lid \d+ sm guid (0x[0-9a-f]+),.* state (\d+) ", re.MULTILINE)
# SMInfo.SMState (IBA volume 1, 14.4.1).
_DISCOVERING, _STANDBY, _MASTER = 1, 2, 3
_STATES = {0: "not active", _DISCOVERING: "discovering", _STANDBY: "standby", _MASTER: "master"}


def manager_states(text: str) -> dict[str, int]:
    """Return the state of each subnet manager by its GUID: as it says itself, else as the master's record has it.

    The master's record of another manager is from its last heavy sweep, which often finds it discovering.
    """
    states = [*_RECORD.findall(text), *_ANSWER.findall(text)]
    return {f"0x{int(guid, 16):016x}": int(state) for guid, state in states}


def manager_claims(plan: FabricPlan, readings: SubnetReadings) -> Iterator[Claim]:
    """Return the claims that the planned managers, and no others, run, and that each has the planned files."""
    managers = plan.request.managers
    claim = "subnet managers: those of the plan run, and no others"
    if not managers:
        yield not_applicable("managers", claim, "those of the plan", _SMS, "the plan names no managers")
    else:
        names = {guid: str(node) for node, guid in plan.guids.known.items()}
        states = {names.get(guid, guid): state for guid, state in manager_states(readings.managers).items()}
        planned_states = {str(hca): _STANDBY if rank else _MASTER for rank, hca in enumerate(managers)}
        unplanned, absent = sorted({*states} - {*planned_states}), sorted({*planned_states} - {*states})
        reasons = [f"{', '.join(unplanned)}: not planned; stop it, its settings may be other ones"] if unplanned else []
        reasons += [f"{', '.join(absent)}: no subnet manager runs there"] if absent else []
        reasons += [
            f"{name} is {_state(states[name])}, not {_state(state)}; {_cause(states[name])}"
            for name, state in planned_states.items()
            if states.get(name, state) != state
        ]
        wanted = {name: _state(state) for name, state in planned_states.items()}
        seen = {name: _state(state) for name, state in sorted(states.items())}
        yield Claim("managers", claim, wanted, seen or None, not reasons, _SMS, "; ".join(reasons))
    for manager in managers:
        texts = readings.files.get(manager.host)
        config = opensm_file(manager)
        shared = [name for name in plan.files if not name.startswith("opensm-")]
        title = f"{manager.host}: the files of its subnet manager"
        if texts is None:
            yield Claim("managers", title, "as planned", None, False, manager.host, f"{manager.host} was not read")
            continue
        present = {config: texts.get(CONF), **texts}
        differing = [name for name in [config, *shared] if not _same(plan.files[name], present.get(name))]
        shown = f"other: {', '.join(differing)}" if differing else "as planned"
        first = _first_difference(plan.files[differing[0]], present.get(differing[0])) if differing else ""
        reason = f"the first: {first}" if differing else ""
        yield compare("managers", title, "as planned", shown, manager.host, reason)


def _state(state: int) -> str:
    return _STATES.get(state, str(state))


def _cause(state: int) -> str:
    return "read sminfo of its LID, which it answers itself" if state == _DISCOVERING else "look at its log"


def _same(planned_text: str, text: Any) -> bool:
    """Return True for the planned text, without the newline at its end, too, which Ansible's lookups cut off."""
    return isinstance(text, str) and text.rstrip("\n") == planned_text.rstrip("\n")


def _first_difference(wanted: str, seen: str | None) -> str:
    if seen is None:
        return "the file is missing"
    pairs = zip(*([*(line for line in text.splitlines() if line[:1] != "#"), "the end"] for text in (wanted, seen)))
    return next((f"{b!r} instead of {a!r}" for a, b in pairs if a != b), "a comment")
