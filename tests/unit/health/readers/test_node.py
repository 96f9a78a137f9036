# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs run with a deadline, one nvidia-smi at a time, and give a whole answer or none."""

from __future__ import annotations

import contextlib
import os
import time

import pytest
from messages import raises
from rounds import EXPECTED

from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers import node as nodes
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError, run


def program(tmp_path, text, name="nvidia-smi"):
    """Return the path of a shell script."""
    path = tmp_path / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_program_gives_status_and_texts(tmp_path):
    path = program(tmp_path, 'printf "%s %s\\377" "$1" "$LC_ALL"; echo wrong >&2; read line; exit 15')
    assert run([path, "-q"], 20) == (15, "-q C\ufffd", "wrong\n")
    assert run([program(tmp_path, "kill -9 $$")], 20).rc == -9


@pytest.mark.parametrize(("name", "words"), [("absent", "no such program"), ("text", "denied"), (".", "denied")])
def test_what_is_no_program_measures_nothing(tmp_path, name, words):
    (tmp_path / "text").write_text("")
    with raises(NotMeasuredError, words):
        run([str(tmp_path / name)], 20)


@pytest.mark.parametrize("text", ["exec sleep 60", "sleep 60", "echo one GPU; sleep 60", "exec >&- 2>&-; sleep 60"])
def test_a_program_that_hangs_is_killed_and_measures_nothing(tmp_path, text):
    start = time.monotonic()
    with raises(NotMeasuredError, "0.3 s"):
        run([program(tmp_path, text)], 0.3)
    assert time.monotonic() - start < 10


def test_too_much_output_is_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "LIMIT_BYTES", 1 << 20)
    with raises(NotMeasuredError, "1 MiB"):
        run([program(tmp_path, "yes")], 20)


def test_one_nvidia_smi_runs_at_a_time(tmp_path):
    path = program(tmp_path, "mkdir $1/running || exit 9; sleep 0.3; rmdir $1/running")
    children = []
    for _number in range(3):
        pid = os.fork()
        if pid == 0:
            os._exit(run([path, str(tmp_path)], 20, str(tmp_path)).rc)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0, 0]


def test_one_that_hangs_keeps_the_lock_when_its_reader_is_gone(tmp_path):
    path = program(tmp_path, "echo $$ > $1/pid; exec sleep 60")
    reader = os.fork()
    if reader == 0:
        run([path, str(tmp_path)], 50, str(tmp_path))
    hanging = 0
    lock = tmp_path / "nvidia-smi.lock"
    # The reader writes the number into the lock after the program has begun.
    while not hanging or lock.read_text() != str(hanging):
        time.sleep(0.02)
        hanging = int((tmp_path / "pid").read_text().strip() or 0) if (tmp_path / "pid").exists() else 0
    os.kill(reader, 9)
    os.waitpid(reader, 0)
    with raises(NotMeasuredError, "another nvidia-smi", hanging):
        run([path, str(tmp_path)], 0.3, str(tmp_path))
    with contextlib.suppress(NotMeasuredError):
        run([program(tmp_path, "exit 0", "other"), "x"], 20, str(tmp_path))  # others need no lock
    os.kill(hanging, 9)
    assert run([program(tmp_path, "exit 0")], 20, str(tmp_path)).rc == 0


def test_files_are_below_the_root(tmp_path):
    node = Node(EXPECTED, str(tmp_path))
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys/b").write_text(" 8.0 GT/s\n")
    (tmp_path / "sys/a").write_bytes(b"\xff")
    assert node.text("/sys/b") == "8.0 GT/s"
    assert node.text("/sys/a") == "\ufffd"
    assert node.names("/sys") == ["a", "b"]
    assert node.names("/absent") == []
    with pytest.raises(FileNotFoundError):
        node.text("/absent")
