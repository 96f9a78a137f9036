# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Print the lines of a report."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.plugin_utils.print_lines import print_lines


class ActionModule(ActionBase):
    """Print lines from the controller; nothing connects to the host."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action; the result has the lines, for programs."""
        result = super().run(tmp, task_vars)
        _options, arguments = self.validate_argument_spec(
            {
                "lines": {"type": "list", "elements": "str", "required": True},
                "subject": {"type": "str", "default": ""},
            }
        )
        if not self._task.no_log:
            print_lines(arguments["lines"], arguments["subject"])
        return {**result, "changed": False, "lines": arguments["lines"]}
