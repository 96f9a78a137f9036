# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of a fabric: each switch's configuration against the policy, and the path of RoCE over what was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import path_report, switch_config
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import AS_PLANNED, FABRIC, Part, claims
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

SOURCE = "running configuration"


def prove(params: Mapping[str, Any]) -> tuple[Proof, str]:
    """The proof, and its first failure in a sentence ("" where it holds).

    What was not read at all (a host that is none of the inventory's RoCE hosts, a switch beyond --limit) is claimed
    nothing of, and that is said. Raises FabricError.
    """
    compared = switch_config.compared({**params, "hosts": None})
    made: list[Claim] = []
    for name, found in compared["differences"].items():
        what = f"{name}: its configuration"
        if not found:
            made.append(Claim("configuration", what, AS_PLANNED, AS_PLANNED, True, SOURCE))
        made += [
            Claim(
                "configuration",
                f"{what}: {', '.join(each['ports']) or 'the switch'}: {each['what']}",
                each["wanted"],
                each["seen"],
                False,
                SOURCE,
            )
            for each in found
        ]
    first = next((each["message"] for found in compared["differences"].values() for each in found), "")
    parts = list(path_report.look({**params, "paths": [], "rdma_class": None, "thresholds": True}))
    read = {*params["running"], *params["nics"]}
    known = [part for part in parts if part.layer == FABRIC or _devices(part) <= read]
    unread = {device for part in parts if part.layer != FABRIC for device in _devices(part)} - read
    made += claims(known, "as read back")
    made += [
        not_applicable("unread", f"{device}: RoCE's settings", AS_PLANNED, "as read back", f"{device} was not read")
        for device in sorted(unread)
    ]
    faults = [fault for part in known for fault in part.faults]
    if faults and not first:
        first = path_report.message(len(known), faults)
    return Proof(params["name"], "One RoCE policy, from host to host", params["name"], made), first


def _devices(part: Part) -> set[str]:
    """The device of a part, the two of a link."""
    return {end.split(" ")[0] for end in part.where.split(" - ")}
