# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of a fabric: compares each switch's configuration with the policy, and checks RoCE's path as read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.diff import field_title
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.follow import AS_PLANNED, FABRIC, Part, claims
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.hosts import read_hosts
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

SOURCE = "running configuration"
NOTHING = PortQos()


def prove(params: Mapping[str, Any]) -> tuple[Proof, str]:
    """Return the proof, and its first failure in a sentence ("" where it holds).

    The proof makes no claim about a device that was not read (a host that is none of the inventory's RoCE hosts, a
    switch beyond --limit), and says so. A device whose reading was given and cannot be read, and a switch for which the
    policy cannot be planned, fails. Raises FabricError.
    """
    readings = configs.wanted_and_seen({**params, "hosts": None})  # the plan checks the hosts' NICs
    wanted = readings.wanted
    compared, running = configs.compare(readings), configs.running_texts(params["running"])
    hosts = read_hosts(params["nics"], params["hosts"])
    claims_made = [
        Claim("unread", f"{name}: it was read", "its settings", None, False, SOURCE, str(error))
        for name, error in {**readings.unread, **hosts.unread}.items()
    ]
    for name, differences in compared["differences"].items():
        if name in readings.unread or name in readings.refused:  # claims of the path name the latter
            continue
        claim = f"{name}: its configuration"
        if not differences:
            differences += configs.left_to_change(wanted, running, name)
        if not differences:
            claims_made.append(Claim("configuration", claim, AS_PLANNED, AS_PLANNED, True, SOURCE))
        claims_made += [
            Claim(
                "configuration",
                ": ".join(filter(None, (name, difference["what"], fold(difference["ports"])))),
                difference["wanted"],
                difference["seen"],
                False,
                SOURCE,
            )
            for difference in differences
        ]
    claims_made += [
        not_applicable("configuration", f"{name}: its configuration: {', '.join(settings)}", AS_PLANNED, SOURCE, reason)
        for name, not_held in compared["not_held"].items()
        for reason, settings in _by_reason(wanted[name], not_held).items()
    ]
    first = next(
        (difference["message"] for differences in compared["differences"].values() for difference in differences), ""
    )
    requested = {**params, "paths": [], "rdma_class": None, "thresholds": True}
    parts = list(report.requested_parts(requested, readings, hosts, with_changes=False))
    read = {*readings.seen, *hosts.nics}
    known_parts = [part for part in parts if part.layer == FABRIC or _devices(part) <= read]
    unread = {device for part in parts if part.layer != FABRIC for device in _devices(part)} - read
    unread -= {*readings.unread, *hosts.unread}
    claims_made += claims(known_parts, "as read back")
    claims_made += [
        not_applicable("unread", f"{device}: RoCE's settings", AS_PLANNED, "as read back", f"{device} was not read")
        for device in sorted(unread)
    ]
    if not first and any(claim.holds is False for claim in claims_made):
        first = report.message(len(known_parts), claims_made)
    return Proof(params["name"], "One RoCE policy, from host to host", params["name"], claims_made), first


def worse(proof: Proof, params: Mapping[str, Any]) -> list[str]:
    """Return the claims of ``proof`` that fail and did not fail in the same way before the run. Raises FabricError.

    ``params``: those of ``prove``, with the readings before the run as running_before and nics_before; without them,
    all claims that fail are returned.
    """
    failures = _failures(proof)
    if failures and params["running_before"]:
        earlier = {**params, "running": params["running_before"], "nics": params["nics_before"]}
        failures -= _failures(prove(earlier)[0])
    return sorted({claim for claim, _seen in failures})


def _failures(proof: Proof) -> set[tuple[str, str]]:
    return {(claim.claim, repr(claim.seen)) for claim in proof.claims if claim.holds is False}


def _by_reason(wanted: Switch, not_held: Mapping[str, str]) -> dict[str, list[str]]:
    """Return, in words and by reason, the requested settings that the switch's system does not show."""
    settings_by_reason: dict[str, list[str]] = {}
    ports = wanted.distinct_ports()
    for setting, reason in not_held.items():
        if setting == "ecmp_fields" or any(getattr(qos, setting) != getattr(NOTHING, setting) for qos in ports):
            settings_by_reason.setdefault(reason, []).append(field_title(setting))
    return settings_by_reason


def _devices(part: Part) -> set[str]:
    """Return the device of a part, or the two devices of a link."""
    return {end.split(" ")[0] for end in part.where.split(" - ")}
