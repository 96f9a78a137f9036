# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The controller's part of node_image: it shows the progress of the build host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible import constants

from ansible_collections.sailloft.fleet.plugins.plugin_utils.shown_progress import ShownProgress

FIRST_STAGE = Path(__file__).parents[2] / "roles" / "node_image" / "files" / "first-stage" / "init"


class ActionModule(ShownProgress):
    """Pass the module the data that only the controller has, and show its progress."""

    WORK = "the build"
    REMEDY = "end the process named in the file lock in its cache, and run again"

    def arguments(self) -> dict[str, Any]:
        """Return the module's arguments, with the script of the first stage."""
        arguments = super().arguments()
        if not arguments.get("first_stage"):
            arguments["first_stage"] = FIRST_STAGE.read_text(encoding="utf-8")
        # A module starts in the playbook's directory, where Ansible may find another configuration or none.
        if self._connection.transport == "local" and constants.CONFIG_FILE:
            arguments.setdefault("ansible_configuration", constants.CONFIG_FILE)
        return arguments
