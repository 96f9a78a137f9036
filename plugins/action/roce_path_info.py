# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Follow packets through a fabric from what was read of its switches and hosts."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.fabric_action import FabricAction


class ActionModule(FabricAction):
    """Run the module, whose fabric may be given by names."""
