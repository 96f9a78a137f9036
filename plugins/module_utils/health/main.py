# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command ``sailloft-health``: print the verdict from the stored state, make a round, or take a person's word.

Without a command it only reads the state, so that it answers at once whatever the hardware does; what else it needs is
imported by the commands that need it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.health import latch, state, verdict
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Moment
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import State, StateError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.verdict import UNKNOWN, Verdict

PERIOD_S = 60.0
# A command that could not do what it should; 0 to 2 are verdicts.
FAILED = 3


def main(arguments: list[str]) -> int:
    """Return the exit code: of the verdict, 0 for what a command has done, FAILED for what it could not do."""
    options = _parser().parse_args(arguments)
    try:
        return options.act(options)
    except BrokenPipeError:
        # Nobody reads any more. Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (SailloftError, OSError) as error:
        sys.stderr.write(f"sailloft-health: {error}\n")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    name = "sailloft-health"
    parser = argparse.ArgumentParser(name, description="Print the verdict on this node's health.")
    parser.set_defaults(act=_print)
    parser.add_argument("--state", default=state.DIRECTORY, help=argparse.SUPPRESS)
    parser.add_argument("--run", default=state.RUN, help=argparse.SUPPRESS)
    parser.add_argument("--format", choices=verdict.FORMATS, default="text", help="for whom (default: %(default)s)")
    parser.add_argument("--output", metavar="FILE", help="replace this file instead of printing")
    parser.add_argument("--checks", action="store_true", help="print each check with its counts and age too")
    parser.add_argument("--drain", action="store_true", help="with --format slurm: drain or undrain the node in Slurm")
    parser.add_argument(
        "--every", type=_seconds, metavar="SECONDS", help="print again after so many seconds, for ever (LSF's elim)"
    )
    # Without prog, argparse would format the whole usage, and import what it needs for that.
    commands = parser.add_subparsers(title="commands", metavar="", prog=name)
    command = commands.add_parser("round", help="make a round of checks and save it")
    command.set_defaults(act=_round)
    command.add_argument("--deep", action="store_true", help="the deep checks, on a node out of service")
    command.add_argument("--period", type=_seconds, default=PERIOD_S, help="seconds between rounds")
    command.add_argument("--expected", help=argparse.SUPPRESS)
    command = commands.add_parser("clear", help="end a fault by its name")
    command.set_defaults(act=_clear)
    command.add_argument("fault", metavar="FAULT", help="as printed, such as xid_79@gpu:0000:4b:00.0")
    command.add_argument("--reason", required=True)
    for command_name, by, summary in (
        ("drain", latch.drained, "take the node out of service"),
        ("maintenance", latch.maintained, "begin a maintenance of the node"),
    ):
        command = commands.add_parser(command_name, help=summary)
        command.set_defaults(act=_say, by=by)
        command.add_argument("--reason", required=True)
    command = commands.add_parser("undrain", help="end a person's drain")
    command.set_defaults(act=_undrain)
    command.add_argument("--only", metavar="BEGINNING", default="", help="unless its reason begins otherwise")
    commands.add_parser("end-maintenance", help="end the maintenance").set_defaults(act=_end_maintenance)
    return parser


def _seconds(text: str) -> float:
    number = float(text)
    if not 1 <= number <= state.MOST_PERIOD_S:
        raise argparse.ArgumentTypeError(f"use a number of seconds from 1 to {state.MOST_PERIOD_S:.0f}")
    return number


def _print(options: argparse.Namespace) -> int:
    while True:
        result = _verdict(options.state)
        text = verdict.FORMATS[options.format](result)
        if options.checks:
            text += verdict.checks(result)
        if options.output:
            from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk

            disk.write_atomic(options.output, text.encode(), mode=0o644)
        else:
            sys.stdout.write(text)
            sys.stdout.flush()
        if options.drain:
            _drain(options, result)
        if not options.every:
            return result.status
        time.sleep(options.every)


def _verdict(directory: str) -> Verdict:
    host = os.uname().nodename
    now = state.moment()
    try:
        return verdict.verdict(state.read(directory) or State(host), now)
    except StateError as error:
        return verdict.verdict(State(host), now, error.cause)
    except PermissionError as error:
        return Verdict(host, UNKNOWN, verdict.NOT_KNOWN, f"{error.filename}: {error.strerror}", State(host), now)


def _drain(options: argparse.Namespace, result: Verdict) -> None:
    from ansible_collections.sailloft.fleet.plugins.module_utils.health import slurm

    def note(is_drained: bool) -> None:
        _change(options, lambda old, now: replace(old, slurm_drain=now if is_drained else None))

    change = slurm.act(result, note)
    if change:
        sys.stdout.write(f"{change}\n")


def _round(options: argparse.Namespace) -> int:
    from ansible_collections.sailloft.fleet.plugins.module_utils.health import round as rounds
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.table import READERS
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

    paths = rounds.CheckerPaths(options.state, options.run, options.expected or rounds.EXPECTED_FILE)
    saved = rounds.make(paths, READERS, RULES, options.period, options.deep)
    if not options.deep or not saved.round or not saved.round.errors:
        return 0
    # Who waits for deep checks must not take one that did not measure for one that passed.
    for reader, error in saved.round.errors.items():
        sys.stderr.write(f"sailloft-health: {reader}: not measured: {error}\n")
    return FAILED


def _change(options: argparse.Namespace, edit: Callable[[Condition, Moment], Condition]) -> int:
    from ansible_collections.sailloft.fleet.plugins.module_utils.health import boot_servers
    from ansible_collections.sailloft.fleet.plugins.module_utils.health import round as rounds

    paths = rounds.CheckerPaths(options.state, options.run)
    rounds.change(paths, edit, state.moment())
    for server, reason in boot_servers.send(paths.state, paths.root, paths.run).items():
        sys.stderr.write(f"sailloft-health: {server} does not have this yet: {reason}\n")
    return 0


def _clear(options: argparse.Namespace) -> int:
    return _change(options, lambda old, now: latch.cleared(old, options.fault, options.reason, _person(), now))


def _say(options: argparse.Namespace) -> int:
    by: Callable[[Condition, str, str, Moment], Condition] = options.by
    return _change(options, lambda old, now: by(old, options.reason, _person(), now))


def _undrain(options: argparse.Namespace) -> int:
    return _change(options, lambda old, now: latch.undrained(old, _person(), now, options.only))


def _end_maintenance(options: argparse.Namespace) -> int:
    return _change(options, lambda old, now: latch.maintenance_ended(old, _person(), now))


def _person() -> str:
    """Return who calls: the user before sudo, or the user of this process."""
    import pwd

    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
