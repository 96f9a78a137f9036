# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Print the lines of a report."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.print_lines import print_lines


class ActionModule(ControllerAction):
    """Print lines from the controller; nothing connects to the host."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "lines": {"type": "list", "elements": "str", "required": True},
        "subject": {"type": "str", "default": ""},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        if not self._task.no_log:
            print_lines(arguments["lines"], arguments["subject"])
        return {"changed": False, "lines": arguments["lines"]}
