# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the proofs on the controller: the proof of each host, its acceptance, and those of fabrics. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    ACCEPTANCE,
    DIFFERS,
    FABRIC,
    FAULT,
    OK,
    PROOF,
    UNKNOWN,
    Datum,
    cut,
    datum,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

MEASURED = "acceptance-"
# The layer of the claims of fabric_drift about devices that were not read.
UNREAD = "unread"


@dataclass
class Proved:
    """The data of hosts, the proofs of fabrics with their data, and what fails of links between two hosts, by both."""

    hosts: dict[str, list[Datum]] = field(default_factory=dict)
    fabrics: dict[str, Datum] = field(default_factory=dict)
    links: dict[tuple[str, str], str] = field(default_factory=dict)


def read_proofs(texts: Mapping[str, tuple[str, float]], hosts: Collection[str]) -> Proved:
    """Return what proofs say. ``texts``: content and time in seconds since 1970 of each file NAME.json, by NAME."""
    proved = Proved()
    for name, (text, at_s) in sorted(texts.items()):
        measured = name.startswith(MEASURED) and name not in hosts
        host = name[len(MEASURED) :] if measured else name
        kind = ACCEPTANCE if measured else PROOF
        try:
            data = json.loads(text)
            if not (isinstance(data, dict) and str(data.get("format", "")).startswith("sailloft-proof/")):
                continue
            proof = Proof.from_dict(data)
        except (ValueError, RecursionError, ProofError) as error:
            if host in hosts:
                proved.hosts.setdefault(host, []).append(datum(kind, UNKNOWN, f"{name}.json: {error}", at_s))
            continue
        if host in hosts:
            proved.hosts.setdefault(host, []).append(_of_host(kind, proof, at_s))
        elif not measured:
            proved.fabrics[name] = _summary(FABRIC, DIFFERS, proof, at_s)
            for device, entry in _of_devices(proof, at_s, hosts).items():
                proved.hosts.setdefault(device, []).append(entry)
            for claim in proof.claims:
                ends = sorted(_devices(claim, hosts))
                if claim.holds is False and len(ends) == 2:
                    proved.links.setdefault((ends[0], ends[1]), cut(str(claim)))
    return proved


def _of_host(kind: str, proof: Proof, at_s: float) -> Datum:
    return _summary(kind, FAULT if kind == ACCEPTANCE else DIFFERS, proof, at_s)


def _summary(kind: str, failing: str, proof: Proof, at_s: float) -> Datum:
    failed = [claim for claim in proof.claims if claim.holds is False]
    page = f"{proof.name}.html"
    if proof.holds:
        return datum(kind, OK, f"{proof.counts.held} claims hold", at_s, page=page)
    unread = bool(failed) and all(claim.seen is None for claim in failed)
    first = f": {failed[0].claim}" if failed else ""
    text = f"{_failing(len(failed))} of {len(proof.claims)}{first}" if failed else "nothing was proved"
    return datum(kind, UNKNOWN if unread or not failed else failing, text, at_s, map(str, failed), page)


def _of_devices(proof: Proof, at_s: float, hosts: Collection[str]) -> dict[str, Datum]:
    """Return a datum for each host that a claim of a fabric is about: it begins with it, a port of it, or a link."""
    failed: dict[str, list[Claim]] = {}
    for claim in proof.claims:
        for device in _devices(claim, hosts):
            lines = failed.setdefault(device, [])
            if claim.holds is False:
                lines.append(claim)
    data = {}
    for device, claims in failed.items():
        if not claims:
            data[device] = datum(FABRIC, OK, f"as planned in {proof.name}", at_s, page=f"{proof.name}.html")
            continue
        unread = any(claim.layer == UNREAD for claim in claims)
        text = f"{_failing(len(claims))} of {proof.name}: {claims[0].claim}"
        if unread:
            text = f"not read: {next(claim.reason for claim in claims if claim.layer == UNREAD)}"
        state = UNKNOWN if unread else DIFFERS
        data[device] = datum(FABRIC, state, text, at_s, map(str, claims), f"{proof.name}.html")
    return data


def _failing(count: int) -> str:
    return "1 failing claim" if count == 1 else f"{count} failing claims"


def _devices(claim: Claim, hosts: Collection[str]) -> set[str]:
    place = claim.claim.partition(": ")[0].partition(" (")[0]
    return {name for end in place.split(" - ") if (name := end.split(" ")[0]) in hosts}
