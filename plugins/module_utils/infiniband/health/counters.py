# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the error counters of all ports, as ibqueryerrors prints them, and their increases between two readings. Pure.

With thresholds of 0 ibqueryerrors prints each counter that is not 0, so that what it does not print is 0, except for
the ports that did not answer. It names these on standard error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host import rdma
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError

# A port: its node description and number.
Port = tuple[str, int]
# The counters that say something of a link, by the check of a node's health that judges the same counter of an HCA.
# Others count what a link does not cause: congestion (PortXmitDiscards, PortXmitWait), errors of links further away
# (PortRcvRemotePhysicalErrors).
CHECKS = {
    "LinkDownedCounter": "port_link_downs",
    "LinkErrorRecoveryCounter": "port_link_recoveries",
    "SymbolErrorCounter": "port_symbol_errors",
    "PortRcvErrors": "port_receive_errors",
    "LocalLinkIntegrityErrors": "port_integrity_errors",
    "ExcessiveBufferOverrunErrors": "port_buffer_overruns",
}
# Where a counter stops, by its check, unless the port has those of 64 bits.
ENDS = {check: end for _file, check, end in rdma.COUNTERS}
FORMAT = "sailloft-infiniband-counters/1"
_NODE = re.compile(r'Errors for (?:0x[0-9a-f]+ )?"(.*)"')
_PORT = re.compile(r"\s+GUID 0x[0-9a-f]+ port (\d+): (.*)")
_VALUE = re.compile(r"\[(\w+) == (\d+)")
_SUMMARY = re.compile(r"(?m)^## Summary: \d+ nodes checked")
_FAILURES = re.compile(r"(?m)^##\s+(\d+) PMA query failures")
_UNREAD = re.compile(r"(?m)query failed on (.+), Lid \d+ port (\d+)\s*$")


class Counters(NamedTuple):
    """One reading: when, the counters that are not 0 by port, and the ports that did not answer."""

    read_at_s: float  # Unix time of the host that read
    values: Mapping[Port, Mapping[str, int]]
    unread: frozenset[Port]


class Increases(NamedTuple):
    """The increases of a port's counters by check. ``ended``: checks whose counter is at its end, and shows none.

    ``is_new``: the counters began anew, because the device was restarted or somebody cleared them.
    """

    by_check: Mapping[str, int]
    ended: tuple[str, ...]
    is_new: bool


def read_counters(text: str, read_at_s: float) -> Counters:
    """Read the output of ``ibqueryerrors``, both streams. Raises InfinibandError for another text."""
    if not _SUMMARY.search(text):
        raise InfinibandError(
            "this is not the output of ibqueryerrors", "read them with ib_fabric_info, part: ports", subject="counters"
        )
    values: dict[Port, dict[str, int]] = {}
    node = ""
    for line in text.splitlines():
        head, port = _NODE.match(line), _PORT.match(line)
        if head:
            node = head[1]
        elif port and node:
            values[node, int(port[1])] = {name: int(value) for name, value in _VALUE.findall(port[2]) if name in CHECKS}
    unread = frozenset((name, int(number)) for name, number in _UNREAD.findall(text))
    failures = _FAILURES.search(text)
    if failures and int(failures[1]) and not unread:
        raise InfinibandError(
            f"{failures[1]} queries failed, and the ports are not named",
            "read them with ib_fabric_info, part: ports",
            subject="counters",
        )
    return Counters(read_at_s, values, unread)


def increases(earlier: Counters, later: Counters, port: Port) -> Increases:
    """Return what a port has counted between two readings: all of a counter that began anew."""
    earlier_values, later_values = earlier.values.get(port, {}), later.values.get(port, {})
    is_new = any(later_values.get(name, 0) < value for name, value in earlier_values.items())
    by_check: dict[str, int] = {}
    ended: list[str] = []
    for name, value in later_values.items():
        check = CHECKS[name]
        first = earlier_values.get(name, 0)
        if value == first == ENDS[check]:
            ended.append(check)
        else:
            by_check[check] = value if value < first else value - first
    return Increases(by_check, tuple(ended), is_new)


def stored(counters: Counters) -> str:
    """Return a reading as JSON, for the next comparison."""
    ports = [
        {"node": port[0], "number": port[1], "values": dict(counters.values[port])} for port in sorted(counters.values)
    ]
    unread = [{"node": node, "number": number} for node, number in sorted(counters.unread)]
    data = {"format": FORMAT, "read_at_s": counters.read_at_s, "ports": ports, "unread": unread}
    return f"{json.dumps(data)}\n"


def from_stored(text: str, path: str) -> Counters:
    """Return the reading in a file. Raises InfinibandError."""
    try:
        data: Any = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}")
        values = {
            (str(port["node"]), int(port["number"])): {name: int(count) for name, count in port["values"].items()}
            for port in data["ports"]
        }
        unread = frozenset((str(port["node"]), int(port["number"])) for port in data["unread"])
        return Counters(float(data["read_at_s"]), values, unread)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise InfinibandError(f"this is no reading of counters: {error}", "remove the file", subject=path) from None
