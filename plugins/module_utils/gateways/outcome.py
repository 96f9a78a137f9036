# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The outcome of a slice on each of its hosts, from the events that ansible-runner streams. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common.failures import common

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
OK, FAILED, UNREACHABLE, UNKNOWN = "ok", "failed", "unreachable", "unknown"


class HostOutcome(NamedTuple):
    """The outcome of the run on a host: ``state``, and the task and message of its failure."""

    state: str
    task: str = ""
    message: str = ""


class Events:
    """The part of the events of one slice that is kept: failures, the final counts, and errors of Ansible itself."""

    def __init__(self) -> None:
        self.failures: dict[str, HostOutcome] = {}
        self.stats: Mapping[str, Any] | None = None
        self.stopped = False
        # The hosts of the last batch that had any hosts, and whether another batch begins.
        self.batch: set[str] = set()
        self.begins = False
        self.any = False
        self.error = ""

    def add(self, event: Mapping[str, Any]) -> None:
        """Process one event."""
        self.any = True
        kind, data = event.get("event"), event.get("event_data", {})
        if kind == "playbook_on_play_start":
            self.begins = True
        elif "host" in data:
            self.batch = {data["host"], *(() if self.begins else self.batch)}
            self.begins = False
        if kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            state = UNREACHABLE if kind == "runner_on_unreachable" else FAILED
            result = data.get("res") or {}
            message = str(result.get("msg") or result.get("stderr") or state)
            names = (data["host"], str(data.get("remote_addr") or ""))
            self.failures[data["host"]] = HostOutcome(state, str(data.get("task") or ""), common(message, names))
        elif kind == "playbook_on_no_hosts_remaining":
            self.stopped = True
        elif kind == "playbook_on_stats":
            self.stats = data
        elif kind in ("verbose", "error") and not self.error:
            text = " ".join(COLOUR.sub("", event.get("stdout", "")).split())
            if "ERROR" in text:
                self.error = common(text, ())


def of_hosts(hosts: Collection[str], events: Events, successful: bool) -> dict[str, HostOutcome]:
    """Return the outcome of each host.

    Ansible's final counts report some hosts as failed or unreachable. The other hosts are ok if the run completed.
    After an early end they are unknown: the worker was killed, max_fail_percentage was reached, or all hosts of a batch
    were lost, after which Ansible begins no other batch or play.
    """
    if events.stats is None:
        return {host: HostOutcome(UNKNOWN) for host in hosts}
    states = {**dict.fromkeys(events.stats.get("failures", {}), FAILED)}
    states.update(dict.fromkeys(events.stats.get("dark", {}), UNREACHABLE))
    is_complete = successful or not (events.stopped or events.batch <= set(states))
    default = HostOutcome(OK if is_complete else UNKNOWN)
    return {
        host: events.failures.get(host, HostOutcome(states[host]))._replace(state=states[host])
        if host in states
        else default
        for host in hosts
    }
