# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The controller's part of ib_fabric_info: it shows the progress of the host that reads the fabric."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.plugin_utils.shown_progress import ShownProgress


class ActionModule(ShownProgress):
    """Show the module's progress."""

    WORK = "the reading of the fabric"
    REMEDY = "look at the links of its port, and run again"
