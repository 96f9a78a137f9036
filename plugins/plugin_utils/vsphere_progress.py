# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's part of a module that changes vSphere: it shows vCenter's work while it is done."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.plugin_utils.shown_progress import ShownProgress

# The end of a job is seen this long after it at most.
LOOK_S = 0.05
# After this long the lines of the progress are shown, and the job is looked at again.
SHOW_S = 2.0


class VSphereProgress(ShownProgress):
    """Show the module's progress.

    These modules run on the controller, where the file of their background job can be read. ``async_status``, which
    other connections need for each look, is a module that takes a quarter of a second or more.
    """

    WORK = "vCenter"
    REMEDY = "look at its recent tasks, then run the play again: it compares what is there"

    def subject(self) -> str:
        """Return vCenter's name."""
        return str(self._task.args.get("hostname") or "vSphere")

    def _status(self, job: str, mode: str, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        file = Path(job)
        if self._connection.transport == "local":
            if mode == "cleanup" and _removed(file):
                return {}
            end = time.monotonic() + SHOW_S
            while mode == "status" and _runs(file):
                if time.monotonic() > end:
                    return {"started": True, "finished": False}
                time.sleep(LOOK_S)
        return super()._status(job, mode, task_vars)


def _removed(job: Path) -> bool:
    """Remove the file of a job; return False for one that is not this user's to remove."""
    try:
        job.unlink()
    except OSError:
        return False
    return True


def _runs(job: Path) -> bool:
    """Return True if the file of a job says that it runs.

    At the end the module's result, which has no ``started``, replaces it. False for a file that cannot be read, too:
    async_status then says why.
    """
    try:
        return "started" in json.loads(job.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
