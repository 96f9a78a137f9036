# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Write the objects of a blueprint to NetBox, on the controller."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.urls import open_url
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import ARGUMENTS, NetboxApi
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.objects import netbox
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.write import Writer
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site


class ActionModule(ActionBase):
    """Write all objects in one call."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec(
            {
                **ARGUMENTS,
                "blueprint": {"type": "path", "required": True},
                "manufacturer": {"type": "str", "default": "various"},
            }
        )
        try:
            wanted = netbox(read_site(arguments["blueprint"]), arguments["manufacturer"])
            written = Writer(NetboxApi(arguments, open_url), wanted, self._task.check_mode).write()
        except SiteError as error:
            raise AnsibleActionFail(str(error)) from error
        if not self._task.diff:
            del written["diff"]
        written["report"] = [
            f"{kind}: {', '.join(f'{count} {state}' for state, count in counts.items())}"
            for kind, counts in written["objects"].items()
        ]
        return {**result, **written}
