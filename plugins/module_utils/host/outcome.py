# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What bringing one concern of a host to its wanted state came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Outcome:
    """``before`` and ``after`` hold only what differs, by the name of the thing; empty: nothing had to change.

    ``facts`` is what was read back (or, in check mode, predicted). ``pending`` says what cannot take effect
    before the next boot, a line each. ``failed`` says what could not be done and why; empty: all was.
    """

    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    failed: str = ""

    @property
    def changed(self) -> bool:
        """Whether anything had to change."""
        return self.before != self.after

    def differ(self, name: str, before: Any, after: Any) -> None:
        """Note a difference."""
        self.before[name] = before
        self.after[name] = after

    def and_then(self, other: Outcome) -> Outcome:
        """This and what came after it, as one."""
        return Outcome(
            {**self.before, **other.before},
            {**self.after, **other.after},
            {**self.facts, **other.facts},
            [*self.pending, *other.pending],
            "; ".join(part for part in (self.failed, other.failed) if part),
        )

    def to_result(self) -> dict[str, Any]:
        """What a module returns."""
        return {
            "changed": self.changed,
            "diff": {"before": self.before, "after": self.after},
            "pending": self.pending,
            **self.facts,
        }
