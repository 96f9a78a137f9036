# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's part of a module that changes vSphere: it shows the progress of vCenter's work."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.plugin_utils.shown_progress import ShownProgress

# The interval at which the end of a job is looked for.
LOOK_S = 0.05
# The interval at which new lines of progress are shown.
SHOW_S = 2.0


class VSphereProgress(ShownProgress):
    """Show the module's progress.

    These modules run on the controller, where the file of their background job can be read directly. Other connections
    need the module ``async_status`` for each poll, which takes a quarter of a second or more.
    """

    WORK = "vCenter"
    REMEDY = "check its recent tasks, then run the play again, which compares the current state"

    def subject(self) -> str:
        """Return vCenter's name."""
        return str(self._task.args.get("hostname") or "vSphere")

    def job_status(self, job: str, mode: str, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Return the state of a job once it ends, or after ``SHOW_S``."""
        file = Path(job)
        if self._connection.transport == "local":
            if mode == "cleanup" and _removed(file):
                return {}
            end = time.monotonic() + SHOW_S
            while mode == "status" and _runs(file):
                if time.monotonic() > end:
                    return {"started": True, "finished": False}
                time.sleep(LOOK_S)
        return super().job_status(job, mode, task_vars)


def _removed(job: Path) -> bool:
    """Remove the file of a job; return False if this user may not remove it."""
    try:
        job.unlink()
    except OSError:
        return False
    return True


def _runs(job: Path) -> bool:
    """Return True if the file of a job says that the job runs.

    When the job ends, the module's result, which has no ``started``, replaces the file's content. A file that cannot
    be read returns False as well: async_status then reports the cause.
    """
    try:
        return "started" in json.loads(job.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
