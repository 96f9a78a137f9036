# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's part of node_boot_hold: it identifies this run, and detects ended runs of this machine."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from ansible import context
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Run the module with the run as its holder, and again without holds of runs that have ended on this machine."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        arguments = {"holder": this_run(), **self._task.args}
        result_of_hold = self._execute_module(module_args=arguments, task_vars=task_vars)
        ended = [hold for hold in result_of_hold.get("conflicts") or [] if has_ended(hold)]
        if ended:
            holds_to_take = arguments.get("take_over") or []
            holds_to_take = holds_to_take.split(",") if isinstance(holds_to_take, str) else list(holds_to_take)
            arguments["take_over"] = [*holds_to_take, *(hold["name"] for hold in ended)]
            result_of_hold = self._execute_module(module_args=arguments, task_vars=task_vars)
            if not result_of_hold.get("failed"):
                outcome = "would be taken over" if self._task.check_mode else "is taken over"
                warnings = [
                    f"{hold['described']}: the process of this hold has ended; the hold {outcome}" for hold in ended
                ]
                result_of_hold["warnings"] = [*result_of_hold.get("warnings", []), *warnings]
        result.update(result_of_hold)
        return result


def this_run() -> dict[str, Any]:
    """Return this run as a hold's holder. Ansible runs actions in children of the process that the user started."""
    return {
        "user": _user(),
        "host": socket.gethostname(),
        "machine": _machine(),
        "process": os.getppid(),
        "playbook": " ".join(os.path.basename(name) for name in context.CLIARGS.get("args") or ()) or "ansible",
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def has_ended(hold: Mapping[str, Any]) -> bool:
    """Return True if the hold's process has certainly ended: it ran on this machine, and no process has its id."""
    if not hold["machine"] or hold["machine"] != _machine():
        return False
    try:
        os.kill(hold["process"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container's user may have no name.
        return f"uid {os.getuid()}"


def _machine() -> str:
    """Return the boot and the namespace that process ids belong to; empty except on Linux."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return f"{stream.read().strip()} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""
