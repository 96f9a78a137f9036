# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The controller's part of vsphere_host_passthrough: it shows the changes to ESXi hosts and their reboots."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.plugin_utils.vsphere_progress import VSphereProgress


class ActionModule(VSphereProgress):
    """Show the module's progress."""
