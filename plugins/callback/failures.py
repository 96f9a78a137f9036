# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Show one line for each failure with all its hosts, and end a run in which too many hosts fail in the same way."""

from __future__ import annotations

DOCUMENTATION = r"""
name: failures
type: aggregate
short_description: One line for each failure, with all hosts that failed alike, and a circuit breaker
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Shows each failure once at the end of a run, with the number of hosts that failed alike and their names as a list
    with ranges. Failures are alike if they are from the same task and have the same message, apart from the host's own
    name and address.
  - Failures that a play ignores or rescues are not shown.
  - With O(breaker_hosts), a run ends when more hosts than that have failed alike, in one batch or in several. The task
    that runs is completed on all hosts of its batch, C(always) sections run, and no other task or play follows, as with
    C(max_fail_percentage), which counts failures of all kinds in one batch.
  - Failures in a block that has a C(rescue) do not count for the breaker. A play whose variable C(breaker_hosts) is
    V(0) is not ended; such plays restore the former state themselves.
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
  - Only Ansible's strategy C(linear) checks for the end of a run; C(free) does not.
requirements:
  - Enable it with C(callbacks_enabled = sailloft.fleet.failures) in C(ansible.cfg).
"""

from typing import Any

from ansible.plugins.callback import CallbackBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.failures import common, lines
from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold

# ansible-core's linear strategy ends the run after a task if failed hosts / hosts of the batch > this / 100. With a
# negative value it does so even where hosts were only unreachable, because it does not count these as failed.
END_AFTER_TASK = -1.0


class CallbackModule(CallbackBase):
    """Collect failures, show them when the run ends, and end the run when too many hosts have the same failure."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "sailloft.fleet.failures"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # The hosts of each failure, by task and message.
        self.failures: dict[tuple[str, str], list[str]] = {}
        # The hosts of each failure that counts for the breaker, by task and message.
        self.counted: dict[tuple[str, str], set[str]] = {}
        self.play: Any = None
        self.ended = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Keep the play, which is the copy for one batch; after the end of the run, remove a batch's tasks."""
        self.play = play
        if self.ended:
            # Ansible begins the next batch of a play that max_fail_percentage has ended if hosts were unreachable.
            play.max_fail_percentage = END_AFTER_TASK
            play.gather_facts = False
            play.pre_tasks, play.roles, play.tasks, play.post_tasks = [], [], [], []

    def _add(self, result: Any, kind: str) -> None:
        host, task_result = result._host, result._result
        message = str(task_result.get("msg") or task_result.get("stderr") or kind)
        shown = common(message, (host.name, str(host.vars.get("ansible_host", ""))))
        failure = (result._task.get_name(), f"{kind}: {shown}")
        self.failures.setdefault(failure, []).append(host.name)
        if not _may_be_rescued(result._task):
            hosts = self.counted.setdefault(failure, set())
            hosts.add(host.name)
            self._break(failure, hosts)

    def _break(self, failure: tuple[str, str], hosts: set[str]) -> None:
        hosts_max = self.play.vars.get("breaker_hosts", self.get_option("breaker_hosts"))
        if self.ended or not hosts_max or len(hosts) <= hosts_max:
            return
        self.ended = True
        self.play.max_fail_percentage = END_AFTER_TASK
        line = f"the run ends after this task: {len(hosts)} hosts had the same failure, but at most {hosts_max} may"
        self._display.display(f"{line}: {': '.join(failure)}: {fold(hosts)}", color="red")

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
        failed_hosts = {*stats.failures, *stats.dark}
        for line in lines({failure: failed_hosts.intersection(hosts) for failure, hosts in self.failures.items()}):
            self._display.display(line, color="red")


def _may_be_rescued(task: Any) -> bool:
    """Return True for a task in a block with a rescue, at any depth; Ansible rescues only after this callback."""
    parent = task._parent
    while parent is not None:
        if getattr(parent, "rescue", None):
            return True
        parent = parent._parent
    return False
