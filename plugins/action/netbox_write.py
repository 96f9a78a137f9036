# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Write the objects of a blueprint to NetBox, on the controller."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import ARGUMENTS, NetboxApi
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.objects import netbox
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.write import Writer
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction


class ActionModule(ControllerAction):
    """Write all objects in one call."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        **ARGUMENTS,
        "blueprint": {"type": "path", "required": True},
        "manufacturer": {"type": "str", "default": "various"},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        wanted = netbox(read_site(arguments["blueprint"]), arguments["manufacturer"])
        written = Writer(NetboxApi(arguments, open_url), wanted, self._task.check_mode).write()
        if not self._task.diff:
            del written["diff"]
        written["report"] = [
            f"{kind}: {', '.join(f'{count} {state}' for state, count in counts.items())}"
            for kind, counts in written["objects"].items()
        ]
        return written
