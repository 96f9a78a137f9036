# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Show which hosts failed alike, one line for each failure, and end a run in which too many did."""

from __future__ import annotations

DOCUMENTATION = r"""
name: failures
type: aggregate
short_description: One line for each failure, with all hosts that failed alike, and a circuit breaker
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Shows at the end of a run each failure once, with the number of hosts that failed alike and their names as a list
    with ranges. Failures are alike if they are of one task and have one message, but for the host's own name and
    address.
  - Failures that a play ignores or rescues are not shown.
  - With O(breaker_hosts), a run ends when more hosts than that have failed alike, in one batch or in several. The task
    that runs is completed on all hosts of its batch, C(always) sections run, and no other task or play follows, as with
    C(max_fail_percentage), which counts failures of all kinds in one batch.
  - Failures in a block that has a C(rescue) do not count for the breaker. A play whose variable C(breaker_hosts) is
    V(0) is not ended; such plays have a way back of their own.
options:
  breaker_hosts:
    description: The greatest number of hosts that may fail alike; V(0) never ends a run.
    type: int
    default: 0
    env:
      - name: SAILLOFT_BREAKER_HOSTS
    ini:
      - section: callback_failures
        key: breaker_hosts
notes:
  - Ansible's strategy C(linear) alone checks for the end of a run; C(free) does not.
requirements:
  - Enable it with C(callbacks_enabled = sailloft.fleet.failures) in C(ansible.cfg).
"""

from typing import Any

from ansible.plugins.callback import CallbackBase

from ansible_collections.sailloft.fleet.plugins.module_utils.site.alike import common, lines
from ansible_collections.sailloft.fleet.plugins.module_utils.site.fold import fold

# ansible-core's linear strategy ends the run after a task if failed hosts / hosts of the batch > this / 100. Below 0 it
# does so even where no host failed but some were unreachable, which it does not count.
END_AFTER_TASK = -1.0


class CallbackModule(CallbackBase):
    """Collect failures, show them when the run ends, and end it when too many are alike."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "sailloft.fleet.failures"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # By task and message, the hosts.
        self.failures: dict[tuple[str, str], list[str]] = {}
        # The same, of failures that count for the breaker.
        self.counted: dict[tuple[str, str], set[str]] = {}
        self.play: Any = None
        self.ended = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Keep the play, which is the copy for one batch; after the end of a run, another batch has no tasks."""
        self.play = play
        if self.ended:
            # Where hosts were unreachable, Ansible begins the next batch of a play that max_fail_percentage has ended.
            play.max_fail_percentage = END_AFTER_TASK
            play.gather_facts = False
            play.pre_tasks, play.roles, play.tasks, play.post_tasks = [], [], [], []

    def _add(self, result: Any, kind: str) -> None:
        host, found = result._host, result._result
        message = str(found.get("msg") or found.get("stderr") or kind)
        shown = common(message, (host.name, str(host.vars.get("ansible_host", ""))))
        failure = (result._task.get_name(), f"{kind}: {shown}")
        self.failures.setdefault(failure, []).append(host.name)
        if not _may_be_rescued(result._task):
            alike = self.counted.setdefault(failure, set())
            alike.add(host.name)
            self._break(failure, alike)

    def _break(self, failure: tuple[str, str], hosts: set[str]) -> None:
        most = self.play.vars.get("breaker_hosts", self.get_option("breaker_hosts"))
        if self.ended or not most or len(hosts) <= most:
            return
        self.ended = True
        self.play.max_fail_percentage = END_AFTER_TASK
        line = f"the run ends after this task: {len(hosts)} hosts failed alike, and {most} may: {': '.join(failure)}"
        self._display.display(f"{line}: {fold(hosts)}", color="red")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Collect a failure."""
        if not ignore_errors:
            self._add(result, "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Collect a host that was not reached."""
        if not result._task.ignore_unreachable:
            self._add(result, "unreachable")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Show the failures, the most frequent first. A host that was rescued has not failed."""
        lost = {*stats.failures, *stats.dark}
        for line in lines({failure: lost.intersection(hosts) for failure, hosts in self.failures.items()}):
            self._display.display(line, color="red")


def _may_be_rescued(task: Any) -> bool:
    """Return True for a task in a block with a rescue, at any depth. Only later does Ansible know if it was rescued."""
    parent = task._parent
    while parent is not None:
        if getattr(parent, "rescue", None):
            return True
        parent = parent._parent
    return False
