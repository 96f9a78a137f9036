# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Split ``show configuration | display set`` into words. Sources: ``systems.junos``."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError

OURS = "sailloft-"
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

Line = tuple[str, ...]  # the words after "set"


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
                f"{name}: Junos configuration: line {number}",
                f"{line.strip()[:60]!r} is not a set line",
                "give what `show configuration | display set | no-more` prints",
            )
        if words[0] == "deactivate":
            inactive.append(tuple(words[1:]))
        elif words[0] == "set":
            lines += expand_list(words[1:], f"{name}: Junos configuration: line {number}")
    if not lines:
        raise FabricError(
            f"{name}: Junos configuration",
            "it contains no set line",
            "give what `show configuration | display set | no-more` prints",
        )
    return lines, inactive


def expand_list(words: list[str], place: str) -> list[Line]:
    """Return a line for each element of a line's list."""
    if "[" not in words and "]" not in words:
        return [tuple(words)]
    start = words.index("[") if "[" in words else len(words)
    end = words.index("]") if "]" in words else -1
    if end <= start + 1 or "[" in words[start + 1 :]:
        raise FabricError(place, "a list that does not end, or is empty", "give the line as the switch shows it")
    return [
        line
        for element in words[start + 1 : end]
        for line in expand_list([*words[:start], element, *words[end + 1 :]], place)
    ]
