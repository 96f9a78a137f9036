# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A whole proof: its claims, their counts and its JSON. Pure: the same claims give the same bytes, at any time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import LAYERS, Claim, ProofError

FORMAT = "sailloft-proof/1"

# The allowed names of a proof: the name becomes a file name, so neither a path nor a hidden file.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@dataclass
class Counts:
    """The numbers of claims that hold, fail, and do not apply here."""

    held: int
    failed: int
    not_applicable: int

    def to_dict(self) -> dict[str, int]:
        """Return the JSON-ready form."""
        return {"held": self.held, "failed": self.failed, "not_applicable": self.not_applicable}


def count(claims: list[Claim]) -> Counts:
    """Return the counts of ``claims``."""
    return Counts(
        held=sum(claim.holds is True for claim in claims),
        failed=sum(claim.holds is False for claim in claims),
        not_applicable=sum(claim.holds is None for claim in claims),
    )


@dataclass
class Proof:
    """The claims about ``host``. ``name`` is the proof's file name without its ending.

    Raises ProofError for a name that is no file name.
    """

    name: str
    title: str
    host: str
    claims: list[Claim]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ProofError(
                f"proof name {self.name!r} is not a valid file name; use letters, digits, '.', '_' and '-'"
            )

    @property
    def counts(self) -> Counts:
        """Return the counts of all claims."""
        return count(self.claims)

    @property
    def holds(self) -> bool:
        """Return True if there are claims and none failed. A proof without claims does not hold."""
        counts = self.counts
        return counts.failed == 0 and counts.held > 0

    def by_layer(self) -> dict[str, list[Claim]]:
        """Return the claims by layer: the paper's layers in its order, then others in the order of the claims."""
        grouped: dict[str, list[Claim]] = {layer: [] for layer in LAYERS}
        for claim in self.claims:
            grouped.setdefault(claim.layer, []).append(claim)
        return {layer: claims for layer, claims in grouped.items() if claims}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form; ``Proof.from_dict`` is its inverse."""
        return {
            "format": FORMAT,
            "name": self.name,
            "title": self.title,
            "host": self.host,
            "holds": self.holds,
            "counts": self.counts.to_dict(),
            "claims": [claim.to_dict() for claim in self.claims],
        }

    def to_json(self) -> str:
        """Return the proof as JSON text, sorted keys, one newline at the end."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Proof:
        """Return the Proof of ``to_dict``'s data, with new counts. Raises ProofError if it has another shape."""
        try:
            proof: Proof = stored.load(cls, data, FORMAT, "proof", "prove again")
        except StoredError as error:
            raise ProofError(error.cause, error.remedy) from error
        for claim in proof.claims:
            claim.check()
        return proof


def heading(layer: str) -> str:
    """Return the heading of a layer: the paper's, or the layer's own name as words."""
    return LAYERS.get(layer, layer.replace("_", " "))
