# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's part of a module that runs for a long time: it shows the module's progress."""

from __future__ import annotations

import shlex
import time
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.plugin_utils.print_lines import print_lines

POLL_S = 3
# The first polls have short intervals, because a run without changes ends within a second.
FIRST_POLL_S = 0.5
LIMIT_S = 6 * 3600
# Ansible ends a background job after LIMIT_S. The process that does so may have ended itself, and then nothing reports
# the timeout.
GRACE_S = 60
JOB = "ansible.legacy.async_status"


class ShownProgress(ActionBase):
    """Start a module in the background, print the lines of its progress, and return its result.

    The module has an option ``progress``, the file that it writes the lines to (``common/progress.py``).
    """

    _supports_check_mode = True
    _supports_async = True
    # The subject and the remedy of the message for a module that does not end.
    WORK = ""
    REMEDY = ""

    def arguments(self) -> dict[str, Any]:
        """Return the module's arguments."""
        return dict(self._task.args)

    def subject(self) -> str:
        """Return the text that each line begins with."""
        return str(self._play_context.remote_addr)

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action, without progress if the task has ``async`` or the connection does not support it."""
        result = super().run(tmp, task_vars)
        arguments = self.arguments()
        if self._task.async_val or self._connection.always_pipeline_modules or arguments.get("progress"):
            result.update(
                self._execute_module(module_args=arguments, task_vars=task_vars, wrap_async=bool(self._task.async_val))
            )
            return result
        # Ansible removes its own temporary directory before the background job ends. A file of mktemp is private.
        temporary = self._low_level_execute_command("mktemp /tmp/sailloft-progress.XXXXXX")
        if temporary["rc"]:
            result.update(self._execute_module(module_args=arguments, task_vars=task_vars))
            return result
        progress = temporary["stdout"].strip().splitlines()[-1]
        try:
            result.update(self.watched({**arguments, "progress": progress}, progress, task_vars))
        finally:
            self._low_level_execute_command(f"rm -f {shlex.quote(progress)}")
        return result

    def watched(self, arguments: dict[str, Any], progress: str, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Return the result of the module, which runs in the background while its lines are shown."""
        # async_val is reset after this call: only the call runs in the background, not the task.
        self._task.async_val = LIMIT_S
        try:
            started = self._execute_module(module_args=arguments, task_vars=task_vars, wrap_async=True)
        finally:
            self._task.async_val = 0
        job = started.get("results_file")
        if not job:
            return started
        shown, pause = 0, FIRST_POLL_S
        until = time.monotonic() + LIMIT_S + GRACE_S
        while True:
            time.sleep(pause)
            pause = min(2 * pause, POLL_S)
            status = self.job_status(job, "status", task_vars)
            shown = self.show_lines(progress, shown)
            if status.get("finished"):
                break
            if status.get("failed"):
                return status
            if time.monotonic() > until:
                cause = f"{self.WORK} has not finished in {LIMIT_S // 3600} h"
                return {"failed": True, "msg": f"{self.subject()}: {cause}; {self.REMEDY}"}
        self.job_status(job, "cleanup", task_vars)
        for name in ("finished", "started", "ansible_job_id", "results_file", "erased"):
            status.pop(name, None)
        return status

    def job_status(self, job: str, mode: str, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Return async_status's result: the state of a job for mode status; mode cleanup removes its file."""
        # The path comes from the job itself, because its user's HOME can differ from ~USER.
        folder, _slash, name = job.rpartition("/")
        arguments = {"jid": name, "mode": mode, "_async_dir": folder}
        return self._execute_module(module_name=JOB, module_args=arguments, task_vars=task_vars)

    def show_lines(self, progress: str, shown: int) -> int:
        """Print the lines after the first ``shown`` and return the number of lines shown in all."""
        read = self._low_level_execute_command(f"tail -n +{shown + 1} {shlex.quote(progress)}")
        lines = read["stdout"].splitlines() if read["rc"] == 0 else []
        print_lines(lines, self.subject())
        return shown + len(lines)
