# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The stored state can be read after anything that happens to a node, or says that it cannot."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import raises
from rounds import GPU, Node, at, happened, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk
from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RESET_COUNT
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import drained
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Moment, Place
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import (
    Left,
    Round,
    State,
    StateError,
    Tally,
    age_s,
    jump_s,
)


def example(number=1) -> State:
    """Return a state with something in each field."""
    node = Node()
    node.round(at(0), measured("width", 8), measured("replays", 5), happened("xid_person"))
    node.round(at(60), measured("temperature", None, reason="lost"), measured(RESET_COUNT, 3))
    node.condition = drained(node.condition, "cable", "ada", at(61))
    return State(
        "gpu01",
        Round(number, at(60), 1.5, 60.0, {"smi": "no program"}, {"smi": 0.5}, ("the clock jumped",)),
        node.condition,
        {"width": Tally(7, 1, 0, at(60))},
        {"temperature": {str(GPU): 50.5}},
        node.memory,
        {"kernel_log": {"boot": "boot-1", "sequence": "17"}},
        (Left("smi", 1234, "nvidia-smi", 99, at(0)),),
    )


def test_a_state_is_read_as_it_was_saved(tmp_path):
    assert state.read(str(tmp_path)) is None
    state.save(example(), str(tmp_path))
    assert state.read(str(tmp_path)) == example()
    assert (tmp_path / state.FILE).stat().st_mode & 0o777 == 0o644


@given(st.text(), st.text(st.characters(), max_size=2000))
def test_any_text_can_be_stored(name, text):
    node = Node()
    node.round(at(0), measured("width", text, Place("gpu", name)), happened("xid_person", text, Place("gpu", name)))
    node.round(at(60), measured("temperature", None, reason=text))
    written = State(text, condition=node.condition, memory=node.memory, kept={name: {text: text}})
    assert len(state.load(state.dump(written)).condition.faults) == len(node.condition.faults)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe\x00",
        b'{"format": "sailloft-health/2", "host": "gpu01"}',
        b'{"format": "sailloft-health/1"}',
        b'{"format": "sailloft-health/1", "host": "gpu01", "condition": {"faults": 3}}',
        b"[" * 100_000,
    ],
    ids=repr,
)
def test_a_file_that_is_no_state_is_not_read(tmp_path, text):
    (tmp_path / state.FILE).write_bytes(text)
    with raises(StateError, str(tmp_path / state.FILE)):
        state.read(str(tmp_path))


def test_any_half_of_a_state_is_not_read(tmp_path):
    text = state.dump(example())
    for length in range(0, len(text) - 1, 97):
        with raises(StateError):
            state.load(text[:length])


def test_a_directory_in_place_of_the_state_is_not_read(tmp_path):
    (tmp_path / state.FILE).mkdir()
    with raises(StateError, "directory"):
        state.read(str(tmp_path))


def test_a_state_of_too_many_bytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "LIMIT_BYTES", 100)
    state.save(example(), str(tmp_path))
    with raises(StateError, "MiB"):
        state.read(str(tmp_path))


def test_what_cannot_be_read_is_kept_beside_until_it_is_replaced(tmp_path):
    path = tmp_path / state.FILE
    path.write_bytes(b"first")
    event = state.set_aside("cause", str(tmp_path))
    again = state.set_aside("cause", str(tmp_path))  # the round before was killed before it saved
    assert event == again
    state.save(example(), str(tmp_path))
    path.write_bytes(b"second")
    path.unlink()
    path.write_bytes(b"third")
    second = state.set_aside("cause", str(tmp_path))
    assert (tmp_path / "state.json.unreadable-1").read_bytes() == b"first"
    assert (tmp_path / "state.json.unreadable-2").read_bytes() == b"third"
    assert event.check == "state_unreadable"
    assert str(tmp_path / "state.json.unreadable-2") in second.text


def test_what_cannot_be_kept_beside_is_not_replaced(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    with raises(StateError, "cause", "No space left"):
        state.set_aside("cause", str(tmp_path))


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_full_disk_leaves_the_old_state_and_says_so(tmp_path, monkeypatch, call):
    state.save(example(1), str(tmp_path))

    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk.os, call, full)
        with raises(StateError, "could not be saved", "No space left"):
            state.save(example(2), str(tmp_path))
    assert state.read(str(tmp_path)).round.number == 1
    assert os.listdir(tmp_path) == [state.FILE]


CALLS = ("open", "flock", "truncate", "fchmod", "write", "flush", "fsync", "replace", "link", "fdopen", "close")


def killed_at(number: int, work) -> bool:
    """Do work in a process that is killed before its so many-th call that can change files; False if it was not."""
    pid = os.fork()
    if pid == 0:
        count = 0

        def before(_frame, event, function):
            nonlocal count
            if event == "c_call" and function.__name__ in CALLS:
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

        sys.setprofile(before)
        work()
        sys.setprofile(None)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def test_a_kill_at_each_call_leaves_the_old_or_the_new_state(tmp_path):
    state.save(example(0), str(tmp_path))
    number = seen = 0
    while killed_at(number, partial(state.save, example(number + 1), str(tmp_path))):
        seen = max(seen, state.read(str(tmp_path)).round.number)
        number += 1
    assert number > 8
    assert state.read(str(tmp_path)).round.number == number + 1
    assert seen > 0  # some were killed after the file was replaced
    assert os.listdir(tmp_path) == [state.FILE]


def test_a_kill_at_each_call_loses_no_state_that_cannot_be_read(tmp_path):
    path = tmp_path / state.FILE

    def replaced():
        state.set_aside("cause", str(tmp_path))
        state.save(example(), str(tmp_path))

    path.write_bytes(b"unreadable")
    number = 0
    while killed_at(number, replaced):
        number += 1
        texts = {(tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
        assert b"unreadable" in texts
        assert path.read_bytes() == b"unreadable" or json.loads(path.read_bytes())["host"] == "gpu01"
        for name in os.listdir(tmp_path):
            (tmp_path / name).unlink()
        path.write_bytes(b"unreadable")
    assert number > 8


# Time


def test_ages_are_by_the_time_since_the_boot():
    """Even if the clock jumped by a year in between."""
    assert age_s(at(60), at(100, unix_s=0)) == 40
    assert age_s(at(60, "boot-1", 1000), at(5, "boot-2", 1400)) == 400
    assert age_s(at(60, "boot-1", 1000), at(5, "boot-2", 900)) == -100
    assert age_s(Moment(1000, "", 60), Moment(1030, "", 5)) == 30


def test_a_jump_of_the_clock_is_noticed_within_a_boot():
    assert jump_s(at(0), at(60)) == 0
    assert jump_s(at(0), at(60, unix_s=at(60).unix_s - 3600)) == -3600
    assert jump_s(at(0), at(60, unix_s=at(60).unix_s + 1)) == 0
    assert jump_s(at(0, "boot-1"), at(60, "boot-2", 0)) == 0


def test_a_moment_of_this_node():
    first, second = state.moment(), state.moment()
    assert 0 <= age_s(first, second) < 60
    assert len(first.boot_id) == 36


def test_a_lock_is_held_by_one(tmp_path):
    run = str(tmp_path / "run")
    with state.locked("round", run, wait=False) as first, state.locked("round", run, wait=False) as second:
        assert (first, second) == (True, False)
    with state.locked("round", run, wait=False) as third:
        assert third


@pytest.mark.parametrize("period_s", [1e308, 10**400, -5.0, float("inf")])
def test_no_stored_period_makes_a_state_count_for_ever(period_s):
    assert state.is_stale(4 * 86400, period_s)
    assert not state.is_stale(60, period_s)


def test_a_pipe_in_place_of_the_state_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / state.FILE)
    with pytest.raises(StateError):
        state.read(str(tmp_path))


def test_a_link_to_nothing_in_place_of_the_state_is_a_fault_not_a_new_node(tmp_path):
    (tmp_path / state.FILE).symlink_to(tmp_path / "elsewhere")
    with raises(state.StateError, "links to is missing"):
        state.read(str(tmp_path))
    # One who was killed before the new state was saved does it again.
    assert state.set_aside("not read", str(tmp_path)) == state.set_aside("not read", str(tmp_path))
    state.save(example(), str(tmp_path))
    assert state.read(str(tmp_path)) == example()
