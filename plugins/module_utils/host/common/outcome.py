# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The outcome of applying the settings of one concern of a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Outcome:
    """The differences: ``before`` and ``after`` hold only what differs, by name; empty: nothing had to change.

    ``facts`` are the values read back (or, in check mode, predicted). ``pending`` lists what cannot take effect before
    the next boot, one line each. ``failed`` says what could not be done and why; empty: nothing failed.
    """

    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    failed: str = ""

    @property
    def changed(self) -> bool:
        """Return True if anything had to change."""
        return self.before != self.after

    def differ(self, name: str, before: Any, after: Any) -> None:
        """Record a difference."""
        self.before[name] = before
        self.after[name] = after

    def and_then(self, other: Outcome) -> Outcome:
        """Return this outcome and the following one, combined."""
        return Outcome(
            {**self.before, **other.before},
            {**self.after, **other.after},
            {**self.facts, **other.facts},
            [*self.pending, *other.pending],
            "; ".join(part for part in (self.failed, other.failed) if part),
        )

    def to_result(self) -> dict[str, Any]:
        """Return the result of a module, which fails if a part failed."""
        failure = {"failed": True, "msg": self.failed} if self.failed else {}
        return {
            **failure,
            "changed": self.changed,
            "diff": {"before": self.before, "after": self.after},
            "pending": self.pending,
            **self.facts,
        }
