# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The namespaces of a build: the system calls in order, and the errors of each step. The calls are recorded, not made.

tests/unit/image/build/test_first_stages.py and tests/image make the real calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import namespace
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# linux/prctl.h, linux/sched.h, linux/mount.h: PR_SET_PDEATHSIG, CLONE_NEWNS|CLONE_NEWPID, MS_REC|MS_PRIVATE,
# MS_NOSUID|MS_NODEV|MS_NOEXEC.
ENDS_WITH_PARENT = f"prctl 1 {signal.SIGKILL.value}"
UNSHARE = f"unshare {0x20000 | 0x20000000}"
PRIVATE = f"mount none / None {0x4000 | 0x40000} None"
PROC = f"mount proc /proc proc {2 | 4 | 8} None"
WORK = "work"
WHOLE = [ENDS_WITH_PARENT, UNSHARE, ENDS_WITH_PARENT, PRIVATE, PROC, WORK]


class Libc:
    """A C library whose calls are lines of a file; the call that begins with ``fails`` fails with EPERM."""

    def __init__(self, path, fails="nothing"):
        self.path, self.fails = path, fails

    def call(self, *words):
        line = " ".join(word.decode() if isinstance(word, bytes) else str(word) for word in words)
        with self.path.open("a") as stream:
            stream.write(line + "\n")
        if line.startswith(self.fails):
            ctypes.set_errno(errno.EPERM)
            return -1
        return 0

    def prctl(self, option, number):
        return self.call("prctl", option, int(number))

    def unshare(self, flags):
        return self.call("unshare", flags)

    def mount(self, *words):
        return self.call("mount", *words)


@pytest.fixture
def libc(tmp_path, monkeypatch):
    found = Libc(tmp_path / "calls")

    def load(name, use_errno):
        assert (name, use_errno) == (None, True)
        return found

    own, leave = os.getpid(), os._exit

    def exit_unless_own(code):
        assert os.getpid() != own, "the process of the caller would end"
        leave(code)

    monkeypatch.setattr(namespace.ctypes, "CDLL", load)
    monkeypatch.setattr(namespace.os, "_exit", exit_unless_own)
    return found


def run(libc, work=lambda: None):
    """Run the work in its namespace; return the error as text, empty without one, and the calls."""

    def recorded():
        libc.call(WORK)
        work()

    told = ""
    try:
        namespace.isolated(recorded)
    except ImageError as error:
        told = str(error)
    return told, libc.path.read_text().splitlines()


def test_the_work_runs_after_all_steps_in_order(libc):
    assert run(libc) == ("", WHOLE)


@pytest.mark.parametrize(
    ("fails", "cause"),
    [
        ("unshare", "the kernel does not allow namespaces: Operation not permitted"),
        ("mount none", "mounting is not allowed: Operation not permitted"),
        ("mount proc", "mounting is not allowed: Operation not permitted"),
    ],
)
def test_a_refused_step_is_reported_and_no_later_step_runs(libc, fails, cause):
    libc.fails = fails
    told, calls = run(libc)
    assert told == Mentions(cause)
    assert calls == WHOLE[: len(calls)]
    assert calls[-1].startswith(fails)


def fail(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ImageError("é broke", "mend it", subject="layer base"), "layer base: é broke; mend it"),
        (FileNotFoundError(2, "No such file", "/x"), "/x: No such file; fix it and run again"),
        (OSError("odd"), "the build: odd; fix it and run again"),
    ],
)
def test_an_error_of_the_work_is_reported(libc, error, told):
    assert run(libc, fail(error)) == (told, WHOLE)


def test_an_unexpected_error_is_reported_with_its_place(libc):
    told, _calls = run(libc, fail(ZeroDivisionError("by zero")))
    assert told.startswith("the build: internal error in the builder:\nTraceback (most recent call last):\n")
    assert told.endswith("ZeroDivisionError: by zero\n; report it")


def test_a_long_error_is_reported_completely(libc):
    """A pipe holds 64 KiB, so it is written in several parts."""
    told, _calls = run(libc, fail(ImageError("x" * 200_000, "mend it", subject="layer base")))
    assert told == f"layer base: {'x' * 200_000}; mend it"


@pytest.mark.parametrize("end", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(3)])
def test_work_that_is_ended_from_outside_is_reported(libc, end):
    told, _calls = run(libc, end)
    assert told == Mentions("terminated")


def test_the_end_of_the_work_is_awaited(libc):
    def work():
        time.sleep(0.2)
        libc.call("done")

    assert run(libc, work) == ("", [*WHOLE, "done"])


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_text_that_was_printed_before_the_work_is_written_once(libc, tmp_path, monkeypatch, name):
    with (tmp_path / "output").open("w") as stream:
        monkeypatch.setattr(sys, name, stream)
        stream.write("before ")
        run(libc, lambda: print("work", file=stream, flush=True))
    assert (tmp_path / "output").read_text() == "before work\n"
