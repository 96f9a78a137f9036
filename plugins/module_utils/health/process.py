# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run readers in processes of their own, which are killed at their deadlines and left behind if they do not die."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Event, Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import (
    KILLED_S,
    LIMIT_BYTES,
    Node,
    NotMeasuredError,
)

POLL_S = 0.01
# A reader whose round was killed ends itself so many seconds after its deadline.
ALONE_S = 5
MOST_FILES = 4096
LENGTH = 8  # bytes
MOST_KEPT = 64 << 10  # characters; the state is written in each round


@dataclass(frozen=True)
class Reader:
    """A row of the table of readers. ``lists``: the kinds of devices of which it lists all that it sees."""

    name: str
    read: Callable[[Node], Reading]
    deadline_s: float
    is_deep: bool = False  # only on nodes that are out of service, and alone
    lists: tuple[str, ...] = ()


@dataclass(frozen=True)
class Process:
    """A living process: its start, in clock ticks since the boot, tells it from others of its number."""

    pid: int
    program: str
    start_ticks: int


@dataclass
class _Child:
    reader: Reader
    pid: int
    stream: int
    start: float
    data: bytearray = field(default_factory=bytearray)
    error: str = ""


@dataclass(frozen=True)
class ReaderOutcome:
    """The answer of a reader's process, and which of its processes still live although they were killed."""

    reading: Reading
    alive: tuple[Process, ...] = ()


def read_all(readers: Sequence[Reader], node: Callable[[Reader], Node]) -> list[ReaderOutcome]:
    """Run readers at once and return their outcomes, at the latest a little after the last deadline."""
    children = [_start(reader, node(reader)) for reader in readers]
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.stream, selectors.EVENT_READ, child)
        while selector.get_map():
            running: list[_Child] = [key.data for key in selector.get_map().values()]
            first = min(child.start + child.reader.deadline_s for child in running)
            for key, _events in selector.select(max(0.0, first - time.monotonic())):
                if not _receive(key.data):
                    selector.unregister(key.fd)
            now = time.monotonic()
            for child in running:
                if child.stream in selector.get_map() and now >= child.start + child.reader.deadline_s:
                    child.error = f"no answer in {child.reader.deadline_s:g} s"
                    selector.unregister(child.stream)
    return [_outcome(child) for child in children]


def _start(reader: Reader, node: Node) -> _Child:
    read_end, write_end = os.pipe()
    start = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _run(reader, node, write_end)
    os.close(write_end)
    return _Child(reader, pid, read_end, start)


def _run(reader: Reader, node: Node, stream: int) -> None:
    """Be the reader's process, which never returns."""
    try:
        os.setsid()
        # Locks of the round are not held by a process that it left behind.
        os.closerange(3, stream)
        os.closerange(stream + 1, MOST_FILES)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(reader.deadline_s) + ALONE_S)
        data = pickle.dumps(_reading(reader, node))
        # With its length, because a process that the reader leaves running may hold the stream open.
        data = len(data).to_bytes(LENGTH, "big") + data
        while data:
            data = data[os.write(stream, data) :]
    finally:
        os._exit(0)


def _reading(reader: Reader, node: Node) -> Reading:
    try:
        return _checked(reader.read(node), reader.name)
    except NotMeasuredError as error:
        cause = error.cause
    except OSError as error:
        cause = ": ".join(str(text) for text in (error.filename, error.strerror or error) if text)
    except Exception as error:  # a reader's mistake is its own, not the round's
        cause = f"{type(error).__name__}: {error}"
    return Reading(reader.name, error=cause or "no reason given")


def _checked(reading: object, name: str) -> Reading:
    """Return a reading whose values have the types that the judge and the stored form need. Raises TypeError."""
    if not isinstance(reading, Reading):
        raise TypeError(f"the reader returned {type(reading).__name__}")
    for entry in (*reading.measurements, *reading.events):
        if not isinstance(entry, (Measurement, Event)) or not isinstance(entry.place, Place):
            raise TypeError(f"the reader returned {entry!r:.100}")
        texts = [entry.check, entry.place.kind, entry.place.name, entry.source]
        texts += (
            [entry.reason, *entry.context.values()] if isinstance(entry, Measurement) else [entry.text, entry.identity]
        )
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"the reader returned {entry!r:.100}")
    if not all(isinstance(text, str) and text.isprintable() for item in reading.kept.items() for text in item):
        raise TypeError(f"the reader wants to keep {reading.kept!r:.100}")
    if sum(map(len, reading.kept.values())) > MOST_KEPT:
        raise ValueError(f"the reader wants to keep more than {MOST_KEPT >> 10} KiB")
    return replace(reading, reader=name)


def _receive(child: _Child) -> bool:
    """Read what the process wrote; return False at the end of its reading."""
    part = os.read(child.stream, 1 << 16)
    child.data += part
    if len(child.data) >= LENGTH + int.from_bytes(child.data[:LENGTH], "big"):
        return False
    if len(child.data) > LIMIT_BYTES:
        child.error = f"more than {LIMIT_BYTES >> 20} MiB of measurements"
        return False
    return bool(part)


def _outcome(child: _Child) -> ReaderOutcome:
    os.close(child.stream)
    alive = _end(child.pid)
    seconds = round(time.monotonic() - child.start, 3)
    error = child.error
    if not error:
        try:
            reading: Reading = pickle.loads(bytes(child.data[LENGTH:]))
            return ReaderOutcome(replace(reading, seconds=seconds), alive)
        except Exception as cause:  # pickle raises nearly anything for half an answer
            error = f"the reader's process died: {cause}"
    return ReaderOutcome(Reading(child.reader.name, error=error, seconds=seconds), alive)


def _end(leader: int) -> tuple[Process, ...]:
    """Kill a reader's process and all that it started, and return those that still live."""
    end = time.monotonic() + KILLED_S
    is_reaped = False
    while True:
        kill_group(leader, is_reaped)
        if not is_reaped:
            is_reaped = os.waitpid(leader, os.WNOHANG)[0] == leader
        alive = _group(leader, is_reaped)
        if (is_reaped and not alive) or time.monotonic() >= end:
            return alive
        time.sleep(POLL_S)


def kill_group(leader: int, is_reaped: bool) -> None:
    """Send SIGKILL to a group and, until it is reaped, to its leader, which may not have come to make the group."""
    if not is_reaped:
        os.kill(leader, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _group(leader: int, is_reaped: bool) -> tuple[Process, ...]:
    """Return the processes of a group that live, with its leader. A zombie does not."""
    if is_reaped:
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            return ()
    processes = []
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdecimal() else None
        if fields and (int(fields[3]) == leader or (int(name) == leader and not is_reaped)):
            processes.append(Process(int(name), fields[0], int(fields[20])))
    return tuple(processes)


def _stat(pid: int) -> list[str] | None:
    """Return a living process's program and the fields after it in /proc/PID/stat (proc_pid_stat(5))."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            head, _bracket, numbers = stream.read().rpartition(")")
    except OSError:
        return None
    fields = [head.partition("(")[2], *numbers.split()]
    return None if len(fields) < 21 or fields[1] in ("Z", "X") else fields


def is_alive(process: Process) -> bool:
    """Return True if this process, and not another of its number, still lives."""
    fields = _stat(process.pid)
    return fields is not None and int(fields[20]) == process.start_ticks
