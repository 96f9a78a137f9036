# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write a proof as a short table for a terminal. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof, count, heading

NOTHING = "FAILS no claim applies here: a proof without applicable claims does not hold"
# If more claims of a layer than this have no observed value, they are reported in one line.
MANY = 3
# What a terminal shows beside a page: failing claims, and characters of a line.
FAILURES, COLUMNS = 5, 80


class _Failure(NamedTuple):
    """A line about ``number`` claims that fail; ``subject`` is what they are about."""

    head: str
    values: str = ""
    source: str = ""
    reason: str = ""
    subject: str = ""
    number: int = 1


def table(proof: Proof, page: str = "") -> list[str]:
    """Return the lines of the table: the counts by layer, each claim that fails, and why others do not apply.

    ``page`` is the name of the proof's page. With it, the table fits a screen and refers to the page: the first claim
    that fails of each of the first subjects, such as "leaf1" of "leaf1: ...", and one line for those that do not apply.
    """
    counts = proof.counts
    lines = [proof.title, f"  {'':<14}{'holds':>6}{'fails':>7}{'n/a':>6}"]
    for layer, claims in proof.by_layer().items():
        of_layer = count(claims)
        lines.append(f"  {heading(layer):<14}{of_layer.held:>6}{of_layer.failed:>7}{of_layer.not_applicable:>6}")
    lines.append(f"  {'total':<14}{counts.held:>6}{counts.failed:>7}{counts.not_applicable:>6}")
    failures = [
        failure
        for layer, claims in proof.by_layer().items()
        for failure in _failures(heading(layer), [claim for claim in claims if claim.holds is False])
    ]
    if page:
        subjects: dict[str, list[_Failure]] = {}
        for failure in failures:
            subjects.setdefault(failure.subject, []).append(failure)
        listed = list(subjects.values())[:FAILURES]
        lines.extend(_cut(of_subject) for of_subject in listed)
        unlisted = counts.failed - sum(failure.number for of_subject in listed for failure in of_subject)
        if unlisted:
            lines.append(f"FAILS {unlisted} more; see {page}")
        if counts.not_applicable:
            lines.append(f"n/a   {counts.not_applicable} claims do not apply here; the reasons are in {page}")
    else:
        for failure in failures:
            lines.append(failure.head)
            values = f"{failure.values} in {failure.source}" if failure.values else ""
            lines.extend(f"      {text}" for text in (values, failure.reason) if text)
        lines.extend(f"n/a x{number} {reason}" for reason, number in _reasons(proof).items())
    if not counts.held and not counts.failed:
        lines.append(NOTHING)
    return lines


def first_failure(proof: Proof) -> str:
    """Return how many claims fail and the first of them, as a sentence without an end."""
    if not proof.counts.failed:
        return f"{proof.title}: {NOTHING}"
    claim = next(claim for claim in proof.claims if claim.holds is False)
    return (
        f"{proof.title}: {proof.counts.failed} of {len(proof.claims)} claims fail, the first: "
        f"{heading(claim.layer)}: {claim}"
    )


def _failures(layer: str, claims: list[Claim]) -> list[_Failure]:
    """Return the failures of a layer. If much was not seen (a guest does not answer), only the first is listed."""
    unseen = [claim for claim in claims if claim.seen is None]
    failures = []
    if len(unseen) > MANY:
        text = f"{len(unseen)} claims whose values could not be read, the first: {unseen[0].claim}"
        failures.append(_Failure(f"FAILS {layer}: {text}", subject=f"unread {layer}", number=len(unseen)))
        claims = [claim for claim in claims if claim.seen is not None]
    return failures + [
        _Failure(
            f"FAILS {layer}: {claim.claim}",
            claim.values,
            claim.source,
            claim.reason,
            f"{layer}: {claim.claim.partition(': ')[0]}",
        )
        for claim in claims
    ]


def _reasons(proof: Proof) -> dict[str, int]:
    """Return how many claims do not apply, by reason."""
    reasons: dict[str, int] = {}
    for claim in proof.claims:
        if claim.holds is None:
            reasons[claim.reason] = reasons.get(claim.reason, 0) + 1
    return reasons


def _cut(failures: list[_Failure]) -> str:
    """Return a line for the first of a subject's failures, with the number of its others."""
    first, *hidden = failures
    number = sum(failure.number for failure in hidden)
    suffix = f" (and {number} more)" if number else ""
    line = f"{first.head}: {first.values}" if first.values else first.head
    return (line if len(line) + len(suffix) <= COLUMNS else f"{line[: COLUMNS - 3 - len(suffix)]}...") + suffix
