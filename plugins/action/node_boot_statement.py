# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sign the statement of nodes from the variables of each, and from what the boot servers' stores have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.action import node_boot_scripts


class ActionModule(node_boot_scripts.ActionModule):
    """Run the module with the images, addresses and files of nodes."""

    STORE_PARTS = ("channels", "images", "statement", "files", "now_s")

    def beside(self, names: list[str], hostvars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the module's option ``files``. Raises AnsibleActionFail."""
        texts = {name: node_boot_scripts.files_of(name, hostvars[name]) for name in names}
        return {"files": {name: text for name, text in texts.items() if text}}
