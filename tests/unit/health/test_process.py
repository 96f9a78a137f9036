# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""No reader stops a round: not one that hangs, dies, or returns something else than a reading."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from rounds import EXPECTED, GPU, happened, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.health import process
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.process import Process, Reader, is_alive, read_all
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError


def outcome(read, deadline_s=20.0):
    """Return the outcome of one reader."""
    return read_all([Reader("reader", read, deadline_s)], lambda _reader: Node(EXPECTED))[0]


def test_a_reading_comes_back_as_it_was():
    given = Reading("", (measured("width", 16, context={"pstate": "P0"}),), (happened("xid_reset"),), kept={"a": "1"})
    result = outcome(lambda _node: given)
    assert result.alive == ()
    reading = result.reading
    assert (reading.measurements, reading.events, reading.kept) == (given.measurements, given.events, given.kept)
    assert (reading.reader, reading.error) == ("reader", "")
    assert reading.seconds > 0


def test_readers_run_at_once():
    names = "abcdefgh"
    all_run = multiprocessing.get_context("fork").Barrier(len(names))

    def waiting(_node):
        all_run.wait()
        return Reading("")

    results = read_all([Reader(name, waiting, 60) for name in names], lambda _reader: Node(EXPECTED))
    assert [result.reading.error for result in results] == [""] * len(names)
    assert [result.reading.reader for result in results] == list(names)


def raising(error):
    def read(_node):
        raise error

    return read


def exiting(_node):
    os._exit(3)


def killing(_node):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (raising(NotMeasuredError("no such program")), "no such program"),
        (raising(FileNotFoundError(2, "No such file or directory", "/sys/x")), "/sys/x"),
        (raising(RecursionError("too deep")), "RecursionError"),
        (raising(MemoryError()), "MemoryError"),
        (raising(SystemExit(0)), "died"),
        (exiting, "died"),
        (killing, "died"),
        (lambda _node: None, "NoneType"),
        (lambda _node: Reading("", ("width",)), "width"),
        (lambda _node: Reading("", (Measurement("width", GPU.name, 8, "source"),)), "width"),
        (lambda _node: Reading("", (Measurement("width", GPU, 8, None),)), "width"),
        (lambda _node: Reading("", (Measurement("width", GPU, 8, "s", context={"a": 1}),)), "width"),
        (lambda _node: Reading("", kept={"place": "a\0b"}), "keep"),
        (lambda _node: Reading("", kept={"place": 3}), "keep"),
        (lambda _node: Reading("", (Measurement("width", GPU, lambda: 0, "s"),)), "reader"),
    ],
)
def test_a_reader_that_fails_measures_nothing_and_says_why(read, words):
    reading = outcome(read).reading
    assert words in reading.error
    assert (reading.reader, reading.measurements) == ("reader", ())


def test_more_than_the_limit_is_no_reading(monkeypatch):
    monkeypatch.setattr(process, "LIMIT_BYTES", 1 << 20)
    assert "MiB" in outcome(lambda _node: Reading("", (measured("a", "x" * (2 << 20)),))).reading.error


def test_a_reader_that_hangs_is_killed_with_all_that_it_started(tmp_path):
    pids = tmp_path / "pids"

    def hang(_node):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with pids.open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        time.sleep(60)
        return Reading("")

    start = time.monotonic()
    result = outcome(hang, 0.5)
    assert result.reading.error == "no answer in 0.5 s"
    assert time.monotonic() - start < 10
    assert result.alive == ()
    for pid in pids.read_text().split():
        with contextlib.suppress(FileNotFoundError):
            assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_process_without_its_own_group_is_killed(monkeypatch):
    """On a busy machine the deadline may come before the process has made its group."""
    forked, fork = [], os.fork

    def remember():
        forked.append(fork())
        return forked[-1]

    monkeypatch.setattr(os, "fork", remember)
    monkeypatch.setattr(os, "setsid", lambda: time.sleep(60))
    result = outcome(lambda _node: Reading(""), 0.3)
    assert ("no answer" in result.reading.error, result.alive) == (True, ())
    (pid,) = forked
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_what_a_reader_leaves_running_is_killed():
    def leave(_node):
        if os.fork() == 0:
            time.sleep(60)
        return Reading("", (measured("width", 16),))

    result = outcome(leave)
    assert (len(result.reading.measurements), result.alive) == (1, ())


def test_a_process_that_cannot_be_killed_is_left_behind(monkeypatch):
    """A process in the kernel (state D) ignores SIGKILL; here nobody sends it."""
    monkeypatch.setattr(process, "kill_group", lambda _leader, _is_reaped: None)
    monkeypatch.setattr(process, "KILLED_S", 0.2)
    result = outcome(lambda _node: time.sleep(60), 0.3)
    assert "no answer" in result.reading.error
    (left,) = result.alive
    assert is_alive(left)
    assert not is_alive(Process(left.pid, left.program, left.start_ticks + 1))
    os.kill(left.pid, signal.SIGKILL)
    os.waitpid(left.pid, 0)
    assert not is_alive(left)


def test_a_reader_holds_no_file_of_the_round(tmp_path):
    """Otherwise a process that is left behind would hold the round's locks."""
    with (tmp_path / "lock").open("w"):
        reading = outcome(lambda _node: Reading("", (measured("files", " ".join(links())),))).reading
    assert str(tmp_path) not in reading.measurements[0].value


def links():
    """Return what the process has open."""
    names = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            names.append(os.readlink(f"/proc/self/fd/{name}"))
    return names
