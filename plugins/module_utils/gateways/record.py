# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record of a run on gateways: its arguments, each host's outcome, its report, and the remaining hosts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.errors import GatewayError
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.outcome import OK, UNKNOWN, HostOutcome
from ansible_collections.sailloft.fleet.plugins.module_utils.given.failures import hosts_text, lines
from ansible_collections.sailloft.fleet.plugins.module_utils.given.fold import fold


class Record(NamedTuple):
    """``playbook`` and ``arguments`` of the run, the gateway and outcome of each host, the cause of each lost slice."""

    playbook: str
    arguments: list[str]
    gateways: dict[str, str]
    hosts: dict[str, HostOutcome]
    causes: dict[str, str]

    def with_slice(self, gateway: str, hosts: Mapping[str, HostOutcome], cause: str) -> Record:
        """Return the record with the outcome of a slice."""
        return self._replace(
            hosts={**self.hosts, **hosts},
            causes={**self.causes, **({gateway: cause} if cause else {})},
        )

    def to_json(self) -> str:
        """Return the text of the file."""
        hosts = {host: {"gateway": self.gateways[host], **each._asdict()} for host, each in sorted(self.hosts.items())}
        data = {"playbook": self.playbook, "arguments": self.arguments, "hosts": hosts, "causes": self.causes}
        return json.dumps(data, indent=1) + "\n"

    def counts(self) -> dict[str, int]:
        """Return the number of hosts by state."""
        found: dict[str, int] = {}
        for each in self.hosts.values():
            found[each.state] = found.get(each.state, 0) + 1
        return dict(sorted(found.items()))

    def report(self) -> list[str]:
        """Return the report's lines: each gateway, each slice that was lost, and each failure with its hosts."""
        found = []
        for gateway in sorted(set(self.gateways.values())):
            states = [self.hosts[host].state for host in self.hosts if self.gateways[host] == gateway]
            counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
            found.append(f"{gateway}: {hosts_text(len(states))}: {counts}")
        failures: dict[tuple[str, ...], list[str]] = {}
        for host, each in self.hosts.items():
            if each.state == UNKNOWN:
                gateway = self.gateways[host]
                cause = self.causes.get(gateway, "the run ended before it finished there")
                failures.setdefault((gateway, cause), []).append(host)
            elif each.state != OK:
                parts = (each.task, each.state, each.message if each.message != each.state else "")
                failures.setdefault(tuple(filter(None, parts)), []).append(host)
        return found + lines(failures)


def begun(playbook: str, arguments: list[str], gateways: Mapping[str, str]) -> Record:
    """Return the record of a run that begins: nothing is known about its hosts."""
    return Record(playbook, arguments, dict(gateways), {host: HostOutcome(UNKNOWN) for host in gateways}, {})


def resumed(text: str, file: str, fresh: Record) -> tuple[Record, list[str]]:
    """Return the record of a run that is resumed, and the hosts of ``fresh`` that are left to do.

    Raises GatewayError if the file is that of another run.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        hosts = {
            host: (each["gateway"], HostOutcome(each["state"], each["task"], each["message"]))
            for host, each in data["hosts"].items()
        }
        same = (data["playbook"], data["arguments"]) == (fresh.playbook, fresh.arguments)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GatewayError(file, f"this is not the record of a run: {error}", "run without gateways_resume") from None
    if not same:
        was = " ".join([data["playbook"], *data["arguments"]])
        raise GatewayError(
            file,
            f"the record is of another run ({was})",
            "use the playbook and arguments of that run, or run without gateways_resume",
        )
    left = [host for host in fresh.gateways if host not in hosts or hosts[host][1].state != OK]
    done = {host: each for host, (_gateway, each) in hosts.items() if host not in left}
    record = fresh._replace(
        gateways={**{host: gateway for host, (gateway, _each) in hosts.items()}, **fresh.gateways},
        hosts={**{host: each for host, (_gateway, each) in hosts.items()}, **fresh.hosts, **done},
    )
    return record, left


def slice_ended(gateway: str, hosts: Mapping[str, HostOutcome], cause: str) -> str:
    """Return the line that says how a slice ended."""
    lost = [host for host, each in hosts.items() if each.state != OK]
    end = f": {cause}" if cause else ""
    return (
        f"{gateway}: {len(hosts) - len(lost)} of {len(hosts)} hosts ok{f', not ok: {fold(lost)}' if lost else ''}{end}"
    )
