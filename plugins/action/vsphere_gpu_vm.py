# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The controller's part of vsphere_gpu_vm: it shows vCenter's tasks of virtual machines while they run."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.plugin_utils.shown_progress import ShownProgress


class ActionModule(ShownProgress):
    """Show the module's progress."""

    WORK = "vCenter"
    REMEDY = "look at its recent tasks, then run the play again: it compares what is there"

    def subject(self) -> str:
        """Return vCenter's name."""
        return str(self._task.args.get("hostname") or "vSphere")
