# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sign the statement of nodes from the variables of each, and from what the boot servers' stores have."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.action import node_boot_scripts


class ActionModule(node_boot_scripts.ActionModule):
    """Run the module with the images and addresses of nodes."""

    STORE_PARTS = ("channels", "images", "statement", "now_s")
