# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keep the readings of hosts between two looks, the texts that were shown, and the log of changes. Pure.

The log is a file of JSON lines that is only appended to. The state is written first, with the lines that are to be
appended and the size of the log before them, so that the next run completes what a killed one has begun.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import LIMITS_S, STATES
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.look import Look
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.readings import HostReading

FORMAT, LOG_FORMAT = "sailloft-fleet/1", "sailloft-fleet-log/1"
PRESENT = "present"  # kind of a line about a host that came to the inventory or left it


class FleetError(SailloftError):
    """A page that cannot be made: "SUBJECT: CAUSE; NEXT STEP"."""


@dataclass(frozen=True)
class Kept:
    """The state that the last look leaves. ``log_bytes``: the size of the log before ``log_lines`` are appended."""

    readings: dict[str, HostReading] = field(default_factory=dict)
    shown: dict[str, dict[str, str]] = field(default_factory=dict)  # by host and kind
    log_bytes: int = 0
    log_lines: str = ""
    looked: bool = True  # False before the first look, which has no changes

    def to_json(self) -> str:
        """Return the text of the file; ``read_kept`` is its inverse."""
        data = {"format": FORMAT, **asdict(self)}
        return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True) + "\n"


def read_kept(text: str | None, path: str) -> Kept:
    """Return what the last look left, nothing without a file. Raises FleetError for another content."""
    if text is None:
        return Kept(looked=False)
    remedy = f"move {path} away; the next run begins anew, and keeps the log"
    try:
        last_look: Kept = stored.load(Kept, json.loads(text), FORMAT, "state of the fleet", remedy)
    except StoredError as error:
        raise FleetError(error.cause, error.remedy, subject=path) from error
    except (ValueError, RecursionError) as error:
        raise FleetError(f"it cannot be read: {error}", remedy, subject=path) from error
    for host, reading in last_look.readings.items():
        for entry in reading.data:
            if entry.state not in STATES or entry.kind not in LIMITS_S:
                raise FleetError(
                    f"{host} has the datum {entry.kind!r:.40} in state {entry.state!r:.40}", remedy, subject=path
                )
    return last_look


def left_to_append(last_look: Kept, log_bytes: int, tail: bytes) -> bytes:
    """Return what a killed run did not append to the log; b"" if it is complete, or was moved away since.

    ``tail``: the log from ``kept.log_bytes`` on. ``log_bytes``: its size.
    """
    lines = last_look.log_lines.encode()
    is_part = log_bytes >= last_look.log_bytes and len(tail) < len(lines) and lines.startswith(tail)
    return lines[len(tail) :] if is_part else b""


def keep(earlier: Kept, readings: Mapping[str, HostReading], look: Look, log_bytes: int) -> Kept:
    """Return what to keep of a look: ``earlier`` itself if nothing is new."""
    shown = {host_look.host.name: host_look.shown(look.now_s) for host_look in look.hosts}
    kept_readings = {name: readings[name] for name in shown if name in readings}
    if earlier.looked and shown == earlier.shown and kept_readings == earlier.readings:
        return earlier
    lines = _changes(earlier.shown, shown, look.now_s) if earlier.looked else ""
    return Kept(kept_readings, shown, log_bytes, lines)


def _changes(earlier: Mapping[str, Mapping[str, str]], shown: Mapping[str, Mapping[str, str]], now_s: float) -> str:
    time = datetime.fromtimestamp(int(now_s), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = []

    def add(host: str, kind: str, old: str, new: str) -> None:
        line = {"format": LOG_FORMAT, "time": time, "host": host, "kind": kind, "before": old, "after": new}
        lines.append(json.dumps(line, ensure_ascii=True) + "\n")

    for host in sorted({*earlier, *shown}):
        if host not in earlier or host not in shown:
            add(host, PRESENT, *("yes" if host in texts else "no" for texts in (earlier, shown)))
        old, new = earlier.get(host, {}), shown.get(host, {})
        for kind in sorted({*old, *new}):
            if old.get(kind) != new.get(kind) and host in shown:
                add(host, kind, old.get(kind, ""), new.get(kind, ""))
    return "".join(lines)
