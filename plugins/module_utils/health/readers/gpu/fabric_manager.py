# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read Fabric Manager's log, from where the last round stopped; at first only what was written since the boot.

Its lines stay over reboots, and old ones are no news. The place in the log is the file's inode and a byte offset.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    Event,
    Expected,
    Measurement,
    Place,
    Reading,
    clean,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import PATTERN, pci_address
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import LIMIT_BYTES, Node

READER = "fabric_manager"
LOG = "/var/log/fabricmanager.log"
_PREFIX = re.compile(r"\[([A-Z][a-z]{2} \d{2} \d{4} \d{2}:\d{2}:\d{2})\] \[([A-Z]+)\] (?:\[tid \d+\] )?")
_PLACE = re.compile("[0-9]{1,20} [0-9]{1,18}")
_SWITCH = re.compile(rf"detected NVSwitch (non-fatal|fatal) error \d+ .*NVSwitch pci bus id ({PATTERN})")
_GPU_LEFT = "failed to find the GPU handle"
_TOPOLOGY = "don't match with any supported system topology"
_NOTHING = "NV_WARN_NOTHING_TO_DO"


def read(node: Node) -> Reading:
    """Report the new lines of a node that needs Fabric Manager."""
    if not _has_switches(node.expected):
        return Reading(READER)
    path, events, boot_id = node.path(LOG), [], node.boot_id
    with open(path, "rb") as stream:
        inode = str(os.fstat(stream.fileno()).st_ino)
        old = node.kept if _PLACE.fullmatch(f"{node.kept.get('inode')} {node.kept.get('offset')}") else {}
        since_s = 0.0 if old else _boot_time(node)
        if old and old["inode"] != inode:
            events += _rest(f"{path}.1", old, node.expected, boot_id)
        start = int(old["offset"]) if old.get("inode") == inode else 0
        size = os.fstat(stream.fileno()).st_size
        start = start if start <= size else 0  # the file was emptied and written anew
        stream.seek(start)
        data = stream.read(LIMIT_BYTES)
    # A line that fills the limit is none, and is passed over.
    data = data if len(data) == LIMIT_BYTES and b"\n" not in data else data[: data.rfind(b"\n") + 1]
    events += _events(data, start, inode, since_s, node.expected, boot_id)
    place = {"inode": inode, "offset": str(start + len(data))}
    return Reading(READER, _unread(data), tuple(events), kept=place)


def _unread(data: bytes) -> tuple[Measurement, ...]:
    """Return that lines are no text, as in a file that lost its end at a crash: what they said is unknown."""
    number = sum("\ufffd" in line or "\0" in line for line in data.decode(errors="replace").split("\n"))
    if not number:
        return ()
    reason = f"lines that are no text: {number}"
    return (Measurement("fabric_manager_error", Place("node"), None, LOG, reason, is_occasional=True),)


def _has_switches(expected: Expected) -> bool:
    has_nvswitches = any(device.kind == "nvswitch" for device in expected.devices)
    return expected.needs_fabric_manager or (expected.runs_gpus and has_nvswitches)


def _boot_time(node: Node) -> float:
    """Return the time of the boot in seconds since 1970."""
    match = re.search(r"(?m)^btime (\d{1,12})$", node.text("/proc/stat"))
    return float(match[1]) if match else 0.0


def _rest(path: str, old: dict[str, str], expected: Expected, boot_id: str) -> list[Event]:
    """Return the events of the lines that were written to the old file before it was rotated."""
    try:
        with open(path, "rb") as stream:
            if str(os.fstat(stream.fileno()).st_ino) != old["inode"]:
                return []
            stream.seek(int(old["offset"]))
            return [*_events(stream.read(LIMIT_BYTES), int(old["offset"]), old["inode"], 0.0, expected, boot_id)]
    except OSError:
        return []


def _events(data: bytes, start: int, inode: str, since_s: float, expected: Expected, boot_id: str) -> Iterator[Event]:
    offset = start
    for line in data.splitlines(keepends=True):
        event = parse(line.decode(errors="replace"), expected, f"{inode}:{offset}", boot_id)
        offset += len(line)
        if event and (not since_s or _written(line.decode(errors="replace")) >= since_s):
            yield event


def _written(line: str) -> float:
    """Return when a line was written, by the node's local time, or 0 if it does not say."""
    match = _PREFIX.match(line.lstrip("\0"))
    try:
        return time.mktime(time.strptime(match[1], "%b %d %Y %H:%M:%S")) if match else 0.0
    except (ValueError, OverflowError):
        return 0.0


def parse(line: str, expected: Expected, identity: str = "", boot_id: str = "") -> Event | None:
    """Return the event of a line, or None if it reports nothing."""
    # A crash leaves zeros before the next line.
    line = line.lstrip("\0")
    prefix = _PREFIX.match(line)
    text = line[prefix.end() :] if prefix else line
    switch, place = _SWITCH.search(text), Place("node")
    if switch:
        check = "fatal" if switch[1] == "fatal" else "non_fatal"
        place = Place("nvswitch", pci_address(switch[2]) or "")
    elif _GPU_LEFT in text:
        check = "gpu_left"
    elif _TOPOLOGY in text:
        check = "topology"
    elif _NOTHING in text:
        # Without NVSwitches there is nothing to do, whatever the line calls it.
        if not _has_switches(expected):
            return None
        check = "no_switches"
    elif prefix and prefix[2] in ("ERROR", "CRITICAL", "FATAL"):
        check = "error"
    else:
        return None
    return Event(f"fabric_manager_{check}", place, clean(text), LOG, identity, boot_id)
