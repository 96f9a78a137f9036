# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All links of an InfiniBand subnet, by `iblinkinfo` and `ibqueryerrors` on one node that may ask the whole subnet.

Links of a fabric are found here that a node does not see: those between switches, and those of nodes that are down.
This is for one node of a subnet, such as the one of the subnet manager, and not for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

LINKS, ERRORS = ["iblinkinfo", "-l"], ["ibqueryerrors"]
ANSWER_S = 60.0
LINE = re.compile(
    r'0x(?P<guid>[0-9a-f]{16}) "(?P<name>[^"]*)" +[0-9]+ +(?P<port>[0-9]+)\[[^\]]*\] '
    r"==\( *(?P<link>[^)]*)\)==> +(?:0x[0-9a-f]+ +[0-9]+ +(?P<other>[0-9]+))?\[[^\]]*\] "
    r'"(?P<peer>[^"]*)" \((?P<notes>[^)]*)\)'
)
COULD_BE = re.compile(r"Could be ([0-9.]+ Gbps)")
TITLE = re.compile(r'Errors for (?:0x[0-9a-f]+ )?"(?P<name>[^"]*)"')
PORT = re.compile(r"\s+GUID 0x[0-9a-f]+ port (?P<port>[0-9]+): (?P<errors>\[.*)")
ERROR = re.compile(r"\[([A-Za-z0-9]+) == ([0-9]{1,20})")
# The counter's name, the check, and where the counter stops (InfiniBand Architecture Specification, PortCounters).
COUNTERS = {
    "LinkDownedCounter": ("port_link_downs", 0xFF),
    "LinkErrorRecoveryCounter": ("port_link_recoveries", 0xFF),
    "SymbolErrorCounter": ("port_symbol_errors", 0xFFFF),
    "PortRcvErrors": ("port_receive_errors", 0xFFFF),
    "LocalLinkIntegrityErrors": ("port_integrity_errors", 0xF),
    "ExcessiveBufferOverrunErrors": ("port_buffer_overruns", 0xF),
}


@dataclass(frozen=True)
class Link:
    """One end of a link: "node02 mlx5_0" port 1, its peer, and the speed at which both could work."""

    name: str
    port: int
    is_up: bool
    peer: str  # "leaf-r1 2", "" of an end without one
    could_be: str  # "53.125 Gbps", "" if it has the best speed of both

    @property
    def place(self) -> Place:
        return Place("port", f"{self.name} {self.port}")


def read(node: Node) -> Reading:
    """Measure the links of the subnet; planned ones are those that have a peer in the plan. Raises NotMeasuredError."""
    links = parse_links(_answer(node, LINKS, (0,)))
    # It ends with 1 if there are errors.
    errors = parse_errors(_answer(node, ERRORS, (0, 1)))
    return Reading("subnet", tuple(judged(links, errors, [port.peer for port in node.expected.ports if port.peer])))


def _answer(node: Node, argv: Sequence[str], good: tuple[int, ...]) -> str:
    ran = node.run(argv, ANSWER_S)
    if ran.rc not in good:
        raise NotMeasuredError(f"{argv[0]} ended with {ran.rc}: {ran.stderr.strip():.200}")
    return ran.stdout


def judged(
    links: Sequence[Link], errors: dict[tuple[str, int], dict[str, int]], planned: Sequence[str]
) -> Iterator[Measurement]:
    """Return the measurements of all ends that have a link or must have one: "leaf-r1 4"."""
    source = " ".join(LINKS)
    for link in links:
        if link.place.name in planned:
            yield Measurement("port_down", link.place, not link.is_up, source, f"to {link.peer or 'nothing'}")
        if link.is_up:
            text = f"could be {link.could_be}" if link.could_be else "the best of both ends"
            yield Measurement("port_below_ability", link.place, bool(link.could_be), source, text)
            counted = errors.get((link.name, link.port), {})
            for name, (check, end) in COUNTERS.items():
                # It does not print counters at zero.
                value = counted.get(name, 0)
                yield Measurement(check, link.place, value, f"{ERRORS[0]}: {name}", is_counter=True, saturation=end)


def parse_links(text: str) -> list[Link]:
    """Return the ends in `iblinkinfo -l`. Raises NotMeasuredError for a text that has none."""
    links = []
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            could_be = COULD_BE.search(match["notes"])
            links.append(
                Link(
                    match["name"].strip(),
                    int(match["port"]),
                    "Active/" in match["link"] and "LinkUp" in match["link"],
                    f"{match['peer'].strip()} {match['other']}" if match["other"] else "",
                    could_be.group(1) if could_be else "",
                )
            )
    if not links:
        raise NotMeasuredError(f"{LINKS[0]} listed no link")
    return links


def parse_errors(text: str) -> dict[tuple[str, int], dict[str, int]]:
    """Return the counters in `ibqueryerrors` by name and port. Raises NotMeasuredError without its summary."""
    if "## Summary:" not in text:
        raise NotMeasuredError(f"{ERRORS[0]} wrote no summary")
    errors: dict[tuple[str, int], dict[str, int]] = {}
    name = ""
    for line in text.splitlines():
        title, port = TITLE.match(line), PORT.match(line)
        if title:
            name = title["name"].strip()
        elif port and name:
            errors[name, int(port["port"])] = {key: int(value) for key, value in ERROR.findall(port["errors"])}
    return errors
