# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs of the monitoring on a host: their files, their command lines, and whether they run with both.

A program whose files have changed reads them again, without a restart. It is restarted only for what it takes when it
starts. A mark in /run says that it has not read its files yet, so that the run after a killed one lets it.
"""

from __future__ import annotations

import contextlib
import grp
import os
import re
import ssl
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System, root_remedy
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import unit_state

UNITS = "/etc/systemd/system"
MARKS = "/run/sailloft-monitoring"
# systemd would expand $ and %, and take spaces and quotes apart.
PLAIN = re.compile(r"[^\s\"'\\$%;]+")
# A variable of the unit's environment, which is known only when it starts.
VARIABLE = re.compile(r"\$\{\w+\}")
HEAD = "# Written by sailloft.fleet.{module}; changes here are lost.\n"
# A program that listens on one address cannot start before the host has it.
DROP_IN = """[Unit]
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
RestartSec=5
{before}ExecStart=
ExecStart={command}
"""
PAUSE_S, LIMIT_S = 0.2, 60.0


@dataclass(frozen=True)
class HostFile:
    """A file of a host. ``content``: None if it must be gone. ``group``: the only one that may read it; "" for all.

    ``is_secret``: its text is not shown.
    """

    path: str
    content: bytes | None
    group: str = ""
    is_secret: bool = False

    @property
    def mode(self) -> int:
        """Return the permissions."""
        return 0o640 if self.group else 0o644


@dataclass(frozen=True)
class Daemon:
    """A program with its unit. ``url``: where it answers as soon as it runs; "" is not waited for.

    ``reads``: the paths of the files that it reads again when it is told to; ``reads_once``: only when it starts.
    """

    unit: str
    command: tuple[str, ...]
    reads: tuple[str, ...] = ()
    reads_once: tuple[str, ...] = ()
    url: str = ""

    @property
    def wants(self) -> str:
        """Return the link that starts it at boot."""
        return f"{UNITS}/{'timers' if self.unit.endswith('.timer') else 'multi-user'}.target.wants/{self.unit}"

    def command_line(self) -> str:
        """Return the command for ExecStart, with "$" as systemd wants it."""
        return " ".join(re.sub(r"\$(?!\{)", "$$", argument) for argument in self.command)

    def drop_in(self, module: str, before: str = "") -> HostFile:
        """Return the file that gives the distribution's unit our command line. ``before``: further settings."""
        text = DROP_IN.format(before=before, command=self.command_line())
        return HostFile(f"{UNITS}/{self.unit}.d/sailloft.conf", (HEAD.format(module=module) + text).encode())


@dataclass(frozen=True)
class DaemonState:
    """The state of a daemon, of systemd and the kernel. ``needs_reading``: systemd has an older unit file."""

    enabled: bool
    active: bool
    needs_reading: bool
    command: tuple[str, ...]


def plain_arguments(subject: str, arguments: Iterable[str]) -> tuple[str, ...]:
    """Return arguments that mean the same to systemd as to the program. Raises RequestError for others."""
    arguments = tuple(arguments)
    for argument in arguments:
        if not PLAIN.fullmatch(argument):
            raise RequestError(
                f"{subject}: {argument!r} cannot be an argument", "leave out spaces, quotes, ';', '\\', '$' and '%'"
            )
    return arguments


def converge(
    system: System, daemons: Sequence[Daemon], files: Sequence[HostFile], in_image: bool, check: bool = False
) -> Outcome:
    """Bring files and daemons about, or compare them. Raises HostError.

    Facts: ``reloaded`` and ``restarted``, the units, the latter with their reasons.
    """
    outcome = Outcome(facts={"reloaded": [], "restarted": []})
    changed = [file for file in files if _differs(system, file, outcome)]
    paths = {file.path for file in changed}
    states = {daemon.unit: _running(system, daemon, in_image) for daemon in daemons}
    for daemon in daemons:
        _compare(system, daemon, states[daemon.unit], paths, outcome, in_image)
    if check or not outcome.changed:
        return outcome
    for daemon in daemons:
        if states[daemon.unit].active and paths & {*daemon.reads, *daemon.reads_once}:
            # A run that is killed now leaves it to the next one to let the program read its files.
            system.replace(_mark(daemon), b"")
    for file in changed:
        if file.content is None:
            system.remove(file.path)
        else:
            write(system, file, file.content)
    if not in_image and (
        any(path.startswith(UNITS) for path in paths) or any(s.needs_reading for s in states.values())
    ):
        system.run(["systemctl", "daemon-reload"])
    for daemon in daemons:
        _bring(system, daemon, states[daemon.unit], outcome, in_image)
    return outcome


def _compare(
    system: System, daemon: Daemon, running: DaemonState, paths: Collection[str], outcome: Outcome, in_image: bool
) -> None:
    """Record how a daemon differs, and what is to be done with it."""
    if not running.enabled:
        outcome.differ(f"{daemon.unit} enabled", False, True)
    if in_image:
        return
    if not running.active:
        outcome.differ(f"{daemon.unit} running", False, True)
        outcome.facts["restarted"].append(f"{daemon.unit}: it did not run")
        return
    reasons = [path for path in daemon.reads_once if path in paths]
    marked = system.exists(_mark(daemon))
    if daemon.command and not _same(daemon.command, running.command):
        removed = [argument for argument in running.command if argument not in daemon.command]
        added = [argument for argument in daemon.command if argument not in running.command]
        reasons.append(f"command line: {' '.join(added or removed or ['another order'])}")
        outcome.differ(f"{daemon.unit} command line", " ".join(running.command), " ".join(daemon.command))
    elif daemon.reads_once and marked and not reasons:
        reasons.append("files that it has not read")
        outcome.differ(f"{daemon.unit} restarted", "with other files", "with the present ones")
    if reasons:
        outcome.facts["restarted"].append(f"{daemon.unit}: {', '.join(reasons)}")
    elif running.needs_reading and not daemon.command:
        outcome.differ(f"{daemon.unit} read again", False, True)
        outcome.facts["restarted"].append(f"{daemon.unit}: its unit")
    elif marked or any(path in paths for path in daemon.reads):
        outcome.facts["reloaded"].append(daemon.unit)
        if marked:
            outcome.differ(f"{daemon.unit} reloaded", "with other files", "with the present ones")


def _bring(system: System, daemon: Daemon, running: DaemonState, outcome: Outcome, in_image: bool) -> None:
    """Enable, restart or reload a daemon where it is needed, and wait until it answers."""
    if not running.enabled:
        system.run(["systemctl", *(["--root=/"] if in_image else []), "enable", daemon.unit])
    restarts = any(line.startswith(f"{daemon.unit}: ") for line in outcome.facts["restarted"])
    if restarts:
        system.run(["systemctl", "restart", daemon.unit])
    elif daemon.unit in outcome.facts["reloaded"]:
        system.run(["systemctl", "reload", daemon.unit])
    else:
        return
    if daemon.url:
        wait(daemon, lambda: _same(daemon.command, _running(system, daemon, in_image).command))
    system.remove(_mark(daemon))


def wait(daemon: Daemon, runs: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait until it answers, with whatever status, and ``runs``: another one may have its port. Raises HostError."""
    # Nothing is sent but the question whether somebody answers.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    end = time.monotonic() + limit_s
    while True:
        cause = ""
        try:
            with opener.open(daemon.url, timeout=5):
                pass
        except urllib.error.HTTPError:
            pass
        except OSError as error:
            cause = f"does not answer at {daemon.url}: {error}"
        if not cause:
            if runs():
                return
            cause = f"has ended, and another program answers at {daemon.url}"
        if time.monotonic() > end:
            raise HostError(f"{daemon.unit} {cause}", f"see journalctl -u {daemon.unit}")
        time.sleep(PAUSE_S)


def write(system: System, file: HostFile, content: bytes) -> None:
    """Write a file as a whole, with its group and permissions. Raises HostError."""
    path = system.path(file.path)

    def prepare(handle: int) -> None:
        if file.group:
            os.fchown(handle, -1, group_id(file.group))
        os.fchmod(handle, file.mode)

    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomic(path, content, prepare)
    except OSError as error:
        raise HostError(
            f"cannot write {file.path}: {error.strerror}", root_remedy(error, "look at its file system")
        ) from error


def _differs(system: System, file: HostFile, outcome: Outcome) -> bool:
    """Record how a file differs, and return whether it does."""
    content = system.read_bytes(file.path)
    if content != file.content:
        outcome.differ(file.path, _shown(file, content, "another text"), _shown(file, file.content, "the given text"))
        return True
    if content is None:
        return False
    status = os.stat(system.path(file.path))
    mode = stat.S_IMODE(status.st_mode)
    group = group_name(status.st_gid) if file.group else file.group
    if (mode, group) == (file.mode, file.group):
        return False
    outcome.differ(f"{file.path} permissions", f"{mode:04o} {group}".strip(), f"{file.mode:04o} {file.group}".strip())
    return True


def _shown(file: HostFile, content: bytes | None, instead: str) -> str | None:
    """Return a file's text for a difference; of a secret, ``instead``."""
    if content is None:
        return None
    return f"{instead}, not shown" if file.is_secret else content.decode(errors="replace")


def group_id(name: str) -> int:
    """Return the number of a group. Raises HostError."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise HostError(f"there is no group {name}", "install the packages of the role first") from None


def group_name(number: int) -> str:
    """Return the name of a group, or its number if it has none."""
    with contextlib.suppress(KeyError):
        return grp.getgrgid(number).gr_name
    return str(number)


def _mark(daemon: Daemon) -> str:
    return f"{MARKS}/{daemon.unit}.unread"


def _running(system: System, daemon: Daemon, in_image: bool) -> DaemonState:
    enabled = system.exists(daemon.wants)
    if in_image:
        return DaemonState(enabled, False, False, ())
    unit = unit_state(system, daemon.unit)
    command = b"" if unit.pid == "0" else system.read_bytes(f"/proc/{unit.pid}/cmdline") or b""
    arguments = tuple(command.decode(errors="replace").rstrip("\0").split("\0")) if command else ()
    return DaemonState(enabled, unit.runs, unit.is_outdated, arguments)


def _same(wanted: Sequence[str], running: Sequence[str]) -> bool:
    """Return True if a program runs with these arguments, variables of its environment with any value."""
    patterns = ["[^ ]+".join(map(re.escape, VARIABLE.split(argument))) for argument in wanted]
    return len(wanted) == len(running) and all(map(re.fullmatch, patterns, running))
