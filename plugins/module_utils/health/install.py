# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Install the health check on a node or in an image: its code, what the node must have, the units and the command."""

from __future__ import annotations

import sys
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health import main
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.health.round import EXPECTED_FILE
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import unit_state

MODULE = "node_health"
CODE = "/usr/lib/sailloft/health.pyz"
# In /usr/bin: sudo's secure_path has no /usr/local/bin on RHEL.
COMMAND = "/usr/bin/sailloft-health"
SERVICE, TIMER = "sailloft-health.service", "sailloft-health.timer"
SERVICE_FILE, TIMER_FILE = f"/etc/systemd/system/{SERVICE}", f"/etc/systemd/system/{TIMER}"
WANTS = f"/etc/systemd/system/timers.target.wants/{TIMER}"
SHORTEST_S, LONGEST_S = 10, 3600
HEAD = f"# Written by sailloft.fleet.{MODULE}; changes here are lost."
# A process of a reader that waits in the kernel cannot be killed: KillMode=process leaves it behind, so that the next
# round can start. The limit of time ends a checker that hangs itself.
SERVICE_TEXT = """{head}
[Unit]
Description=One round of the health check of this node (Sailloft)
ConditionPathExists={expected}
# The first round asks the boot servers for the state of before, with the node's own host key.
After=sailloft-identity.service

[Service]
Type=oneshot
ExecStart={python} {code} round --period {interval_s}
Nice=10
IOSchedulingClass=idle
KillMode=process
TimeoutStartSec=300
TimeoutStopSec=10
"""
TIMER_TEXT = """{head}
[Unit]
Description=Rounds of the health check of this node (Sailloft)

[Timer]
OnBootSec=30
OnUnitActiveSec={interval_s}
AccuracySec=1

[Install]
WantedBy=timers.target
"""
COMMAND_TEXT = """#!/bin/sh
{head}
exec {python} {code} "$@"
"""


def options() -> dict[str, Any]:
    """Return the options of the module node_health as an argument_spec."""
    return {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "expected": {"type": "str"},
        "interval_s": {"type": "int", "default": 60},
    }


def ensure(
    system: System, request: dict[str, Any], in_image: bool, check: bool = False, python: str = sys.executable
) -> Outcome:
    """Install the health check as requested, or remove it. Raises HostError. The node's state always stays."""
    if request["state"] == "absent":
        return remove(system, in_image, check)
    wanted = files(request, python)
    unit.check_systemd(system, MODULE, not in_image)
    outcome = Outcome(facts={"timer": TIMER, "expected_file": EXPECTED_FILE})
    unit.compare(system, wanted, outcome)
    is_executable = system.is_executable(COMMAND)
    if not is_executable:
        outcome.differ(f"{COMMAND} executable", False, True)
    is_enabled = system.exists(WANTS)
    if not is_enabled:
        outcome.differ(f"{TIMER} enabled", False, True)
    is_stopped = is_enabled and not in_image and unit_state(system, TIMER).active_state != "active"
    if is_stopped:
        outcome.differ(f"{TIMER} running", False, True)
    if check or not outcome.changed:
        return outcome
    unit.write(system, wanted, outcome)
    if not is_executable:
        system.make_executable(COMMAND)
    _start(system, in_image, is_enabled, is_stopped or bool({SERVICE_FILE, TIMER_FILE} & set(outcome.after)))
    return outcome


def files(request: dict[str, Any], python: str) -> dict[str, bytes]:
    """Return the content by file; the units last, so that they never run without the others. Raises RequestError."""
    interval_s = request["interval_s"]
    if not SHORTEST_S <= interval_s <= LONGEST_S:
        raise RequestError(
            f"{MODULE}: interval_s is {interval_s}", f"use a number of seconds from {SHORTEST_S} to {LONGEST_S}"
        )
    terms = {
        "head": HEAD,
        "python": python,
        "code": CODE,
        "expected": EXPECTED_FILE,
        "interval_s": interval_s,
    }
    wanted = {CODE: archive.build(main.__name__, with_bytecode=True)}
    if request["expected"]:
        try:
            stored.load(request["expected"])
        except StoredError as error:
            raise RequestError(f"{MODULE}: expected: {error.cause}", error.remedy) from error
        wanted[EXPECTED_FILE] = request["expected"].encode()
    wanted[COMMAND] = COMMAND_TEXT.format(**terms).encode()
    wanted[SERVICE_FILE] = SERVICE_TEXT.format(**terms).encode()
    wanted[TIMER_FILE] = TIMER_TEXT.format(**terms).encode()
    return wanted


def remove(system: System, in_image: bool, check: bool = False) -> Outcome:
    """Remove timer, service, command, code and what the node must have. Raises HostError."""
    paths = (TIMER_FILE, SERVICE_FILE, COMMAND, CODE, EXPECTED_FILE)
    return unit.remove_unit(system, TIMER, WANTS, paths, ["--root=/" if in_image else "--now"], check)


def _start(system: System, in_image: bool, is_enabled: bool, must_restart: bool) -> None:
    if in_image:
        if not is_enabled:
            system.run(["systemctl", "--root=/", "enable", TIMER])
        return
    if not must_restart and is_enabled:
        return
    system.run(["systemctl", "daemon-reload"])
    # A started timer keeps its old interval. It is enabled last, so that the next run completes one that was killed.
    system.run(["systemctl", "restart", TIMER])
    if not is_enabled:
        system.run(["systemctl", "enable", TIMER])
