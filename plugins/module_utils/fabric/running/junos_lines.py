# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Split ``show configuration | display set`` into words. Sources: ``systems.junos``.

A reading may have a second part, after the line INHERITED: the answer to ``<get-configuration format="set"
inherit="inherit"/>``, in which groups and interface-ranges are expanded (Junos XML protocol guide, "Specify How to
Display Configuration Groups and Interface Ranges"), and a last one, after SHOWN: that to ``show class-of-service
shared-buffer``. Neither was ever seen on a switch.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Watchdog

OURS = "sailloft-"
ETHERNET_BYTES = 14  # Ethernet's header, which an interface's mtu has and a family's has not
MTU_BYTES = 1500  # the largest IP packet of an interface without an mtu; see systems/junos.py
CABLE_M = 100  # the default of a congestion notification profile
COS = ("class-of-service",)
MACRO = (*COS, "apply-macro", "sailloft", "queue-buffer-bytes")
CLASS = re.compile(rf"{OURS}tc([0-7])-pri([0-7])")
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]]|[^\s\[\]"]+')
HASH = ("forwarding-options", "enhanced-hash-key")
HASH_MODE = (*HASH, "hash-mode", "layer2-payload")  # the default, written so that it is visible
NOT_HASHED = {
    "inet": {
        "source_ip": "no-ipv4-source-address",
        "destination_ip": "no-ipv4-destination-address",
        "source_port": "no-l4-source-port",
        "destination_port": "no-l4-destination-port",
        "protocol": "no-protocol",
    },
    "inet6": {
        "source_ip": "no-ipv6-source-address",
        "destination_ip": "no-ipv6-destination-address",
        "source_port": "no-l4-source-port",
        "destination_port": "no-l4-destination-port",
        "protocol": "no-next-header",
    },
}

# Objects with lists whose order has a meaning: a profile's first fill-level has the first drop-probability.
ORDERED = (*COS, "drop-profiles")

INHERITED, SHOWN = "# inherit\n", "# shared-buffer\n"  # also in the role's junos/read.yml
_ANSWER = re.compile(r"<(?:\w+:)?configuration-set[^>]*>(.*\S.*)</(?:\w+:)?configuration-set>", re.DOTALL)

Line = tuple[str, ...]  # the words after "set"


@dataclass
class Profile:
    """A congestion notification profile: the MRU of each DSCP that pauses, and the queues that each priority stops."""

    mru_bytes: dict[int, int] = field(default_factory=dict)
    stopped: dict[int, set[int]] = field(default_factory=dict)
    cable_m: int = CABLE_M
    watchdog: Watchdog | None = None


def written(text: str) -> str:
    """Return the part of a reading that is the configuration as it is written."""
    return text.partition(SHOWN)[0].partition(INHERITED)[0]


def effective(text: str) -> str:
    """Return the configuration with groups and interface-ranges expanded, or as written where only that was read."""
    answer = _ANSWER.search(text.partition(INHERITED)[2])
    return html.unescape(answer[1]) if answer else written(text)


def set_lines(text: str, name: str) -> tuple[list[Line], list[Line]]:
    """Return the lines that are set, with lists expanded, and the paths that are deactivated."""
    lines: list[Line] = []
    inactive: list[Line] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = [word[1:-1] if word[0] == '"' else word for word in WORD.findall(line)]
        if not words or words[0].startswith("#"):
            continue
        if words[0] not in ("set", "deactivate", "activate", "protect") or len(words) < 2:
            raise FabricError(
                f"{line.strip()[:60]!r} is not a set line",
                "give what `show configuration | display set | no-more` prints",
                subject=f"{name}: Junos configuration: line {number}",
            )
        if words[0] == "deactivate":
            inactive.append(tuple(words[1:]))
        elif words[0] == "set":
            lines += expand_list(words[1:], f"{name}: Junos configuration: line {number}")
    if not lines:
        raise FabricError(
            "it contains no set line",
            "give what `show configuration | display set | no-more` prints",
            subject=f"{name}: Junos configuration",
        )
    return lines, inactive


def expand_list(words: list[str], place: str) -> list[Line]:
    """Return a line for each element of a line's list."""
    if "[" not in words and "]" not in words:
        return [tuple(words)]
    start = words.index("[") if "[" in words else len(words)
    end = words.index("]") if "]" in words else -1
    if end <= start + 1 or "[" in words[start + 1 :]:
        raise FabricError(
            "a list that does not end, or is empty", "give the line as the switch shows it", subject=place
        )
    return [
        line
        for element in words[start + 1 : end]
        for line in expand_list([*words[:start], element, *words[end + 1 :]], place)
    ]


def rewrites_dscps(line: Line) -> bool:
    """Return true where a line of a port, or of one of its units, rewrites DSCPs of packets that leave."""
    rule = line[2:] if line[0] == "unit" else line
    return rule[:1] == ("rewrite-rules",) and rule[1:2] in (("dscp",), ("dscp-ipv6",), ("inet-precedence",))


def in_other_order(lines: Iterable[Line], wanted: Iterable[Line]) -> list[Line]:
    """Return the paths of objects of ORDERED that exist, but not with the wanted lists in their order.

    They have to be deleted and written whole, because what is added to a list is its last element.
    """
    existing = _lists(lines)
    return [path for path, lists in _lists(wanted).items() if existing.get(path, lists) != lists]


def _lists(lines: Iterable[Line]) -> dict[Line, dict[Line, list[str]]]:
    """Return the lists of each object of ORDERED: by the object's path, and by that of the list."""
    objects: dict[Line, dict[Line, list[str]]] = {}
    for line in lines:
        if line[: len(ORDERED)] == ORDERED:
            objects.setdefault(line[: len(ORDERED) + 1], {}).setdefault(line[:-1], []).append(line[-1])
    return objects


def without(lines: Iterable[Line], deleted: Iterable[Line]) -> list[Line]:
    """Return the lines that are left if paths are deleted with all below them."""
    paths = set(deleted)
    return [line for line in lines if not any(line[:length] in paths for length in range(1, len(line) + 1))]
