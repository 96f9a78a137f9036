# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rows of the nodes that a run reads, boots and proves, and the wait for each of them."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.at_once import AT_ONCE
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import OPTIONS, BootBmc
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_wait import (
    BootAnswer,
    Elapsed,
    Limits,
    check,
    phase,
)

DRAIN, HEALTH, RETURN = "node_boot_drain", "node_boot_health", "node_boot_return"
# The interval of readings while a node boots, in seconds; how long a node that listens may take to accept; and after
# which part of the wait a node that seems not to listen is asked all the same: a firewall may answer for it.
INTERVAL_S, CONNECT_S, PART = 5.0, 2.0, 5
# The interval at which the same progress is shown again.
TELL_S = 30.0
# How much of the folded names it shows: the names of some sites have no numbers to fold.
SHOWN = 200


@dataclass
class BootRow:
    """A node in a run: the ``image`` that it is to run, what was ``running`` when it was last read, what was done.

    ``channel``: the channel that names the image, empty for a pin. ``domains`` and ``power_kw``: see wave_limits.
    ``tasks``: its hooks that are files of tasks. ``answers``: whether it could be read. ``needed``: whether it must
    boot, because of its image, arguments, files or ``forced``. ``tried``: whether this run has begun to boot it.
    ``booted``: whether it has, since the node was last looked at. ``out``: whether this run has restarted and not
    returned it. ``unproven``: its health check, a file of tasks, has not run. ``holds``: whether it is proven.
    ``doubt``: what its BMC said after it was asked to restart it. ``why``: why it is not proven.
    """

    image: str = ""
    channel: str = ""
    mac: str = ""
    spare: bool = False
    domains: dict[str, list[str]] = field(default_factory=dict)
    power_kw: float = 0.0
    tasks: list[str] = field(default_factory=list)
    running: str = ""
    boot_id: str = ""
    answers: bool = False
    needed: bool = False
    forced: bool = False
    tried: bool = False
    booted: bool = False
    out: bool = False
    unproven: bool = False
    holds: bool = False
    doubt: str = ""
    why: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> BootRow:
        """Return the row of an earlier step, or a new one."""
        return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)

    @property
    def boots(self) -> bool:
        """Return whether the node is to boot now."""
        return self.needed and self.tried and not self.why

    @property
    def returns(self) -> bool:
        """Return whether the node is to return to service."""
        return self.out and self.holds and not self.spare

    def look(self, answer: BootAnswer, arguments: list[str], files: str, forced: bool) -> None:
        """Take note of what the node runs, and whether it has the ``arguments`` of its kernel and its ``files``."""
        state = answer.state or {}
        self.answers, self.running = answer.state is not None, state.get("image") or ""
        self.boot_id, self.forced = state.get("boot_id") or "", forced
        self.holds, self.unproven, self.booted, self.doubt = False, False, False, ""
        self.why = "" if self.answers else f"it does not answer: {answer.why}"
        has_files = (state.get("report") or {}).get("files", "") == files
        self.needed = forced or not has_files or self.running != self.image or state.get("arguments", []) != arguments

    def begin(self) -> None:
        """Begin to boot the node: nothing that was read before shows whether it holds."""
        self.tried, self.holds, self.why, self.doubt = True, False, "", ""

    def fails(self, cause: str) -> None:
        """Take note why the node is not proven."""
        self.holds, self.unproven, self.why = False, False, cause

    def failed_if(self, cause: str) -> None:
        """Take note of a failure, if there is one."""
        if cause:
            self.fails(cause)

    def restarted(self, failure: str, requested: bool) -> None:
        """Take note of what the BMC did. A node is out of service from here on, also if its BMC failed."""
        self.out = self.booted = True
        if failure and not requested:
            self.fails(failure)
        self.doubt = failure

    def proven_by(self, state: Mapping[str, Any], holds: bool, cause: str) -> None:
        """Take note of a proof."""
        self.running, self.boot_id = state.get("image") or "", state.get("boot_id") or ""
        self.answers, self.unproven = True, False
        self.holds, self.why = holds, "" if holds else cause


def would_boot(rows: Mapping[str, BootRow]) -> list[str]:
    """Return what nodes would boot, with equal ones in one line."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, row in rows.items():
        kinds.setdefault((row.running, row.image), []).append(name)
    return [f"{fold(names)}: runs {running or '?'}, would boot {image}" for (running, image), names in kinds.items()]


def restart_limit_s(nodes: list[dict[str, Any]]) -> float:
    """Return the time limit for the restarts of all ``nodes`` from one host, in seconds; they take turns."""
    defaults = {name: option["default"] for name, option in OPTIONS.items() if "default" in option}
    options = [{"address": "", "username": "", "password": "", **defaults, **node["bmc"]} for node in nodes]
    longest = max((BootBmc.of(option).limit_s for option in options), default=0.0)
    return longest * -(-len(nodes) // AT_ONCE)


def lost_place(name: str, place: str, error: Exception) -> str:
    """Return why a node was not restarted: the host that accesses its BMC failed."""
    cause = f"{place}, which accesses its BMC, does not answer: {last_line(str(error))}"
    return str(ImageError(cause, "check its address and that it is up", subject=name))


def command_failure(name: str, argv: list[str], place: str, outcome: Mapping[str, Any] | Exception) -> str:
    """Return why a command of a node's hook failed on the host ``place``; empty if it did not."""
    if isinstance(outcome, Exception):
        return f"{name}: {place}, where the command {' '.join(argv)} runs, does not answer: {last_line(str(outcome))}"
    if outcome["rc"] == 0:
        return ""
    output = command_output(outcome) or "no output"
    return f"{name}: the command {' '.join(argv)} failed on {place} with status {outcome['rc']}: {output}"


def command_output(outcome: Mapping[str, Any]) -> str:
    """Return what a command printed, first of all its errors."""
    return next((text.strip() for text in (outcome["stderr"], outcome["stdout"]) if text.strip()), "")


def last_line(text: str) -> str:
    """Return the last line of an error, which has its cause."""
    return (text.strip().splitlines() or ["no reason was given"])[-1]


def without_name(name: str, text: str) -> str:
    """Return an error without the name of its node, where the sentence that quotes it begins with the name."""
    return re.sub(f"^(node )?{re.escape(name)}: ", "", text)


class BootWait:
    """The wait for one node. All times are of the controller's monotonic clock, which no change of its time moves."""

    def __init__(
        self, name: str, limits: Limits, began_s: float, now_s: float, port: tuple[str, int] | None, doubt: str
    ) -> None:
        """Begin the wait. ``port``: where the node's sshd listens; None if only a whole connection can tell."""
        self.name, self.limits, self.doubt, self.port = name, limits, doubt, port
        self.began_s, self.waits_s, self.asked_s = began_s, now_s, now_s
        self.now, self.now_s = "", now_s

    def worth_asking(self) -> bool:
        """Return whether the node listens, or was not asked for long; runs in a thread.

        A refused or lost connection of ssh costs the controller a process, and a node boots for minutes.
        """
        if self.port is None or self.now_s - self.asked_s > TELL_S + (self.now_s - self.waits_s) / PART:
            return True
        try:
            socket.create_connection(self.port, CONNECT_S).close()
        except OSError:
            return False
        return True

    def judge(self, answer: BootAnswer | None, now_s: float) -> dict[str, Any] | None:
        """Return the state of a node that is up; None if it is not yet. Raises ImageError at a limit.

        ``answer``: None if the node was not asked, because it does not listen.
        """
        self.now_s = now_s
        if answer is not None:
            self.asked_s = now_s
        reading = answer or BootAnswer(why="its sshd does not listen")
        elapsed = Elapsed(now_s - self.began_s, now_s - self.waits_s)
        self.now = phase(reading, elapsed, self.limits)
        if not self.now:
            return reading.state
        try:
            check(self.name, reading, elapsed, self.limits)
        except ImageError as error:
            if not self.doubt:
                raise
            raise ImageError(f"{error.cause}; {self.doubt}", error.remedy, subject=self.name) from error
        return None

    def pause_s(self, now_s: float) -> float:
        """Return the seconds until the next attempt. Without a port, each one costs: they become fewer."""
        return max(INTERVAL_S, (now_s - self.waits_s) / (2 * PART)) if self.port is None else INTERVAL_S


class BootProgress:
    """The progress of a wave: how many nodes are up, and which are not, when something changes and every 30 s."""

    def __init__(self, title: str, total: int, show: Callable[[Iterable[str]], None]) -> None:
        """Begin."""
        self.title, self.total, self.show = title, total, show
        self.waiting: dict[str, None] = {}
        self.up, self.shown_s = 0, 0.0

    def begin(self, names: Iterable[str]) -> None:
        """Begin to wait for nodes."""
        self.waiting = dict.fromkeys(names)

    def ended(self, name: str, up: bool, now_s: float) -> None:
        """Take note that the wait for a node is over."""
        self.waiting.pop(name)
        self.up += up
        if not self.waiting or now_s - self.shown_s >= TELL_S:
            self._show(now_s, {})

    def tell(self, wait: BootWait, now_s: float) -> None:
        """Show the progress again after a while, with what is read of the node that was asked last."""
        if wait.now and now_s - self.shown_s >= TELL_S:
            self._show(now_s, {wait.name: wait.now})

    def _show(self, now_s: float, phases: Mapping[str, str]) -> None:
        self.shown_s = now_s
        start = f"{self.title}: " if self.title else ""
        names = fold(self.waiting)
        names_shown = f", waiting: {names[:SHOWN]}{' ...' if len(names) > SHOWN else ''}" if names else ""
        phase_texts = "".join(f" ({name} {text})" for name, text in phases.items())
        self.show([f"{start}{self.up} of {self.total} booted{names_shown}{phase_texts}"])
