# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run one slice of an inventory on a gateway: ansible-runner transmit and process here, its worker there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.outcome import Events, HostOutcome, of_hosts

COLLECTION = Path(__file__).resolve().parents[3]
# The parts of the collection that a run needs; __pycache__ is for the controller's Python.
PARTS = ("meta", "playbooks", "plugins", "roles")
# The worker's directory has the inventory with its secrets. The directory is therefore in memory, readable only by its
# user, and removed even when the worker is killed.
WORKER = (
    "umask 077; folder=$(mktemp -d -p /dev/shm sailloft.XXXXXXXX) || exit; "
    'trap "rm -rf $folder" EXIT; trap "exit 1" HUP INT TERM; '
    "export TMPDIR=$folder; {path}ansible-runner worker --private-data-dir $folder/run --keepalive-seconds 30"
)
# POSIX, sh(1): a command that was not found. OpenSSH, ssh(1): the exit status after an error of ssh itself.
NOT_FOUND, SSH_ERROR = 127, 255


class Job(NamedTuple):
    """The settings that all slices share."""

    playbook: str
    arguments: list[str]
    forks: int
    connect: list[str]
    path: str
    project: Path


class SliceResult(NamedTuple):
    """The result of a slice: each host's outcome, whether anything changed, and the reason why it was lost, or None."""

    hosts: dict[str, HostOutcome]
    changed: bool
    cause: str | None


def make_project(folder: Path, playbook: str) -> str:
    """Fill a directory with this collection, and the playbook if it is a file. Return the playbook's name there."""
    target = folder / "collections/ansible_collections/sailloft/fleet"
    for part in PARTS:
        shutil.copytree(COLLECTION / part, target / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("galaxy.yml", "MANIFEST.json", "FILES.json"):
        if (COLLECTION / name).is_file():
            shutil.copy2(COLLECTION / name, target)
    if not Path(playbook).is_file():
        return playbook
    shutil.copy2(playbook, folder)
    return Path(playbook).name


def run_slice(
    job: Job, gateway: str, inventory: Mapping[str, Any], hosts: Collection[str], artifacts: Path
) -> SliceResult:
    """Run the playbook on the hosts from the gateway; the output is in ``artifacts``, readable only by the user."""
    from ansible_runner import interface

    events, runner = Events(), {"status": "", "job_explanation": ""}
    path = f"PATH={shlex.quote(job.path)}:$PATH; " if job.path else ""
    with tempfile.TemporaryDirectory() as data, tempfile.TemporaryFile() as errors:
        shutil.copytree(job.project, Path(data, "project"), copy_function=os.link)
        Path(data, "inventory").mkdir()
        Path(data, "inventory/hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
        command = [*job.connect, gateway, f"sh -c {shlex.quote(WORKER.format(path=path))}"]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        except OSError as error:
            return _ended(
                hosts, events, f"{command[0]} cannot be run: {error.strerror}; install it, or correct gateways_connect"
            )
        stdin, stdout = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
        # If the gateway does not read the input, its exit status gives the reason.
        with contextlib.suppress(BrokenPipeError):
            interface.run(
                streamer="transmit",
                _output=stdin,
                private_data_dir=data,
                playbook=job.playbook,
                cmdline=shlex.join(job.arguments),
                forks=job.forks,
                envvars={
                    "ANSIBLE_COLLECTIONS_PATH": "collections:~/.ansible/collections:/usr/share/ansible/collections",
                    "ANSIBLE_PIPELINING": "true",
                },
            )
        with contextlib.suppress(BrokenPipeError):
            stdin.close()

        def keep_event(event: dict[str, Any]) -> bool:
            events.add(event)
            return False  # ansible-runner then writes no file for the event

        try:
            interface.run(
                streamer="process",
                _input=stdout,
                private_data_dir=str(artifacts),
                event_handler=keep_event,
                status_handler=lambda data, runner_config: runner.update(data),
                quiet=True,
            )
        except Exception as error:  # zipfile, json or the system raises it for a stream that was cut off
            runner.update(status="error", job_explanation=f"its stream was cut off: {error}")
        stdout.close()
        if runner["status"] == "error":
            process.terminate()
        status = process.wait()
        errors.seek(0)
        message = errors.read().decode(errors="replace").strip()
    return _ended(hosts, events, _cause(runner, status, message, events, gateway), runner["status"] == "successful")


def _ended(hosts: Collection[str], events: Events, cause: str | None, successful: bool = False) -> SliceResult:
    return SliceResult(of_hosts(hosts, events, successful), bool((events.stats or {}).get("changed")), cause)


def _cause(runner: Mapping[str, Any], status: int, message: str, events: Events, gateway: str) -> str | None:
    """Return the reason why a slice was lost, and the remedy, or None: its run completed, even if hosts failed."""
    if runner["status"] in ("successful", "failed") and events.stats is not None:
        return None
    last = message.splitlines()[-1] if message else ""
    if status == NOT_FOUND:
        remedy = "install ansible and ansible-runner there, or set gateways_path to their directory"
        return f"ansible-runner was not found; {remedy}"
    if status == SSH_ERROR and not events.any:
        return f"not reached: {last or 'no reason was given'}; check that `ssh {gateway} true` works"
    if runner["status"] == "failed":
        cause = events.error or last
        return f"ansible-playbook ended before its first play: {cause}; correct the error, and resume the run"
    if events.any:
        # A worker that loses the connection still runs its playbook to the end.
        remedy = "resume the run when no ansible-playbook is running there any more"
        return f"the connection or the worker ended before the run ({last or f'status {status}'}); {remedy}"
    cause = last or " ".join(str(runner["job_explanation"]).split()) or f"status {status}"
    return f"the run did not begin: {cause}; check that `ansible-runner worker` runs there, and resume the run"
