# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hold one thing that is known of a host, with its state and the time at which it was read. Pure.

What was read long ago is not known any more: a good state becomes unknown with age. A bad one stays bad until it is
read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FAULT, DIFFERS, UNKNOWN, NOTED, OK, NONE = "fault", "differs", "unknown", "noted", "ok", "none"
# Worst first. NONE is a host of which no playbook reads anything.
STATES = (FAULT, DIFFERS, UNKNOWN, NOTED, OK, NONE)
FAILING = (FAULT, DIFFERS, UNKNOWN)

HEALTH, PROOF, IMAGE, DRIFT, FABRIC, ACCEPTANCE = "health", "proof", "image", "drift", "fabric", "acceptance"
DAY_S = 86400.0
# How long a good state is believed, in seconds. Proofs and acceptances are made after changes, the others each day.
LIMITS_S = {
    HEALTH: DAY_S,
    IMAGE: DAY_S,
    DRIFT: DAY_S,
    FABRIC: DAY_S,
    PROOF: 30 * DAY_S,
    ACCEPTANCE: 90 * DAY_S,
}
# A clock may be ahead of the controller's by that much.
AHEAD_S = 300.0
# Text comes from nodes, and a sick one may say anything.
TEXT_CHARACTERS, DETAIL_LINES = 200, 12


@dataclass(frozen=True)
class Datum:
    """The state of one concern of a host."""

    kind: str  # a key of LIMITS_S
    state: str
    text: str = ""  # without numbers that differ at each reading: the log has a line for each change of it
    at_s: float | None = None  # seconds since 1970; None if it was never read
    details: tuple[str, ...] = ()
    page: str = ""  # the file name of the proof's page


def datum(
    kind: str, state: str, text: str, at_s: float | None = None, details: Iterable[str] = (), page: str = ""
) -> Datum:
    """Return a datum with texts that are cut to a readable length."""
    lines = [cut(line) for line in details if line]
    if len(lines) > DETAIL_LINES:
        lines[DETAIL_LINES - 1 :] = [f"and {len(lines) - DETAIL_LINES + 1} more"]
    return Datum(kind, state, cut(text), None if at_s is None else round(at_s), tuple(lines), page)


def cut(text: str) -> str:
    """Return a text on one line, without control characters, of at most TEXT_CHARACTERS."""
    line = " ".join(str(text).split()).encode("utf-8", "replace").decode("utf-8")
    line = "".join(character if character.isprintable() else "?" for character in line)
    return line if len(line) <= TEXT_CHARACTERS else f"{line[: TEXT_CHARACTERS - 3]}..."


def state_at(entry: Datum, now_s: float) -> str:
    """Return the state at a time."""
    if entry.state not in (OK, NOTED):
        return entry.state
    if entry.at_s is None or not -AHEAD_S <= now_s - entry.at_s <= LIMITS_S[entry.kind]:
        return UNKNOWN
    return entry.state


def worst(states: Iterable[str]) -> str:
    """Return the worst of states, NONE without any."""
    return min(states, key=STATES.index, default=NONE)
