# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Plan a site from its blueprint, on the controller."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.plan import plan
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.planned_files import write_plan


class ActionModule(ControllerAction):
    """Expand, check and write; no host is reached."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "blueprint": {"type": "path", "required": True},
        "before": {"type": "path"},
        "path": {"type": "path"},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        site = read_site(arguments["blueprint"])
        old_site = read_site(arguments["before"]) if arguments["before"] else None
        site_files = plan(site, old_site)
        texts = site_files.pop("files")
        return {**site_files, **write_plan(arguments["path"], texts, self._task.check_mode)}
