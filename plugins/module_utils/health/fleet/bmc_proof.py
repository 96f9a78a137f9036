# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make a proof of what BMCs say: a claim for each fault, and one for each node whose BMC names none. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Answer, Complaint
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.bmc import UNREAD
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

NAME = "health-bmcs"
# The layers of the claims: of BMCs that were read, and of the others.
READ_LAYER, UNREAD_LAYER = "bmc", "unread"
NO_FAULT, SOURCE = "no fault", "BMC"


def bmc_proof(bmcs: Mapping[str, Any]) -> Proof:
    """Return the proof. ``bmcs``: what each BMC says, by node, as node_health_info returns it."""
    claims = [
        claim for node, result in sorted(bmcs.items()) for claim in _of_node(node, answers.read({"health": result}))
    ]
    return Proof(NAME, "What the BMCs of the nodes say", "", claims)


def _of_node(node: str, reply: Answer) -> Iterator[Claim]:
    reason = reply.error or next((fault.seen for fault in reply.faults if fault.check == UNREAD), "")
    if reason:
        yield Claim(UNREAD_LAYER, f"{node}: its BMC", NO_FAULT, None, False, SOURCE, reason)
        return
    faults = [fault for fault in reply.faults if fault.action != "note"]
    for fault in faults:
        yield Claim(READ_LAYER, f"{node}: BMC, {_place(fault)}", NO_FAULT, _seen(fault), False, SOURCE)
    if not faults:
        notes = "; ".join(f"{_place(fault)}: {_seen(fault)}" for fault in reply.faults)
        yield Claim(
            READ_LAYER, f"{node}: its BMC", NO_FAULT, NO_FAULT, True, SOURCE, f"noted: {notes}" if notes else ""
        )


def _place(fault: Complaint) -> str:
    return fault.place or "the whole server"


def _seen(fault: Complaint) -> str:
    seen = f"{fault.title}: {fault.seen}" if fault.seen else fault.title
    return f"{seen}, expected {fault.expected}" if fault.expected else seen
