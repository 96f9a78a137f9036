# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring Slurm on a host to its planned files, or compare it: controller, node or login host; files, units, restarts.

The units are those of the distribution. A node has no files of Slurm: slurmd fetches them from the controllers.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import hostlist, unfold
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot.unit import check_systemd, compare, write
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import unit_state
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler import files as names
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler import restart
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.hardware import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.service import GATE
from ansible_collections.sailloft.fleet.plugins.module_utils.slurm_service import containers

FOLDER = "/etc/slurm"
CONTROLLER, NODE = "slurmctld.service", "slurmd.service"
SLURMD = "/usr/sbin/slurmd"
DROP_IN = "/etc/systemd/system/slurmd.service.d/sailloft.conf"
# Files that were written and not yet taken by the daemon, because a run was killed.
PENDING = "/var/lib/sailloft/slurm-pending"
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
HEALTH_TEXT = """#!/bin/sh
# Written by sailloft.fleet.slurm_service; changes here are lost. Slurm runs it as HealthCheckProgram.
[ -x /usr/bin/sailloft-health ] || exit 0
exec /usr/bin/sailloft-health --format slurm --drain
"""
# Debian's unit has the condition that slurm.conf exists, which a node without files of its own never fulfils.
DROP_IN_TEXT = """# Written by sailloft.fleet.slurm_service; changes here are lost.
[Unit]
ConditionPathExists=
After=sailloft-identity.service munge.service

{mounts}
[Service]
EnvironmentFile=
Environment="SLURMD_OPTIONS=--conf-server {servers}"
LimitMEMLOCK=infinity
{before}# Another value restarts slurmd: {key}
Restart=on-failure
RestartSec=10
"""
PAUSE_S = 0.5


def converge(system: System, options: Mapping[str, Any], check: bool = False) -> Outcome:
    """Bring the host to the options of the module ``slurm_service``. Raises HostError.

    Facts: ``restarts``, why the daemon is restarted; ``mismatches``, how a node's hardware differs from the plan.
    """
    if options["part"] == "node" and not options["controllers"]:
        raise RequestError("slurm_service: controllers is empty", "name the controllers, the primary first")
    check_systemd(system, "slurm_service", options["now"])
    if options["part"] == "controller":
        return _controller(system, options, check)
    if options["part"] == "login":
        return _login(system, options, check)
    return _node(system, options, check)


def _controller(system: System, options: Mapping[str, Any], check: bool) -> Outcome:
    texts = _texts(options, names.SLURM, names.GRES, names.CGROUP)
    _check_program(system, CONTROLLER, "slurmctld", check)
    elsewhere = {names.DBD: "", names.REIMAGE: names.REIMAGE_PROGRAM}
    wanted = {path: text for name, text in texts.items() if (path := elsewhere.get(name, f"{FOLDER}/{name}"))}
    held = {path: _read(system, path) for path in wanted}
    outcome = _compared(wanted, held)
    programs = [path for path in wanted if path == names.REIMAGE_PROGRAM]
    for path in programs:
        if not system.is_executable(path):
            outcome.differ(f"{path} executable", False, True)
    # Slurm ignores topology.conf beside topology.yaml.
    stale = [f"{FOLDER}/{name}" for name in (names.TOPOLOGY_CONF, names.TOPOLOGY_YAML) if name not in texts]
    stale = [path for path in stale if system.exists(path)]
    for path in stale:
        outcome.differ(path, _read(system, path), None)
    conf, gres = f"{FOLDER}/{names.SLURM}", f"{FOLDER}/{names.GRES}"
    old = held[conf] or ""
    unit = unit_state(system, CONTROLLER)
    is_enabled, is_active = unit.is_enabled, unit.runs
    if not (is_enabled and is_active):
        outcome.differ(CONTROLLER, str(unit), "enabled, running")
    pending = (_read(system, PENDING) or "").split()
    if pending and not outcome.changed:
        outcome.differ(f"{CONTROLLER} files", "other files", "the planned ones")
    reasons = restart.reasons(old, wanted[conf], held[gres] or "", wanted[gres]) if is_active and old else []
    if is_active and outcome.changed and not options["primary"]:
        reasons = reasons or ["a standby reads its files only when it starts"]
    reasons = reasons or pending
    gate = _new_nodes(old, wanted[conf]) if options["primary"] else []
    outcome.facts = {"restarts": [one for one in reasons if is_active and one != "reconfigure"], "mismatches": []}
    if check or not outcome.changed:
        return outcome
    # The next run completes one that is killed from here on.
    system.replace(PENDING, " ".join(reason.split()[0] for reason in reasons).encode() or b"reconfigure")
    for path, text in wanted.items():
        gated = restart.gated(text, hostlist(gate), GATE) if path == conf and gate else text
        if held[path] != gated:
            system.replace(path, gated.encode())
    for path in programs:
        system.make_executable(path)
    for path in stale:
        system.remove(path)
    _start_controller(system, is_enabled, is_active, bool(set(reasons) - {"reconfigure"}) or bool(gate))
    if gate:
        _wait(system, options["limit_s"])
        system.replace(conf, wanted[conf].encode())
    if options["primary"]:
        _wait(system, options["limit_s"])
        system.run(["scontrol", "reconfigure"])
    system.remove(PENDING)
    return outcome


def _start_controller(system: System, is_enabled: bool, is_active: bool, must_restart: bool) -> None:
    if not is_enabled:
        system.run(["systemctl", "enable", CONTROLLER])
    if not is_active or must_restart:
        system.run(["systemctl", "restart" if is_active else "start", CONTROLLER])


def _new_nodes(old: str, new: str) -> list[str]:
    """Return the nodes that were never in service: not in the old file, or in the gate that a killed run has left."""
    known = set(restart.node_names(old)) - set(unfold(restart.gate_of(old)))
    return [name for name in restart.node_names(new) if name not in known]


def _node(system: System, options: Mapping[str, Any], check: bool) -> Outcome:
    _check_program(system, NODE, "slurmd", check)
    key = options["restart_key"] if options["now"] else ""
    wanted = {
        names.HEALTH_PROGRAM: HEALTH_TEXT,
        DROP_IN: _drop_in(options, key),
    }
    held = {path: _read(system, path) for path in wanted}
    # First, so that no slurmd with the drop-in misses them.
    outcome = _containers(system, options, check).and_then(_compared(wanted, held))
    if not system.is_executable(names.HEALTH_PROGRAM):
        outcome.differ(f"{names.HEALTH_PROGRAM} executable", False, True)
    wants = f"/etc/systemd/system/multi-user.target.wants/{NODE}"
    unit = unit_state(system, NODE) if options["now"] else None
    is_enabled, is_active = (unit.is_enabled, unit.runs) if unit else (system.exists(wants), False)
    runs_or_image = is_active or not options["now"]
    if not (is_enabled and runs_or_image):
        outcome.differ(NODE, str(unit or "disabled"), "enabled, running" if unit else "enabled")
    pending = options["now"] and system.exists(PENDING)
    if pending and not outcome.changed:
        outcome.differ(f"{NODE} settings", "other settings", "the planned ones")
    outcome.facts = {
        "restarts": ["settings"] if is_active and (DROP_IN in outcome.after or pending) else [],
        "mismatches": _mismatches(system, options["hardware"]) if options["now"] else [],
    }
    if check or not outcome.changed:
        return outcome
    if options["now"]:
        system.replace(PENDING, b"restart")
    for path, text in wanted.items():
        if held[path] != text:
            system.replace(path, text.encode())
    system.make_executable(names.HEALTH_PROGRAM)
    if not options["now"]:
        if not is_enabled:
            system.run(["systemctl", "--root=/", "enable", NODE])
        return outcome
    system.run(["systemctl", "daemon-reload"])
    if not is_enabled:
        system.run(["systemctl", "enable", NODE])
    if not is_active or outcome.facts["restarts"]:
        system.run(["systemctl", "restart" if is_active else "start", NODE])
    system.remove(PENDING)
    return outcome


def _drop_in(options: Mapping[str, Any], key: str) -> str:
    directory = options["containers"]["directory"]
    return DROP_IN_TEXT.format(
        servers=",".join(options["controllers"]),
        key=key or "none",
        mounts=f"RequiresMountsFor={directory}\n" if directory else "",
        # Root's check renews the devices of containers; its failure is for sailloft-health to see.
        before=f"ExecStartPre=-{containers.COMMAND} check\n" if directory else "",
    )


def _containers(system: System, options: Mapping[str, Any], check: bool) -> Outcome:
    """Write Prolog and Epilog, and the programs for containers of jobs, or remove these."""
    outcome = Outcome()
    programs = containers.files(options["containers"], sys.executable)
    wanted = {**dict.fromkeys((containers.CODE, *containers.PROGRAMS)), **programs}
    compare(system, wanted, outcome)
    if not check:
        write(system, wanted, outcome)
    for path in containers.PROGRAMS:
        if path in programs and not system.is_executable(path):
            outcome.differ(f"{path} executable", False, True)
            if not check:
                system.make_executable(path)
    return outcome


def _login(system: System, options: Mapping[str, Any], check: bool) -> Outcome:
    wanted = {f"{FOLDER}/{names.SLURM}": _texts(options, names.SLURM)[names.SLURM]}
    outcome = _compared(wanted, {path: _read(system, path) for path in wanted})
    outcome.facts = {"restarts": [], "mismatches": []}
    if not check:
        for path in outcome.after:
            system.replace(path, wanted[path].encode())
    return outcome


def _mismatches(system: System, planned: Mapping[str, Any] | None) -> list[str]:
    """Compare the planned hardware with what slurmd and NVIDIA's driver see; nothing where it was not planned."""
    if not planned or not system.exists(SLURMD):
        return []
    gpus = "/proc/driver/nvidia/gpus"
    texts = {name: system.read(f"{gpus}/{name}/information") or "" for name in system.names(gpus)}
    return differences(planned, system.run([SLURMD, "-C"]), texts)


def _texts(options: Mapping[str, Any], *needed: str) -> dict[str, str]:
    texts = dict(options["files"])
    for name in needed:
        if not isinstance(texts.get(name), str):
            raise RequestError(f"slurm_service: files has no {name}", "give what slurm_plan returns")
    return texts


def _check_program(system: System, unit: str, program: str, check: bool) -> None:
    """Refuse a unit that starts the daemon by another name: Slurm then drops all GPUs and says nothing.

    A missing unit is refused, too, except in check mode, which installs no package.
    """
    texts = (_read(system, f"{folder}/{unit}") for folder in UNIT_FOLDERS)
    text = next((text for text in texts if text is not None), None)
    if text is None and check:
        return
    if text is None:
        raise HostError(f"{unit} is not installed", "install Slurm, or leave packages_install at true")
    starts = [line.partition("=")[2].strip() for line in text.splitlines() if line.startswith("ExecStart=")]
    names_started = [start.split()[0].lstrip("-@:+!").rpartition("/")[2] for start in starts if start]
    if names_started != [program]:
        raise HostError(
            f"{unit} starts {', '.join(names_started) or 'nothing'}: under another name, Slurm drops all GPUs",
            f"let it start /usr/sbin/{program}",
        )


def _compared(wanted: Mapping[str, str], held: Mapping[str, str | None]) -> Outcome:
    outcome = Outcome()
    for path, text in wanted.items():
        if held[path] != text:
            outcome.differ(path, held[path], text)
    return outcome


def _read(system: System, path: str) -> str | None:
    content = system.read_bytes(path)
    return None if content is None else content.decode(errors="replace")


def _wait(system: System, limit_s: float) -> None:
    """Wait until the primary's slurmctld answers, whatever its standbys do. Raises HostError."""
    end = time.monotonic() + limit_s
    while True:
        try:
            shown = system.run(["scontrol", "ping"])
        except HostError as error:
            shown = str(error)
        if re.search(r"\(primary\) at \S+ is UP", shown):
            return
        if time.monotonic() > end:
            raise HostError(
                f"slurmctld does not answer in {limit_s:g} s: {shown.strip():.200}", "see journalctl -u slurmctld"
            )
        time.sleep(PAUSE_S)
