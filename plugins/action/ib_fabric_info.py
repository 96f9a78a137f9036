# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The controller's part of ib_fabric_info: it shows the progress of the host, and writes the file of what it read."""

from __future__ import annotations

import base64
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

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        content = result.pop("content", None)
        if content is not None:
            try:
                files.write_bytes(result["path"], base64.b64decode(content), private=True)
            except ProofError as error:
                raise AnsibleActionFail(str(error)) from error
        return result
