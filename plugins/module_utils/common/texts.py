# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lists in messages."""

from __future__ import annotations

from collections.abc import Sequence


def excerpt(items: Sequence[str], shown: int = 3) -> str:
    """Return the first items and the number of the others: "a, b, c and 5 more". A fleet has too many for a message."""
    hidden = len(items) - shown
    return ", ".join(items[:shown]) + (f" and {hidden} more" if hidden > 0 else "")
