# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Render, compare and plan configurations of switches from their variables."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.fabric_action import FabricAction


class ActionModule(FabricAction):
    """Run the module, whose fabric may be given by names."""
