# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a playbook on slices of the inventory in parallel, each slice from its gateway."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, ClassVar

from ansible import context
from ansible.utils.display import Display

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk
from ansible_collections.sailloft.fleet.plugins.module_utils.common.failures import hosts_text
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.errors import GatewayError
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.outcome import OK
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.record import (
    RunRecord,
    begun,
    resumed,
    slice_ended,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.slices import by_gateway, cut
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.gateway_slice import Job, make_project, run_slice

display = Display()


class ActionModule(ControllerAction):
    """Divide the inventory, run all slices, and gather their results."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "playbook": {"type": "str", "required": True},
        "gateways": {"type": "dict", "required": True},
        "inventory": {"type": "list", "elements": "str", "required": True},
        "folder": {"type": "path", "required": True},
        "resume": {"type": "bool", "default": False},
        "arguments": {"type": "list", "elements": "str", "default": []},
        "forks": {"type": "int", "default": 50},
        "connect": {"type": "str", "default": "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15"},
        "path": {"type": "str", "default": ""},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        flags = [*arguments["arguments"]]
        flags += ["--check"] if self._task.check_mode else []
        flags += ["--diff"] if self._task.diff else []
        folder = Path(arguments["folder"])
        record = begun(arguments["playbook"], flags, arguments["gateways"])
        remaining = list(record.gateways)
        by_gateway(record.gateways)
        if arguments["resume"]:
            record, remaining = resumed(_read(folder / "record.json"), str(folder / "record.json"), record)
        slices = by_gateway({host: record.gateways[host] for host in remaining})
        if slices and not importlib.util.find_spec("ansible_runner"):
            raise GatewayError("ansible-runner is not installed", "pip install ansible-runner", subject="controller")
        listed = self._inventory(arguments["inventory"]) if slices else {}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        disk.write_atomic(folder / "record.json", record.to_json().encode(), disk.private)
        changed = False
        with tempfile.TemporaryDirectory() as project, ThreadPoolExecutor(max(1, len(slices))) as threads:
            playbook = make_project(Path(project), arguments["playbook"]) if slices else ""
            job = Job(
                playbook, flags, arguments["forks"], shlex.split(arguments["connect"]), arguments["path"], Path(project)
            )
            running = {}
            for gateway, hosts in slices.items():
                inventory = cut(listed, hosts, self._decrypt)
                display.display(f"{gateway}: starting on {hosts_text(len(hosts))}")
                running[threads.submit(run_slice, job, gateway, inventory, hosts, folder / gateway)] = gateway
            for future in as_completed(running):
                gateway, ended = running[future], future.result()
                record = record.with_slice(gateway, ended.hosts, ended.cause)
                # The record is written after each slice, so that the run can be resumed if the controller stops.
                disk.write_atomic(folder / "record.json", record.to_json().encode(), disk.private)
                display.display(slice_ended(gateway, ended.hosts, ended.cause))
                changed = changed or ended.changed
        return _result(record, changed, folder)

    def _inventory(self, sources: list[str]) -> dict[str, Any]:
        """Return the inventory in the form of ansible-inventory. Raises GatewayError."""
        command = [sys.executable, "-m", "ansible", "inventory", "--list", "--export"]
        for source in sources:
            command += ["-i", source]
        for name in ("vault_ids", "vault_password_files"):
            for value in context.CLIARGS.get(name) or ():
                command += ["--vault-id", value]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if process.returncode:
            cause = " ".join((process.stderr or process.stdout).split())
            raise GatewayError(f"ansible-inventory failed: {cause}", "correct the inventory", subject="inventory")
        listed: dict[str, Any] = json.loads(process.stdout)
        return listed

    def _decrypt(self, text: str) -> str:
        return str(self._loader._vault.decrypt(text).decode("utf-8"))


def _result(record: RunRecord, changed: bool, folder: Path) -> dict[str, Any]:
    counts = record.counts()
    result = {"changed": changed, "report": record.report(), "hosts": counts, "record": str(folder / "record.json")}
    if set(counts) <= {OK}:
        return result
    failed = sum(count for state, count in counts.items() if state != OK)
    return {
        **result,
        "failed": True,
        "msg": f"{failed} of {len(record.hosts)} hosts are not done; correct the failures in the report, and run again "
        "with -e gateways_resume=true",
    }


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise GatewayError(
            f"cannot be read: {error.strerror}", "run without gateways_resume", subject=str(file)
        ) from None
