# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wait for a node that was power-cycled, and report the current phase of its boot."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_wait import (
    BootAnswer,
    Elapsed,
    Limits,
    check,
    phase,
    summary,
)

# The interval at which the same message is repeated.
TELL_S = 30.0

display = Display()


class ActionModule(ActionBase):
    """Run node_image_info until the node has booted again and systemd has finished."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _spec, options = self.validate_argument_spec(
            argument_spec={
                "since": {"type": "float", "required": True},
                "boot_id": {"type": "str", "default": ""},
                "timeout_s": {"type": "int", "default": 1800},
                "restart_timeout_s": {"type": "int", "default": 120},
                "interval_s": {"type": "int", "default": 5},
            }
        )
        if self._task.check_mode:
            return {**result, "skipped": True}
        limits = Limits(options["boot_id"], options["restart_timeout_s"], options["timeout_s"])
        variables = task_vars or {}
        subject = variables["inventory_hostname"]
        shown: str | None = None
        shown_at = 0.0
        began = time.monotonic()
        while True:
            reading = self._read(variables)
            # "since" needs the wall clock, because it comes from another task and thus from another process.
            elapsed = Elapsed(time.time() - options["since"], time.monotonic() - began)
            elapsed_s = round(elapsed.since_s, 1)
            now = phase(reading, elapsed, limits)
            if not now and reading.state is not None:
                display.display(f"{subject}: {elapsed_s:.0f} s: is up")
                outcome = {"state": reading.state, "elapsed_s": elapsed_s, "summary": summary(reading.state, elapsed_s)}
                return {**result, **outcome}
            if now != shown or elapsed_s - shown_at >= TELL_S:
                display.display(f"{subject}: {elapsed_s:.0f} s: {now}")
                shown, shown_at = now, elapsed_s
            try:
                check(subject, reading, elapsed, limits)
            except ImageError as error:
                return {**result, "failed": True, "msg": str(error), "elapsed_s": elapsed_s}
            time.sleep(options["interval_s"])

    def _read(self, task_vars: dict[str, Any]) -> BootAnswer:
        # A persistent connection (ssh's ControlPersist) does not survive the boot; a new one is needed.
        with contextlib.suppress(AttributeError, AnsibleError):
            self._connection.reset()
        try:
            state = self._execute_module(
                module_name="sailloft.fleet.node_image_info", module_args={}, task_vars=task_vars
            )
        except AnsibleConnectionFailure as error:
            return BootAnswer(why=_last_line(str(error)))
        if state.get("failed") or state.get("unreachable") or "boot_id" not in state:
            return BootAnswer(why=_last_line(str(state.get("msg") or state)))
        return BootAnswer(state)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason was given"])[-1]
