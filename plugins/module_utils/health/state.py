# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The stored state of a node's health: one JSON file, which is replaced as a whole at the end of each round.

A file that cannot be read is never begun anew in silence: it is kept beside for a person, and the new state begins with
the fault that says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk, stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RoundMemory
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    NO_TEXT,
    Event,
    Moment,
    Place,
    clean,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.checker import STATE_UNREADABLE

FORMAT = "sailloft-health/1"
DIRECTORY, RUN = "/var/lib/sailloft-health", "/run/sailloft-health"
FILE = "state.json"
# Where the file that could not be read is kept: state.json.unreadable-1, and so on.
ASIDE = "{}.unreadable-{}"
LIMIT_BYTES = 64 << 20
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Less than this many seconds are no jump of the clock, because clocks of nodes are slewed.
JUMP_S = 10.0
# A state is stale when so many rounds are missing: one may be late, or be cut off by a reboot. A round of readers that
# reach their deadlines takes longer than a short period.
STALE_PERIODS, LEAST_PERIOD_S = 3, 60.0
# No stored period makes a state count for longer.
MOST_PERIOD_S = 86400.0


class StateError(SailloftError):
    """The stored state cannot be read, or not be saved."""


@dataclass(frozen=True)
class Left:
    """A process of a reader that could not be killed (``process.Process``)."""

    reader: str
    pid: int
    program: str
    start_ticks: int
    round: Moment  # when its round was


@dataclass(frozen=True)
class Tally:
    """The places at which a check passed, failed and was not measured in its last round, and when it was measured."""

    passed: int = 0
    failed: int = 0
    not_measured: int = 0
    measured: Moment | None = None  # the last round in which it passed or failed at any place


@dataclass(frozen=True)
class Round:
    """The last round that was saved."""

    number: int
    ended: Moment
    seconds: float
    period_s: float  # until the next one is due
    errors: dict[str, str] = field(default_factory=dict)  # by reader that measured nothing
    seconds_of: dict[str, float] = field(default_factory=dict)  # by reader
    notes: tuple[str, ...] = ()  # what a person must know of the round: a clock that jumped
    first: Moment | None = None  # when the first round of this boot was


@dataclass(frozen=True)
class State:
    """All that a node knows of its health."""

    host: str
    round: Round | None = None
    condition: Condition = field(default_factory=Condition)
    checks: dict[str, Tally] = field(default_factory=dict)
    # Numbers to compare over a fleet, by check and place ("gpu 0000:4b:00.0").
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    memory: RoundMemory = field(default_factory=RoundMemory)
    kept: dict[str, dict[str, str]] = field(default_factory=dict)  # by reader: its place in a log
    left: tuple[Left, ...] = ()


def moment() -> Moment:
    """Return the present moment of this node."""
    try:
        with open(BOOT_ID, encoding="ascii") as stream:
            boot_id = stream.read().strip()
    except OSError:
        boot_id = ""
    return Moment(time.time(), boot_id, time.clock_gettime(time.CLOCK_BOOTTIME))


def age_s(then: Moment, now: Moment) -> float:
    """Return the seconds since ``then``: by the time since the boot where both are of one boot, else by the clock.

    A negative age is that of a date in the future: the clock was wrong then, or is wrong now.
    """
    if then.boot_id and then.boot_id == now.boot_id:
        return now.boot_s - then.boot_s
    return now.unix_s - then.unix_s


def latest_s(period_s: float) -> float:
    """Return the greatest age, in seconds, of a state that says something of the present."""
    return STALE_PERIODS * min(max(period_s, LEAST_PERIOD_S), MOST_PERIOD_S)


def is_stale(age: float, period_s: float) -> bool:
    """Return True for the age of a state that says nothing of the present, as one that is dated in the future."""
    return not 0 <= age <= latest_s(period_s)


def jump_s(then: Moment, now: Moment) -> float:
    """Return by how many seconds the clock jumped between two moments of one boot; 0 if it did not, or is not known."""
    if not then.boot_id or then.boot_id != now.boot_id:
        return 0.0
    jump = (now.unix_s - then.unix_s) - (now.boot_s - then.boot_s)
    return jump if abs(jump) > JUMP_S else 0.0


def dump(state: State) -> bytes:
    """Return the stored form of a state."""
    data = {"format": FORMAT, **_plain(state)}
    return (json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n").encode()


def _plain(value: Any) -> Any:
    """Return data for JSON, with texts that can be read again: dataclasses.asdict would copy each value."""
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str) and NO_TEXT.search(value):
        return NO_TEXT.sub(" ", value)
    return value


def load(text: bytes) -> State:
    """Parse a stored state. Raises StateError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"not a state of health: {error}") from error
    try:
        state: State = stored.load(State, data, FORMAT, "state of health", "let a person look at it")
    except stored.StoredError as error:
        raise StateError(error.cause, error.remedy) from error
    return state


def read(directory: str = DIRECTORY) -> State | None:
    """Return the stored state, or None where no round was saved yet. Raises StateError, and PermissionError."""
    path = os.path.join(directory, FILE)
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            text = stream.read(LIMIT_BYTES + 1)
    except FileNotFoundError:
        if os.path.islink(path):
            raise StateError(f"{path}: the file that it links to is missing") from None
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from error
    if len(text) > LIMIT_BYTES:
        raise StateError(f"{path}: more than {LIMIT_BYTES >> 20} MiB")
    try:
        return load(text)
    except StateError as error:
        raise StateError(f"{path}: {error.cause}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; a pipe in its place would wait for a writer, and is empty."""
    return os.open(path, flags | os.O_NONBLOCK)


def save(state: State, directory: str = DIRECTORY) -> None:
    """Replace the stored state as a whole. Raises StateError; the old state can still be read then."""
    path = os.path.join(directory, FILE)
    try:
        disk.write_atomic(path, dump(state), mode=0o644)
    except OSError as error:
        raise StateError(
            f"{path}: the round could not be saved: {error.strerror}", "the verdict is that of the round before"
        ) from error


def set_aside(cause: str, directory: str = DIRECTORY) -> Event:
    """Keep a state that cannot be read beside, under a second name, and return the fault. Raises StateError.

    The file itself stays until the new state replaces it: one who is killed between both does this again.
    """
    path = os.path.join(directory, FILE)
    number = 1
    while True:
        aside = ASIDE.format(path, number)
        try:
            os.link(path, aside)
        except FileExistsError:
            if not os.path.samestat(os.lstat(path), os.lstat(aside)):
                number += 1
                continue
        except OSError as error:
            raise StateError(
                f"{cause}; it cannot be kept as {aside}: {error.strerror}", "move it away, then run a round"
            ) from error
        text = f"{cause}; it is kept as {aside}: faults and drains of before are unknown"
        return Event(STATE_UNREADABLE, Place("node"), clean(text), path, aside)


def locked(name: str, run: str = RUN, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
    """Return a lock of the node's checker. Without ``wait``, it yields False if another holds it. Raises OSError."""
    os.makedirs(run, mode=0o700, exist_ok=True)
    return disk.locked(os.path.join(run, f"{name}.lock"), wait)
