# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write a proof as a short table for a terminal. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof, count, heading, show

# If more claims of a layer than this have no observed value, they are reported in one line.
MANY = 3


def table(proof: Proof) -> list[str]:
    """Return the lines of the table: the counts by layer, each claim that fails, and why others do not apply."""
    counts = proof.counts
    lines = [proof.title, f"  {'':<14}{'holds':>6}{'fails':>7}{'n/a':>6}"]
    for layer, claims in proof.by_layer().items():
        of_layer = count(claims)
        lines.append(f"  {heading(layer):<14}{of_layer.held:>6}{of_layer.failed:>7}{of_layer.not_applicable:>6}")
    lines.append(f"  {'total':<14}{counts.held:>6}{counts.failed:>7}{counts.not_applicable:>6}")
    for layer, claims in proof.by_layer().items():
        lines.extend(_failures(heading(layer), [claim for claim in claims if claim.holds is False]))
    reasons: dict[str, int] = {}
    for claim in proof.claims:
        if claim.holds is None:
            reasons[claim.reason] = reasons.get(claim.reason, 0) + 1
    lines.extend(f"n/a x{number} {reason}" for reason, number in reasons.items())
    if not counts.held and not counts.failed:
        lines.append("FAILS no claim applies here: a proof without applicable claims does not hold")
    return lines


def _failures(layer: str, claims: list[Claim]) -> list[str]:
    """Return the failures of a layer. If much was not seen (a guest does not answer), only the first is listed."""
    unseen = [claim for claim in claims if claim.seen is None]
    lines = []
    if len(unseen) > MANY:
        lines.append(
            f"FAILS {layer}: {len(unseen)} claims whose values could not be read, the first: {unseen[0].claim}"
        )
        claims = [claim for claim in claims if claim.seen is not None]
    for claim in claims:
        lines.append(f"FAILS {layer}: {claim.claim}")
        lines.append(f"      wanted {show(claim.wanted)}, seen {show(claim.seen)} in {claim.source}")
        if claim.reason:
            lines.append(f"      {claim.reason}")
    return lines
