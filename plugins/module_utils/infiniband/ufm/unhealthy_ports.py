# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mark ports of a fabric as unhealthy or healthy in a UFM, which isolates a link with an unhealthy port.

The requests and answers are those of the guide's "Unhealthy Ports REST API". UFM's subnet manager marks ports, too, for
example those of links that flap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.api import Api, digits, not_as_documented
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.ports import PortNames, UfmPort

PATH = "app/unhealthy_ports"


class Unhealthy(NamedTuple):
    """A link that UFM isolates: the unhealthy port and the other end, why, and since when, as UFM writes it."""

    port: UfmPort
    peer: UfmPort
    condition: str
    since: str


def unhealthy(api: Api) -> list[Unhealthy]:
    """Return all unhealthy ports. Raises InfinibandError."""
    rows = api.read(PATH)
    try:
        return [_unhealthy(row) for row in rows]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise not_as_documented(PATH) from None


def _unhealthy(row: Mapping[str, Any]) -> Unhealthy:
    # The guide has both a text and a list.
    conditions = [row["Condition"]] if isinstance(row["Condition"], str) else row["Condition"]
    return Unhealthy(
        UfmPort(digits(row["UnhealthyGUID"]), int(row["UnhealthyPortNumber"])),
        UfmPort(digits(row["PeerGUID"]), int(row["PeerPortNumber"])),
        ", ".join(conditions),
        str(row["StatusTime"]),
    )


class Changes(NamedTuple):
    """The ports to mark as unhealthy and as healthy, without those that are so already."""

    unhealthy: list[UfmPort]
    healthy: list[UfmPort]

    def requests(self) -> list[dict[str, Any]]:
        """Return the data of the requests."""
        data = []
        if self.healthy:
            data.append({"ports": [str(port) for port in self.healthy], "ports_policy": "HEALTHY"})
        if self.unhealthy:
            ports = [str(port) for port in self.unhealthy]
            data.append({"ports": ports, "ports_policy": "UNHEALTHY", "action": "isolate"})
        return data


def changes(present: Iterable[Unhealthy], to_isolate: Iterable[UfmPort], to_restore: Iterable[UfmPort]) -> Changes:
    """Return what must change. A port is isolated if UFM lists it or the other end of its link."""
    listed: dict[UfmPort, list[UfmPort]] = {}
    for entry in present:
        for port in (entry.port, entry.peer):
            listed.setdefault(port, []).append(entry.port)
    # UFM marks the listed end as healthy, whichever end the user names.
    healthy = dict.fromkeys(port for name in to_restore for port in listed.get(name, ()))
    return Changes([port for port in dict.fromkeys(to_isolate) if port not in listed], list(healthy))


def carrying(
    links: Iterable[frozenset[UfmPort]], present: Iterable[Unhealthy], planned_changes: Changes
) -> list[frozenset[UfmPort]]:
    """Return the links of a UFM that carry traffic when the healthy ports of ``planned_changes`` are restored."""
    remaining = (entry for entry in present if entry.port not in planned_changes.healthy)
    isolated = {port for entry in remaining for port in (entry.port, entry.peer)}
    return [link for link in links if not link & isolated]


def lines(present: Iterable[Unhealthy], names: PortNames) -> list[str]:
    """Return the unhealthy ports as lines, with the planned names."""
    return [
        f"{names.name_of(entry.port)} - {names.name_of(entry.peer)}: {entry.condition} since {entry.since}"
        for entry in present
    ]
