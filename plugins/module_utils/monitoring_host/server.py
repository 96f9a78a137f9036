# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring a monitoring server about: Prometheus, Alertmanager and the blackbox exporter with the files of the plan.

promtool and amtool check all files before one of them is replaced: what they refuse leaves the former ones in use.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot.unit import check_systemd
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.targets import JOBS, host_port
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host.daemons import (
    Daemon,
    HostFile,
    converge,
    plain_arguments,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host.web import (
    GROUP,
    check_address,
    url,
    web_file,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host.web import options as web_options

MODULE = "monitoring_server"
FOLDER = "/etc/prometheus"
SECRETS, WEB = f"{FOLDER}/secrets", f"{FOLDER}/web.yml"
PROMETHEUS, ALERTMANAGER, BLACKBOX = "prometheus", "alertmanager", "blackbox"
PROGRAMS = {
    PROMETHEUS: "/usr/bin/prometheus",
    ALERTMANAGER: "/usr/bin/prometheus-alertmanager",
    BLACKBOX: "/usr/bin/prometheus-blackbox-exporter",
}
CLUSTER_PORT = 9094
CLOCK_MOST_S = 300
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
PLANNED = re.compile(r"(?:(?:rules|targets)/)?[A-Za-z0-9][A-Za-z0-9_-]*\.(?:yml|json)")
# A file of rules that an earlier plan wrote begins with this.
OURS = b"# Written by sailloft.fleet.monitoring_plan"


def options() -> dict[str, Any]:
    """Return the options of the module as an argument_spec."""
    return {
        "files": {"type": "dict", "default": {}},
        "plan": {"type": "dict"},
        "address": {"type": "str", "default": ""},
        "peers": {"type": "list", "elements": "str", "default": []},
        "retention_days": {"type": "int", "default": 30},
        "arguments": {"type": "dict", "default": {}},
        **web_options(),
        "secrets": {"type": "dict", "default": {}, "no_log": True},
        "controller_s": {"type": "float"},
    }


def ensure(system: System, request: Mapping[str, Any], check: bool = False) -> Outcome:
    """Bring the server to the options of the module. Raises HostError."""
    check_systemd(system, MODULE, True)
    _check_clock(request.get("controller_s"))
    texts = _texts(request["files"])
    stale = _stale_rules(system, texts)
    daemons = server_daemons(request, [*texts, *stale])
    check_address(MODULE, request["address"])
    web = web_file(WEB, MODULE, request)
    planned = [HostFile(f"{FOLDER}/{name}", text.encode()) for name, text in texts.items()]
    checked = [*planned, *([web] if web else [])]
    if any(system.read_bytes(file.path) != file.content for file in checked):
        verify(system, checked, check)
    files = [
        *_secrets(request["secrets"]),
        web or HostFile(WEB, None, is_secret=True),
        *planned,
        *(HostFile(f"{FOLDER}/{name}", None) for name in stale),
        *(daemon.drop_in(MODULE) for daemon in daemons),
    ]
    return converge(system, daemons, files, in_image=False, check=check)


def _check_clock(controller_s: float | None) -> None:
    """Raise HostError for a clock that differs from the controller's by more than a slow connection explains."""
    ahead_s = 0.0 if controller_s is None else time.time() - controller_s
    if abs(ahead_s) > CLOCK_MOST_S:
        direction = "ahead of" if ahead_s > 0 else "behind"
        raise HostError(f"{MODULE}: the clock is {abs(ahead_s):.0f} s {direction} the controller's", "set both by NTP")


def server_daemons(request: Mapping[str, Any], names: Sequence[str]) -> list[Daemon]:
    """Return the programs with their command lines. ``names``: of the planned files. Raises RequestError."""
    days = request["retention_days"]
    if not 1 <= days <= 3650:
        raise RequestError(f"{MODULE}: retention_days is {days}", "use a number of days from 1 to 3650")
    further = request["arguments"]
    for name in further:
        if name not in PROGRAMS:
            raise RequestError(f"{MODULE}: arguments has no program {name!r}", f"use {', '.join(PROGRAMS)}")
    address, is_secure = request["address"], bool(request["tls"])
    defaults = {
        PROMETHEUS: (f"--storage.tsdb.retention.time={days}d",),
        ALERTMANAGER: _cluster(address, request["peers"]),
        BLACKBOX: (f"--config.file={FOLDER}/blackbox.yml",),
    }
    reads = {
        PROMETHEUS: tuple(f"{FOLDER}/{name}" for name in names if name.startswith(("prometheus.yml", "rules/"))),
        ALERTMANAGER: (f"{FOLDER}/alertmanager.yml",),
        BLACKBOX: (f"{FOLDER}/blackbox.yml",),
    }
    daemons = []
    for name, program in PROGRAMS.items():
        if name == ALERTMANAGER and "alertmanager.yml" not in names:
            continue
        port = JOBS[name].port
        command = (
            program,
            f"--web.listen-address={host_port(address, port)}",
            *((f"--web.config.file={WEB}",) if is_secure else ()),
            *defaults[name],
            *plain_arguments(f"{MODULE}: arguments.{name}", further.get(name) or ()),
        )
        unit = f"{os.path.basename(program)}.service"
        daemons.append(Daemon(unit, command, reads[name], url=url(address, port, is_secure)))
    return daemons


def _cluster(address: str, peers: Sequence[str]) -> tuple[str, ...]:
    if not peers:
        return ("--cluster.listen-address=",)
    listen = f"--cluster.listen-address={host_port(address, CLUSTER_PORT)}"
    advertised = f"--cluster.advertise-address={host_port(address, CLUSTER_PORT)}"
    return listen, advertised, *(f"--cluster.peer={host_port(peer, CLUSTER_PORT)}" for peer in peers)


def verify(system: System, files: Sequence[HostFile], check: bool) -> None:
    """Let the programs check the files in a directory of their own. Raises HostError for what they refuse.

    ``check``: check mode, in which a program may not be installed yet.
    """
    with tempfile.TemporaryDirectory(prefix="sailloft-monitoring-") as folder:
        names = []
        for file in files:
            name = file.path[len(FOLDER) + 1 :]
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(file.content or b"")
            names.append(name)
        # The check of prometheus.yml reads the rules too, but does not name their file.
        for name in sorted(names, key=lambda name: not name.startswith("rules/")):
            command = _checker(name, os.path.join(folder, name))
            if not command or (check and not system.exists(command[0])):
                continue
            refusal = _refusal(command).replace(f"{folder}/", "")
            if refusal:
                raise HostError(f"{MODULE}: {name} is refused: {refusal}", "correct it; the former files stay in use")


def _refusal(command: list[str]) -> str:
    """Return what a program says of a file that it refuses; "" for one that it accepts. Raises HostError without it."""
    try:
        # amtool prints the cause to standard output.
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except FileNotFoundError:
        raise HostError(f"{MODULE}: there is no {command[0]}", "install the packages of the role first") from None
    lines = [line.strip() for line in process.stdout.splitlines() if line.strip()]
    return "; ".join([f"{os.path.basename(command[0])} says", *lines[-4:]]) if process.returncode else ""


def _checker(name: str, path: str) -> list[str]:
    if name == "prometheus.yml":
        return ["/usr/bin/promtool", "check", "config", path]
    if name.startswith("rules/"):
        return ["/usr/bin/promtool", "check", "rules", path]
    if name == "web.yml":
        return ["/usr/bin/promtool", "check", "web-config", path]
    if name == "alertmanager.yml":
        return ["/usr/bin/amtool", "check-config", path]
    if name == "blackbox.yml":
        return [PROGRAMS[BLACKBOX], "--config.check", f"--config.file={path}"]
    return []


def _texts(files: Mapping[str, Any]) -> dict[str, str]:
    for name, text in files.items():
        if not PLANNED.fullmatch(name) or not isinstance(text, str):
            raise RequestError(f"{MODULE}: files: {name!r} is no file of the plan with a text", "give plan instead")
    if "prometheus.yml" not in files or "blackbox.yml" not in files:
        raise RequestError(f"{MODULE}: files has no prometheus.yml or no blackbox.yml", "give plan instead")
    return dict(files)


def _secrets(secrets: Mapping[str, Any]) -> list[HostFile]:
    for name, value in secrets.items():
        if not NAME.fullmatch(name) or not isinstance(value, str) or not value:
            raise RequestError(
                f"{MODULE}: secrets: {name!r} is no name of a file with a text", "use letters, digits, '_', '.' and '-'"
            )
    return [HostFile(f"{SECRETS}/{name}", value.encode(), GROUP, True) for name, value in secrets.items()]


def _stale_rules(system: System, texts: Mapping[str, str]) -> list[str]:
    """Return the files of rules of an earlier plan; those of people stay."""
    names = [name for name in system.names(f"{FOLDER}/rules") if f"rules/{name}" not in texts]
    stale = [f"rules/{name}" for name in names if name.endswith(".yml")]
    return [name for name in stale if (system.read_bytes(f"{FOLDER}/{name}") or b"").startswith(OURS)]
