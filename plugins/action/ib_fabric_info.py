# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The controller's part of ib_fabric_info: it shows the progress of the host, and gets the file of what it read."""

from __future__ import annotations

import base64
import shlex
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import ProofError
from ansible_collections.sailloft.fleet.plugins.plugin_utils.shown_progress import ShownProgress


class ActionModule(ShownProgress):
    """Show the module's progress, and write what it has read to ``path`` on the controller."""

    # The file must be there when the task ends.
    _supports_async = False
    WORK = "the reading of the fabric"
    REMEDY = "look at the links of its port, and run again"

    def arguments(self) -> dict[str, Any]:
        """Return the module's arguments, with the file on the host."""
        return {**super().arguments(), "host_path": self._host_path}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        temporary = self._low_level_execute_command("mktemp /tmp/sailloft-readings.XXXXXX")
        if temporary["rc"]:
            raise AnsibleActionFail(f"{self.subject()}: mktemp failed: {temporary['stderr']}; make /tmp writable")
        self._host_path = temporary["stdout"].strip().splitlines()[-1]
        try:
            result = super().run(tmp, task_vars)
            if result.get("failed") or result.get("unreachable"):
                return result
            content = self._execute_module("ansible.legacy.slurp", {"src": self._host_path}, task_vars=task_vars)
        finally:
            self._low_level_execute_command(f"rm -f {shlex.quote(self._host_path)}")
        if content.get("failed"):
            return content
        try:
            files.write_bytes(result["path"], base64.b64decode(content["content"]), private=True)
        except ProofError as error:
            raise AnsibleActionFail(str(error)) from error
        return result
