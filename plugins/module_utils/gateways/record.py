# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record of a run on gateways: its arguments, each host's outcome, its report, and the remaining hosts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common.failures import hosts_text, lines
from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.errors import GatewayError
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.outcome import OK, UNKNOWN, HostOutcome


class RunRecord(NamedTuple):
    """``playbook`` and ``arguments`` of the run, the gateway and outcome of each host, the cause of each lost slice."""

    playbook: str
    arguments: list[str]
    gateways: dict[str, str]
    hosts: dict[str, HostOutcome]
    causes: dict[str, str]

    def with_slice(self, gateway: str, hosts: Mapping[str, HostOutcome], cause: str | None) -> RunRecord:
        """Return the record with the outcome of a slice."""
        return self._replace(
            hosts={**self.hosts, **hosts},
            causes={**self.causes, **({gateway: cause} if cause else {})},
        )

    def to_json(self) -> str:
        """Return the text of the file."""
        hosts = {
            host: {"gateway": self.gateways[host], **outcome._asdict()} for host, outcome in sorted(self.hosts.items())
        }
        data = {"playbook": self.playbook, "arguments": self.arguments, "hosts": hosts, "causes": self.causes}
        return json.dumps(data, indent=1) + "\n"

    def counts(self) -> dict[str, int]:
        """Return the number of hosts by state."""
        counts: dict[str, int] = {}
        for outcome in self.hosts.values():
            counts[outcome.state] = counts.get(outcome.state, 0) + 1
        return dict(sorted(counts.items()))

    def report(self) -> list[str]:
        """Return the report's lines: each gateway, each slice that was lost, and each failure with its hosts."""
        report_lines = []
        for gateway in sorted(set(self.gateways.values())):
            states = [self.hosts[host].state for host in self.hosts if self.gateways[host] == gateway]
            counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
            report_lines.append(f"{gateway}: {hosts_text(len(states))}: {counts}")
        failures: dict[tuple[str, ...], list[str]] = {}
        for host, outcome in self.hosts.items():
            if outcome.state == UNKNOWN:
                gateway = self.gateways[host]
                cause = self.causes.get(gateway, "the run ended before it finished there")
                failures.setdefault((gateway, cause), []).append(host)
            elif outcome.state != OK:
                parts = (outcome.task, outcome.state, outcome.message if outcome.message != outcome.state else "")
                failures.setdefault(tuple(filter(None, parts)), []).append(host)
        return report_lines + lines(failures)


def begun(playbook: str, arguments: list[str], gateways: Mapping[str, str]) -> RunRecord:
    """Return the record of a run that begins: nothing is known about its hosts."""
    return RunRecord(playbook, arguments, dict(gateways), {host: HostOutcome(UNKNOWN) for host in gateways}, {})


def resumed(text: str, file: str, fresh: RunRecord) -> tuple[RunRecord, list[str]]:
    """Return the record of a run that is resumed, and the hosts of ``fresh`` that are left to do.

    Raises GatewayError if the file is that of another run.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        hosts = {
            host: (outcome["gateway"], HostOutcome(outcome["state"], outcome["task"], outcome["message"]))
            for host, outcome in data["hosts"].items()
        }
        is_same_run = (data["playbook"], data["arguments"]) == (fresh.playbook, fresh.arguments)
        was = " ".join([data["playbook"], *data["arguments"]])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GatewayError(
            f"this is not the record of a run: {error}", "run without gateways_resume", subject=file
        ) from None
    if not is_same_run:
        raise GatewayError(
            f"the record is of another run ({was})",
            "use the playbook and arguments of that run, or run without gateways_resume",
            subject=file,
        )
    remaining = [host for host in fresh.gateways if host not in hosts or hosts[host][1].state != OK]
    finished = {host: outcome for host, (_gateway, outcome) in hosts.items() if host not in remaining}
    record = fresh._replace(
        gateways={**{host: gateway for host, (gateway, _each) in hosts.items()}, **fresh.gateways},
        hosts={**{host: outcome for host, (_gateway, outcome) in hosts.items()}, **fresh.hosts, **finished},
    )
    return record, remaining


def slice_ended(gateway: str, hosts: Mapping[str, HostOutcome], cause: str | None) -> str:
    """Return the line that says how a slice ended."""
    failed = [host for host, outcome in hosts.items() if outcome.state != OK]
    end = f": {cause}" if cause else ""
    names = f", not ok: {fold(failed)}" if failed else ""
    return f"{gateway}: {len(hosts) - len(failed)} of {len(hosts)} hosts ok{names}{end}"
