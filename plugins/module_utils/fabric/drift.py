# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare a fabric with its RoCE policy now: its proof, in which unread devices fail, and its metrics. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.traffic import traffic_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.follow import CNP, RECEIVER, SENDER
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_inventory
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import Metric
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.table import first_failure

NAME, TITLE = "fabric_drift", "Drift from the RoCE policy"
OF_NICS = SENDER, RECEIVER, CNP  # the layers of the proof's claims about settings of NICs
UNREAD = "unread"  # also the layer of the proof's claims about devices outside of the run
PREFIX = "sailloft_fabric_drift"


def drift(params: Mapping[str, Any]) -> Proof:
    """Return the claims of ``prove``, those of NICs against ``nics_wanted``, and one that fails for each unread device.

    What was ``counted`` while traffic ran is judged, too. Unread devices are in ``unread`` (reason by name), or
    ``prove`` cannot read them; the others are compared. A NIC is compared with ``nics_wanted`` where ``prove`` has no
    failure about it: the same settings would be named twice.

    Raises FabricError for a policy or an inventory that is refused.
    """
    unread = params["unread"]
    proved = _proved(params, {name: text for name, text in params["running"].items() if name not in unread})
    claims = [
        Claim(UNREAD, f"{device}: it was read", "its settings", None, False, "the device", _named(device, reason))
        for device, reason in sorted(unread.items())
    ]
    claims += [claim for claim in _once(proved) if not (claim.layer == UNREAD and _devices(claim) & unread.keys())]
    named = {_place(claim) for claim in claims if claim.holds is False and claim.layer in (UNREAD, *OF_NICS)}
    claims += _nic_claims(params["nics"], params["nics_wanted"], named)
    claims += traffic_claims(read_policy(params["policy"]), params["switches"], params["counted"])
    return Proof(NAME, TITLE, NAME, claims)


def _proved(params: Mapping[str, Any], running: Mapping[str, Any]) -> list[Claim]:
    """Return the claims of ``prove``, which needs at least one configuration. Raises FabricError."""
    if not running:
        read_policy(params["policy"])  # refuses a wrong policy or inventory, as prove does
        read_inventory(params["switches"], None, params["asics"])
        return []
    return prove({**params, "name": NAME, "running": running, "applications": None})[0].claims


def _once(claims: Iterable[Claim]) -> Iterator[Claim]:
    """Yield the claims without failures that are named already: a NIC fails as sender and as receiver."""
    failures: set[str] = set()
    for claim in claims:
        failure = f"{claim.claim}: {claim.wanted!r}, {claim.seen!r}"
        if claim.holds is not False or failure not in failures:
            yield claim
        if claim.holds is False:
            failures.add(failure)


def _named(device: str, reason: str) -> str:
    return reason if device in reason else f"{device}: {reason}"


def _nic_claims(nics: Mapping[str, Any], nics_wanted: Mapping[str, Any], named: Collection[str]) -> Iterator[Claim]:
    """Yield a claim for each setting of a NIC that roce_host would change, or one for a NIC without any.

    ``named``: the NICs whose differences are named already, and the devices that were not read.
    """
    for host, wanted_by_nic in nics_wanted.items():
        for nic, wanted in (wanted_by_nic or {}).items():
            if host in named or f"{host} {nic}" in named:
                continue
            seen = nics[host][nic]
            differing = [setting for setting in wanted if wanted[setting] != seen.get(setting)]
            for setting in differing:
                yield compare("nic", f"{host} {nic}: {setting}", wanted[setting], seen.get(setting), "roce_nic_info")
            if not differing:
                yield compare("nic", f"{host} {nic}: its settings", *2 * ("as the policy says",), "roce_nic_info")


def _place(claim: Claim) -> str:
    """Return the place of a claim: a device, a port or NIC, or a link; without its rail."""
    return claim.claim.partition(": ")[0].partition(" (")[0]


def _devices(claim: Claim) -> set[str]:
    """Return the devices of a claim, which begins with a device, a port ("leaf1 swp1, in"), or a link of two ports."""
    return {end.split(" ")[0] for end in _place(claim).split(" - ")}


def report(proof: Proof, devices: Mapping[str, str]) -> list[str]:
    """Return the lines that name the devices (kind by name) that differ, and those that were not read, with reasons."""
    differences = differences_by_device(proof, devices)
    unread = [claim for claim in proof.claims if claim.layer == UNREAD and claim.holds is False]
    lines = [
        f"{heading} {len(names)} of {len(devices)}: {fold(names)}"
        for heading, names in (
            ("differ:  ", [device for device, count in differences.items() if count]),
            ("not read:", [device for device, count in differences.items() if count is None]),
        )
        if names
    ]
    return lines + [f"  {claim.reason}" for claim in unread]


def first(proof: Proof, devices: Mapping[str, str]) -> str:
    """Return how many devices were not read, and the first difference; "" if all were read and nothing differs."""
    if proof.holds:
        return ""
    unread = [device for device, count in differences_by_device(proof, devices).items() if count is None]
    others = Proof(NAME, TITLE, NAME, [claim for claim in proof.claims if claim.layer != UNREAD])
    lines = [f"{len(unread)} of {len(devices)} devices were not read"] if unread else []
    return "; ".join(lines + ([first_failure(others)] if others.counts.failed or not unread else []))


def differences_by_device(proof: Proof, devices: Iterable[str]) -> dict[str, int | None]:
    """Return how many claims about each device fail, None where it was not read.

    A link whose ends do not agree counts for both if neither has another difference, which would be the cause.
    """
    counts: dict[str, int | None] = dict.fromkeys(devices, 0)
    failures = [(_devices(claim) & counts.keys(), claim) for claim in proof.claims if claim.holds is False]
    for places, claim in sorted(failures, key=lambda failure: len(failure[0])):
        if claim.layer == UNREAD:
            counts.update(dict.fromkeys(places))
        elif len(places) == 1 or not any(counts[device] for device in places):
            counts.update({device: (counts[device] or 0) + 1 for device in places})
    return counts


def metrics(proof: Proof, devices: Mapping[str, str]) -> list[Metric]:
    """Return the metrics. ``devices``: "switch" or "host" by name."""
    differences = differences_by_device(proof, devices)
    labels = {name: {"device": name, "kind": kind} for name, kind in sorted(devices.items())}
    results = {
        "held": proof.counts.held,
        "failed": proof.counts.failed,
        "not_applicable": proof.counts.not_applicable,
    }
    return [
        Metric(
            f"{PREFIX}_device_read",
            "Whether the settings of the device were read (1) or not (0).",
            [(labels[name], int(differences[name] is not None)) for name in labels],
        ),
        Metric(
            f"{PREFIX}_differences",
            "Claims about the device that fail because it differs from the policy; none for one that was not read.",
            [(labels[name], count) for name in labels if (count := differences[name]) is not None],
        ),
        Metric(
            f"{PREFIX}_claims",
            "Claims about the whole fabric by result.",
            [({"result": result}, count) for result, count in results.items()],
        ),
    ]
