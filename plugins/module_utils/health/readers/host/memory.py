# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's memory and processors that the kernel uses: those of a failed module or socket are not there."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import optional
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node

MEMINFO, ONLINE = "/proc/meminfo", "/sys/devices/system/cpu/online"
MOST_PROCESSORS = 1 << 16


def read(node: Node) -> Reading:
    """Measure the memory and the processors that are online."""
    memory, processors = parse_total(optional(node, MEMINFO)), parse_online(optional(node, ONLINE))
    place = Place("node")
    return Reading(
        "memory",
        (
            Measurement("memory_bytes", place, memory, f"{MEMINFO}: MemTotal", "" if memory else "no MemTotal"),
            Measurement("processors", place, processors, ONLINE, "" if processors else "no list of processors"),
        ),
    )


def parse_total(meminfo: str) -> int | None:
    """Return the bytes of MemTotal in /proc/meminfo."""
    match = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB$", meminfo, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def parse_online(text: str) -> int | None:
    """Return how many processors a list of the kernel ("0-63,128-191") has."""
    total = 0
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part.strip())
        if match is None:
            return None
        total += int(match.group(2) or match.group(1)) - int(match.group(1)) + 1
    return total if 0 < total <= MOST_PROCESSORS else None
