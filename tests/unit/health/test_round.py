# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A round reads, judges, latches and saves, or says why it did not; nothing that was known before is lost."""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from messages import raises
from rounds import EXPECTED, GPU, TABLE, at, happened, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk
from ansible_collections.sailloft.fleet.plugins.module_utils.health import process, round, state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import cleared, drained, undrained
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Expected, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.process import Reader
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.round import CheckerPaths, RoundError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import StateError

WIDTH = f"width@gpu:{GPU.name}"


@pytest.fixture
def paths(tmp_path):
    expected = tmp_path / "expected.json"
    expected.write_text(stored.text(EXPECTED))
    return CheckerPaths(str(tmp_path / "state"), str(tmp_path / "run"), str(expected), str(tmp_path / "root"))


def finding(*found, kept=None, name="reader", **row):
    """Return a reader that measures this."""
    measurements = tuple(each for each in found if not hasattr(each, "identity"))
    events = tuple(each for each in found if hasattr(each, "identity"))
    return Reader(name, lambda _node: Reading(name, measurements, events, kept=kept or {}), 20, **row)


def failing(name="reader"):
    def read(_node):
        raise NotMeasuredError("no such program")

    return Reader(name, read, 20)


def make(paths, *readers, now=None, **more):
    return round.make(paths, readers, TABLE, now=state.moment if now is None else lambda: now, **more)


def names(saved):
    return [fault.name for fault in saved.condition.faults]


def test_a_round_is_saved(paths):
    saved = make(paths, finding(measured("width", 8), measured("temperature", 50)), failing("smi"), period_s=30)
    assert state.read(paths.state) == saved
    assert (saved.host, names(saved)) == ("gpu01", [WIDTH])
    assert (saved.round.number, saved.round.period_s, saved.round.errors) == (1, 30, {"smi": "no such program"})
    assert (saved.checks["width"].failed, saved.checks["temperature"].passed) == (1, 1)
    assert saved.values == {"temperature": {str(GPU): 50}}
    assert make(paths).round.number == 2


def test_the_first_round_of_each_boot_is_known(paths):
    rounds = [make(paths, now=now).round.first for now in (at(60), at(120), at(5, "boot-2"), at(65, "boot-2"))]
    assert rounds == [at(60), at(60), at(5, "boot-2"), at(5, "boot-2")]


def test_a_node_of_an_image_without_a_recording_has_the_name_of_its_kernel(paths):
    Path(paths.expected).write_text(stored.text(Expected("")), encoding="utf-8")
    assert make(paths).host == os.uname().nodename


def test_a_check_that_was_not_made_keeps_its_time(paths):
    first = make(paths, finding(measured("width", 16)), now=at(0)).checks["width"]
    second = make(paths, finding(measured("width", None)), now=at(60)).checks["width"]
    assert (first.passed, first.measured) == (1, at(0))
    assert (second.passed, second.not_measured, second.measured) == (0, 1, at(0))
    assert make(paths, now=at(120)).checks["width"] == second


def test_a_reader_gets_what_it_kept_in_the_last_saved_round(paths):
    def read(node):
        number = int(node.kept.get("number", "0")) + 1
        return Reading("log", (), (happened("xid_person", str(number)),), kept={"number": str(number)})

    log = Reader("log", read, 20)
    make(paths, log)
    make(paths, failing("log"))
    saved = make(paths, log)
    assert saved.kept == {"log": {"number": "2"}}
    assert [fault.count for fault in saved.condition.faults] == [2]


def test_a_round_that_was_not_saved_loses_no_event(paths, monkeypatch):
    def read(node):
        events = () if node.kept else (happened("xid_person"),)
        return Reading("log", (), events, kept={"read": "yes"})

    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = Reader("log", read, 20)
    make(paths, finding(measured("width", 16)))
    with monkeypatch.context() as patch:
        patch.setattr(disk.os, "replace", full)
        with raises(StateError, "could not be saved"):
            make(paths, log)
    assert names(state.read(paths.state)) == []
    assert names(make(paths, log)) == [f"xid_person@gpu:{GPU.name}"]


def test_what_a_person_says_during_a_round_is_kept(paths):
    make(paths, finding(measured("width", 8)))

    def read(_node):
        round.change(paths, lambda condition, now: drained(condition, "cable", "ada", now), at(0))
        round.change(paths, lambda condition, now: cleared(condition, WIDTH, "repaired", "ada", now), at(0))
        return Reading("reader")

    saved = make(paths, Reader("reader", read, 20))
    assert (names(saved), saved.condition.drain.by) == ([], "ada")


def test_a_person_can_speak_before_the_first_round(paths):
    os.mkdir(paths.state)
    saved = round.change(paths, lambda condition, now: drained(condition, "new", "ada", now), at(0))
    assert state.read(paths.state) == saved
    assert (saved.host, saved.round) == ("gpu01", None)


def test_a_state_that_cannot_be_read_is_a_fault_that_only_a_person_ends(paths):
    make(paths)
    file = Path(paths.state, state.FILE)
    file.write_bytes(b"{")
    with raises(StateError):
        round.change(paths, lambda condition, now: drained(condition, "cable", "ada", now), at(0))
    for now in (at(60), at(120), at(5, "boot-2")):
        saved = make(paths, finding(measured("width", 16)), now=now)
        assert names(saved) == ["state_unreadable@node"]
        assert saved.condition.faults[0].takes_out
    assert Path(f"{file}.unreadable-1").read_bytes() == b"{"
    round.change(paths, lambda condition, now: cleared(condition, "state_unreadable@node", "seen", "ada", now), at(0))
    assert names(make(paths)) == []


@pytest.mark.parametrize("text", [None, "", "{}", "\0"])
def test_a_node_that_does_not_know_what_it_must_have_is_a_fault(paths, text):
    good = Path(paths.expected).read_text()
    Path(paths.expected).unlink()
    if text is not None:
        Path(paths.expected).write_text(text)
    saved = make(paths)
    assert names(saved) == ["expected_unreadable@node"]
    assert paths.expected in saved.condition.faults[0].seen
    Path(paths.expected).write_text(good)
    assert names(make(paths)) == []


def test_two_rounds_do_not_run_at_once(paths):
    with state.locked("round", paths.run), raises(RoundError, "another round"):
        make(paths)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("smi", "reader_hangs@reader:smi"), ("file_systems", "storage_hangs@reader:file_systems")],
)
def test_a_reader_whose_process_hangs_is_not_started_again(paths, monkeypatch, name, fault):
    """The process is one that nobody kills, as if it were in the kernel."""
    monkeypatch.setattr(process, "kill_group", lambda _leader, _is_reaped: None)
    monkeypatch.setattr(process, "KILLED_S", 0.1)
    starts = Path(paths.state).parent / "starts"

    def hang(_node):
        with starts.open("a") as stream:
            stream.write("x")
        time.sleep(60)

    reader = Reader(name, hang, 0.3)
    saved = make(paths, reader)
    (left,) = saved.left
    # A process that was killed may only wait for a busy processor: one that outlives a round hangs.
    assert names(saved) == []
    saved = make(paths, reader, finding(measured("width", 16)))
    assert names(saved) == [fault]
    assert str(left.pid) in saved.round.errors[name]
    assert "still hangs" in saved.round.errors[name]
    assert saved.checks["width"].passed == 1
    assert starts.read_text() == "x"
    assert left in saved.left
    os.kill(left.pid, signal.SIGKILL)
    os.waitpid(left.pid, 0)
    monkeypatch.undo()
    saved = make(paths, finding(name=name))
    assert left not in saved.left
    assert (saved.round.errors, names(saved)) == ({}, [])


def test_a_process_of_an_earlier_boot_does_not_hang(paths):
    make(paths, now=at(0))
    left = state.Left("smi", os.getpid(), "python", 1, at(0))
    old = state.read(paths.state)
    state.save(replace(old, left=(left,)), paths.state)
    saved = make(paths, finding(name="smi"), now=at(5, "boot-2"))
    assert (saved.left, saved.round.errors) == ((), {})


def test_a_jump_of_the_clock_is_noted(paths):
    make(paths, now=at(0))
    (note,) = make(paths, now=at(60, unix_s=0)).round.notes
    assert "clock" in note
    assert make(paths, now=at(120, unix_s=60)).round.notes == ()


# Deep rounds


def test_deep_readers_run_only_on_a_node_out_of_service(paths):
    deep = finding(measured("deep_width", True), name="deep", is_deep=True)
    light = finding(measured("width", 8))
    assert names(make(paths, deep, light)) == [WIDTH]
    with raises(RoundError, "gpu01", "drain"):
        make(paths, deep, light, is_deep=True)
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))
    saved = make(paths, deep, light, is_deep=True)
    assert names(saved) == [WIDTH, f"deep_width@gpu:{GPU.name}"]


def test_deep_readers_run_one_after_the_other_and_light_ones_at_once(paths, monkeypatch):
    os.mkdir(paths.state)
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))
    groups = []
    read_all = process.read_all

    def watched(readers, node):
        groups.append("".join(reader.name for reader in readers))
        return read_all(readers, node)

    monkeypatch.setattr(process, "read_all", watched)
    readers = [finding(measured("temperature", 50), name=name, is_deep=name in "ab") for name in "abcd"]
    make(paths, *readers, is_deep=True)
    make(paths, *readers)
    assert [group for group in groups if group] == ["a", "b", "cd"]


def test_a_deep_check_ends_what_a_light_one_found(paths):
    make(paths, finding(measured("width", 8)))
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))
    deep = finding(measured("width", 16), name="deep", is_deep=True)
    assert names(make(paths, finding(measured("width", 16), name="other"))) == [WIDTH]
    assert names(make(paths, deep, is_deep=True)) == []


def test_a_light_check_does_not_end_what_a_deep_one_found(paths):
    os.mkdir(paths.state)
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))
    make(paths, finding(measured("width", 8), name="deep", is_deep=True), is_deep=True)
    assert names(make(paths, finding(measured("width", 16)))) == [WIDTH]


def test_a_deep_round_without_any_check_says_so(paths):
    make(paths)
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))
    with raises(RoundError, "DCGM", "nvbandwidth"):
        make(paths, finding(name="deep", is_deep=True), is_deep=True)


def test_a_deep_check_that_fails_once_is_not_measured(paths, tmp_path):
    os.mkdir(paths.state)
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))
    file = tmp_path / "first"

    def read(_node):
        is_first = not file.exists()
        file.touch()
        return Reading("deep", (measured("deep_width", is_first), measured("pending", True)))

    saved = make(paths, Reader("deep", read, 20, is_deep=True), is_deep=True)
    assert names(saved) == [f"pending@gpu:{GPU.name}"]
    assert saved.checks["deep_width"].not_measured == 1


def test_what_fails_only_in_the_second_run_is_no_pass(paths, tmp_path):
    make(paths, finding(measured("width", 8)))
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))
    file = tmp_path / "first"

    def read(_node):
        is_first = not file.exists()
        file.touch()
        return Reading("deep", (measured("width", 16 if is_first else 8), measured("pending", is_first)))

    saved = make(paths, Reader("deep", read, 20, is_deep=True), is_deep=True)
    assert names(saved) == [WIDTH]
    assert (saved.checks["width"].passed, saved.checks["width"].not_measured) == (0, 1)


@pytest.mark.parametrize("damaged", [False, True])
def test_nothing_counts_of_a_deep_check_whose_node_returned_to_service_meanwhile(paths, damaged):
    make(paths, finding(measured("width", 8)))
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))

    def read(_node):
        if damaged:
            Path(paths.state, "state.json").write_text("{", encoding="utf-8")
        else:
            round.change(paths, lambda condition, now: undrained(condition, "ada", now), at(1))
        return Reading("first", (measured("width", 16), measured("deep_width", True)))

    started = Path(paths.run, "started")

    def later(_node):
        started.touch()
        return Reading("second")

    deep = [Reader("first", read, 20, is_deep=True), Reader("second", later, 20, is_deep=True)]
    saved = make(paths, *deep, is_deep=True)
    assert set(saved.round.errors) == {"first", "second"}
    assert not started.exists()
    assert f"deep_width@gpu:{GPU.name}" not in names(saved)
    assert "width" not in saved.checks or saved.checks["width"].passed == 0


def test_light_rounds_go_on_while_a_deep_one_runs(paths):
    make(paths)
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))

    def read(_node):
        # Another process's rounds: this one holds the lock of deep rounds.
        make(paths, finding(measured("pending", True), name="light"))
        with raises(RoundError, "another round"):
            make(paths, Reader("deep", read, 20, is_deep=True), is_deep=True)
        return Reading("deep", (measured("deep_width", False),))

    saved = make(paths, Reader("deep", read, 20, is_deep=True), is_deep=True)
    assert saved.round.errors == {}
    assert names(saved) == [f"pending@gpu:{GPU.name}"]
    assert saved.checks["deep_width"].passed == 1


@pytest.mark.parametrize("is_deep", [False, True])
def test_a_round_keeps_what_another_kind_of_round_left_behind_meanwhile(paths, is_deep):
    make(paths)
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))
    other = state.Left("other", os.getpid(), "python", 1, state.moment())

    def read(_node):
        saved = state.read(paths.state)
        state.save(replace(saved, left=(other,)), paths.state)
        return Reading("reader", (measured("deep_width", False),))

    assert make(paths, Reader("reader", read, 20, is_deep=is_deep), is_deep=is_deep).left == (other,)


@pytest.mark.parametrize("second", ["crashes", "not measured", "passes over it"])
def test_a_deep_check_that_fails_stays_a_fault_if_the_second_run_does_not_measure_it(paths, tmp_path, second):
    os.mkdir(paths.state)
    round.change(paths, lambda condition, now: drained(condition, "test", "ada", now), at(0))
    file = tmp_path / "first"

    def read(_node):
        if not file.exists():
            file.touch()
            return Reading("deep", (measured("deep_width", True),))
        if second == "crashes":
            raise NotMeasuredError("the diagnostic crashed")
        return Reading("deep", (measured("deep_width", None),) if second == "not measured" else ())

    saved = make(paths, Reader("deep", read, 20, is_deep=True), is_deep=True)
    assert names(saved) == [f"deep_width@gpu:{GPU.name}"]
    assert saved.round.errors == ({"deep": "the diagnostic crashed"} if second == "crashes" else {})


def test_a_round_killed_at_any_time_leaves_a_state_and_no_lock(paths):
    make(paths, finding(measured("width", 8)))
    reader = finding(measured("width", 16))
    for pause in (0.0, 0.005, 0.01, 0.02, 0.04, 0.08):
        pid = os.fork()
        if pid == 0:
            while True:
                make(paths, reader)
        time.sleep(pause)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert state.read(paths.state).round.number >= 1
        # A reader's process that was just started holds the lock until it has closed its copy.
        for _attempt in range(100):
            with state.locked("round", paths.run, wait=False) as is_free:
                if is_free:
                    break
            time.sleep(0.05)
        make(paths, reader)
