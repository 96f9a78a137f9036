# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the kernel's log from /dev/kmsg (Documentation/ABI/testing/dev-kmsg), from where the last round stopped.

The kernel numbers its records. The place is the boot's id and the number of the next record, so that none is counted
twice; numbers that are missing are lines that the ring buffer overwrote. Reading never waits for new lines.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    Event,
    Expected,
    Measurement,
    Place,
    Reading,
    clean,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import PATTERN
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.kernel_lines import Report, report
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import (
    LIMIT_BYTES,
    Node,
    NotMeasuredError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import kernel, xid

READER, KMSG = "kernel_log", "/dev/kmsg"
# A record has 8 KiB at most; one that does not fit into the buffer is lost.
RECORD_BYTES = 1 << 16
# A double-bit error brings these Xids within a second; together with 94 they are one contained error.
CONTAINED, DETAILS, TOGETHER_S = "xid_94", ("xid_48", "xid_63", "xid_171", "xid_172"), 5.0

_RECORD = re.compile(r"(\d{1,6}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)")
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")
_DEVICE = re.compile(rf"DEVICE=\+pci:({PATTERN})")
# What dmesg, journalctl and syslog put before a line: times, host, level, "kernel:".
_PREFIX = re.compile(
    r"<\d{1,3}>|kern *:[a-z]+ *: (?:\[[^\]]*\]|\S+) +|\[ *[TC]?\d+(?:\.\d+)?\] *"
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [^\]]*\] *|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ (?=kernel: )"
    r"|\d{4}-\d\d-\d\dT\S+ \S+ (?=kernel: )|(?:\S+ )?kernel: "
)
_SECONDS = re.compile(r"\[ *(\d{1,12}\.\d{1,9})\]")


@dataclass(frozen=True)
class KernelMessage:
    """One message of the kernel."""

    sequence: int
    seconds: float  # since the boot
    text: str
    device: str = ""  # the PCI address of the device that the message is of, if the record names it


def read(node: Node) -> Reading:
    """Report the records that are new since the last saved round."""
    boot_id = node.boot_id
    is_first = node.kept.get("boot_id") != boot_id
    next_text = "" if is_first else node.kept.get("next", "")
    start = int(next_text) if next_text.isdecimal() and len(next_text) < 20 else 0
    everything = [*_of_kmsg(_text(node.path(KMSG)).split("\n"))]
    if not everything:
        raise NotMeasuredError(f"{KMSG} has no record of the kernel")
    end = max(record.sequence for record in everything) + 1
    # In one boot the last record is never behind the next one.
    start = start if start <= end else 0
    news = [record for record in everything if record.sequence >= start]
    lost_lines = _lost(news, start)
    # A long start overflows the buffer of healthy nodes too: what was lost before a boot's first round is not measured.
    reason = f"{lost_lines} lines were overwritten before they were read" if lost_lines else ""
    happened = [*events(news, node.expected, boot_id)]
    if lost_lines and not is_first:
        number = news[0].sequence
        happened.append(
            Event(kernel.LINES_LOST, Place("node"), reason, KMSG, f"{boot_id}:{number}:lost", boot_id, number)
        )
    value = None if lost_lines else kernel.COMPLETE
    place = {"boot_id": boot_id, "next": str(end)}
    measurement = Measurement(kernel.LOG_READ, Place("node"), value, KMSG, reason)
    return Reading(READER, (measurement,), tuple(happened), kept=place)


def _lost(news: list[KernelMessage], start: int) -> int:
    """Return how many numbers are missing among the new records."""
    count, number = 0, start
    for record in news:
        count += max(0, record.sequence - number)
        number = max(number, record.sequence + 1)
    return count


def _text(path: str) -> str:
    """Return all records that there are now. Raises OSError."""
    parts, size = [], 0
    log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while size < LIMIT_BYTES:
            try:
                part = os.read(log, RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                # EPIPE: the next record was overwritten; EINVAL: it is too long. Reading goes on behind it.
                if error.errno in (errno.EPIPE, errno.EINVAL):
                    size += 1
                    continue
                raise
            if not part:
                break
            parts.append(part)
            size += len(part)
    finally:
        os.close(log)
    return b"".join(parts).decode(errors="replace")


def records(text: str) -> Iterator[KernelMessage]:
    """Return the records of /dev/kmsg, or the lines of dmesg and of a journal, numbered from 0."""
    lines = text.split("\n")
    is_kmsg = any(_RECORD.match(line) for line in lines[:50])
    return _of_kmsg(lines) if is_kmsg else _of_dmesg(lines)


def _of_kmsg(lines: Iterable[str]) -> Iterator[KernelMessage]:
    record: KernelMessage | None = None
    for line in lines:
        match = _RECORD.match(line)
        if match:
            if record:
                yield record
            # A message of several lines has its line ends as \x0a.
            text = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), match[4])
            record = KernelMessage(int(match[2]), int(match[3]) / 1e6, text)
        elif record and line.startswith(" ") and not record.device:
            device = _DEVICE.search(line)
            if device:
                record = KernelMessage(record.sequence, record.seconds, record.text, device[1])
    if record:
        yield record


def _of_dmesg(lines: Iterable[str]) -> Iterator[KernelMessage]:
    record: KernelMessage | None = None
    number = 0
    for line in lines:
        if record and line.startswith(" ") and line.strip():
            record = KernelMessage(record.sequence, record.seconds, f"{record.text}\n{line.strip()}")
            continue
        if record:
            yield record
        record = None
        if line.strip():
            seconds = _SECONDS.search(line[:80])
            record = KernelMessage(number, float(seconds[1]) if seconds else 0.0, _bare(line))
            number += 1
    if record:
        yield record


def _bare(line: str) -> str:
    match = _PREFIX.match(line)
    while match and match.end():
        line = line[match.end() :]
        match = _PREFIX.match(line)
    return line


def events(news: Iterable[KernelMessage], expected: Expected, boot_id: str) -> Iterator[Event]:
    """Return an event for each thing that the records report; lines of the same thing are one, with their number."""
    kinds = {item.address: item.kind for item in expected.devices}
    groups: dict[Report, list[KernelMessage]] = {}
    for record in news:
        reported = report(record.text, record.device, kinds)
        if reported:
            groups.setdefault(reported, []).append(record)
    groups = _contained(groups)
    for reported, lines in groups.items():
        first = min(lines, key=lambda item: item.sequence)
        remainder = f" (and {len(lines) - 1} more lines)" if len(lines) > 1 else ""
        # The check and the detail tell apart events that begin with the same record.
        identity = f"{boot_id}:{first.sequence}:{reported.check}:{reported.detail}"
        text = clean(f"{clean(first.text)[:400]}{remainder}")
        yield Event(reported.check, reported.place, text, KMSG, identity, boot_id, first.sequence, first.seconds)


def _contained(groups: dict[Report, list[KernelMessage]]) -> dict[Report, list[KernelMessage]]:
    """Join the Xids of one contained double-bit error to one event."""
    result = dict(groups)
    for reported, lines in groups.items():
        if reported.check != "xid_48":
            continue
        ends = groups.get(Report(CONTAINED, reported.place), [])
        if any(abs(end.seconds - line.seconds) <= TOGETHER_S for end in ends for line in lines):
            joined = [line for check in (*DETAILS, CONTAINED) for line in result.pop(Report(check, reported.place), [])]
            result[Report(xid.CONTAINED, reported.place)] = joined
    return result
