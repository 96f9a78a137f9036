# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Tell at the end of a run which hosts failed alike: one line for each failure, with a folded list of hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: failures
type: aggregate
short_description: One line for each failure, with all hosts that failed alike
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Shows at the end of a run each failure once, with the number of hosts that failed alike and their names as a list
    with ranges. Failures are alike if they are of one task and have one message, but for the host's own name and
    address.
  - Failures that a play ignores or rescues are not shown.
requirements:
  - Enable it with C(callbacks_enabled = sailloft.fleet.failures) in C(ansible.cfg).
"""

from typing import Any

from ansible.plugins.callback import CallbackBase

from ansible_collections.sailloft.fleet.plugins.module_utils.site.fold import fold

# A message of a page's length is cut: the whole one is where the task failed.
MESSAGE_MAX = 300


class CallbackModule(CallbackBase):
    """Collect failures, and show them when the run ends."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "sailloft.fleet.failures"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # By task and message, the hosts.
        self.failures: dict[tuple[str, str], list[str]] = {}

    def _add(self, result: Any, kind: str) -> None:
        host, found = result._host, result._result
        message = str(found.get("msg") or found.get("stderr") or kind)
        own = [host.name, str(host.vars.get("ansible_host", ""))]
        for name in sorted(filter(None, own), key=len, reverse=True):
            message = message.replace(name, "HOST")
        line = " ".join(message.split())
        shown = line if len(line) <= MESSAGE_MAX else f"{line[:MESSAGE_MAX]}..."
        self.failures.setdefault((result._task.get_name(), f"{kind}: {shown}"), []).append(host.name)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Collect a failure."""
        if not ignore_errors:
            self._add(result, "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Collect a host that was not reached."""
        self._add(result, "unreachable")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Show the failures, the most frequent first. A host that was rescued has not failed."""
        lost = {*stats.failures, *stats.dark}
        lines = []
        for (task, message), hosts in self.failures.items():
            left = [host for host in hosts if host in lost]
            if left:
                lines.append((-len(set(left)), f"{len(set(left))} hosts: {task}: {message}: {fold(left)}"))
        for _count, line in sorted(lines):
            self._display.display(line, color="red")
